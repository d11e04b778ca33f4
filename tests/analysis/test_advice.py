"""Advice only if the data supports it and a replay confirms it; the facts are made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from haclient.analysis.advice import Advice, Facts, Outcome, Replay, Setting, Storm, advise
from haclient.cli.replay import replay

STORM = Storm(clients=2000, rate=100.0, outage=2.0)
FACTS = Facts(
    cluster="orders",
    outages=1000,
    slow=31.2,
    slower=2,
    slower_rate=100.0,
    storm=STORM,
    saturated=STORM,
    strategy="full",
    backoff_max=10.0,
    retry_after=False,
)


def constant(*outcomes: tuple[float, float, int]) -> Replay:
    """Return equal results before and after: last one back, attempts, clients that gave up."""
    made = iter(outcomes * 3)

    def play(setting: Setting, /) -> Outcome | None:
        last, attempts, gave_up = next(made)
        return Outcome(last=last, attempts=attempts, gave_up=gave_up)

    return play


def advice(facts: Facts, play: Replay | None = None, accept_rate: float | None = 200.0) -> dict[str, Advice]:
    found = {row.parameter: row for row in advise(facts, accept_rate=accept_rate, play=play)}
    assert set(found) == {"accept_rate", "backoff_max", "deadline"}
    return found


def test_what_the_data_and_the_replay_support_is_proposed() -> None:
    found = advice(FACTS, constant((100.0, 5.0, 0), (90.0, 5.0, 0)))
    assert {name: (row.current, row.proposed) for name, row in found.items()} == {
        "accept_rate": (200.0, 100.0),
        "backoff_max": (10.0, 40.0),
        "deadline": (None, 63.0),
    }
    shown = {
        (row.last_before, row.last_after, row.attempts_before, row.attempts_after) for row in found.values()
    }
    assert shown == {(100.0, 90.0, 5.0, 5.0)}
    assert {row.cluster for row in found.values()} == {"orders"}


@pytest.mark.parametrize(
    ("facts", "parameter", "reason"),
    [
        (
            {"slower": 1},
            "accept_rate",
            "2 saturated storms below 90% of the configured rate are needed, 1 found",
        ),
        ({"saturated": None, "slower": 0}, "backoff_max", "no storm was saturated"),
        ({"backoff_max": None}, "backoff_max", "no line says which ceiling the clients have"),
        ({"outages": 999}, "deadline", "1,000 outages are needed, 999 found"),
        ({"slow_is_bound": True}, "deadline", "of 1,000 outages one or more have not ended"),
        ({"storm": None}, "deadline", "there is no storm to replay"),
    ],
)
def test_without_the_data_there_is_no_advice_but_the_reason(
    facts: dict[str, object], parameter: str, reason: str
) -> None:
    row = advice(replace(FACTS, **facts), constant((100.0, 5.0, 0), (90.0, 5.0, 0)))[parameter]  # type: ignore[arg-type]
    assert row.proposed is None
    assert reason in row.reason


def test_a_configured_rate_that_nobody_said_is_not_guessed() -> None:
    row = advice(FACTS, constant((100.0, 5.0, 0), (90.0, 5.0, 0)), accept_rate=None)["accept_rate"]
    assert (row.proposed, row.reason) == (None, "the configured rate is not known: pass it as --accept-rate")


@pytest.mark.parametrize(("measured", "proposed"), [(3.0, 100.0), (150.0, 150.0)])
def test_an_accept_rate_is_at_least_half_of_the_configured_one(measured: float, proposed: float) -> None:
    row = advice(replace(FACTS, slower_rate=measured), constant((100.0, 5.0, 0), (90.0, 5.0, 0)))[
        "accept_rate"
    ]
    assert row.proposed == proposed


def test_a_deadline_is_at_least_a_minute() -> None:
    row = advice(replace(FACTS, slow=2.0), constant((100.0, 5.0, 0), (90.0, 5.0, 0)))["deadline"]
    assert row.proposed == 60.0


@pytest.mark.parametrize(
    ("after", "parameter", "reason"),
    [
        ((91.0, 5.0, 0), "backoff_max", "less than 10% earlier"),
        ((80.0, 5.1, 0), "backoff_max", "or takes more attempts"),
        ((math.inf, 5.0, 0), "backoff_max", "less than 10% earlier"),
        ((102.0, 5.0, 0), "accept_rate", "the last one is back later with 100"),
        ((90.0, 5.0, 3), "deadline", "3 clients give up at 63"),
    ],
)
def test_what_the_replay_does_not_show_is_not_proposed(
    after: tuple[float, float, int], parameter: str, reason: str
) -> None:
    row = advice(FACTS, constant((100.0, 5.0, 0), after))[parameter]
    assert row.proposed is None
    assert reason in row.reason
    assert (row.last_before, row.attempts_after) == (100.0, after[1])


def test_without_a_simulator_nothing_is_proposed() -> None:
    rows = advice(FACTS).values()
    assert {(row.proposed, row.reason) for row in rows} == {
        (None, "there is no simulator here to replay a storm")
    }


def test_the_simulator_does_not_replay_clients_that_it_does_not_know() -> None:
    row = advice(replace(FACTS, strategy="of another client"), replay)["backoff_max"]
    assert row.reason == "the simulator does not know the strategy of another client"


@pytest.mark.slow
def test_the_simulator_replays_a_storm_with_fewer_clients_at_the_same_best_time() -> None:
    small = Setting(storm=STORM, strategy="full", backoff_max=10.0, retry_after=True)
    outcome = replay(small)
    again = replay(replace(small, storm=Storm(clients=20_000, rate=1000.0, outage=2.0)))
    assert outcome == again, "the same part of either"
    assert outcome is not None
    assert 22.0 <= outcome.last < 60.0  # no client can be back before the outage and N/rate
    assert outcome.gave_up == 0
    hasty = replay(replace(small, deadline=5.0))
    assert hasty is not None
    assert hasty.gave_up > 0
    assert hasty.last == math.inf
