"""The parts of the model, one by one: the primary, the figures, the limits of a scenario."""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest

from haclient.simulation.primary import Primary, Verdict
from haclient.simulation.result import Result, peak
from haclient.simulation.scenario import Scenario
from haclient.simulation.syn import SynFigures


def test_an_ordinary_primary_sets_up_in_turn_and_resets_what_the_backlog_cannot_hold() -> None:
    primary = Primary(Scenario(setup_rate=10, backlog=2, retry_after=False, when_full="reset"))
    answers = [primary.attempt(client, 1.0) for client in range(5)]
    assert [verdict for verdict, _, _ in answers] == [Verdict.USABLE] * 3 + [Verdict.RESET] * 2
    assert [known for _, known, _ in answers[:3]] == pytest.approx([1.1, 1.2, 1.3])
    assert (primary.handshakes, primary.refused) == (3, 2)


def test_a_full_primary_drops_the_syn_as_linux_does() -> None:
    primary = Primary(Scenario(setup_rate=10, backlog=0, retry_after=False))
    assert primary.attempt(1, 0.0)[0] is Verdict.USABLE
    assert primary.attempt(2, 0.0)[0] is Verdict.LOST


def test_a_primary_with_retry_after_sends_whole_milliseconds_and_admits_who_comes_in_time() -> None:
    primary = Primary(Scenario(setup_rate=3))
    answers = [primary.attempt(client, 0.0) for client in range(12)]
    retry_after = [retry_after for verdict, _, retry_after in answers if verdict is Verdict.DEFERRED]
    assert retry_after == [math.ceil(1000 * (place + 1) / 3) / 1000 for place in range(len(retry_after))]
    first = next(client for client, answer in enumerate(answers) if answer[0] is Verdict.DEFERRED)
    assert primary.attempt(first, retry_after[0])[0] is Verdict.USABLE
    assert primary.handshakes == 13


def test_refusals_go_ahead_of_set_ups_and_cost_work() -> None:
    primary = Primary(Scenario(setup_rate=1, refusal_cost=0.5, accept_rate=1000))
    for client in range(8):
        primary.attempt(client, 0.0)
    verdict, known, _ = primary.attempt(8, 0.0)
    assert (verdict, known) == (Verdict.DEFERRED, 0.5)
    assert primary.serve(0.0) == 9.5


def result(back: list[float], attempts: list[float], **scenario: Any) -> Result:
    counts = dict.fromkeys(("earlier", "elsewhere", "dials", "refused", "deferred", "parked", "gave_up"), 0)
    return Result(
        name="a",
        scenario=Scenario(**scenario),
        back=array("d", back),
        attempts=array("d", attempts),
        handshakes=7,
        syns=SynFigures(),
        **counts,
    )


def test_the_figures_are_those_of_the_times() -> None:
    four = result([1.0, 2.0, 3.0, 8.0], [0.0, 0.5, 0.9, 1.0, 5.0], clients=4, setup_rate=1)
    figures = four.figures()
    assert (figures["last"], figures["p50"], figures["p99"], figures["ratio"]) == (8.0, 2.0, 8.0, 2.0)
    assert figures["attempts_per_client"] == 1.25
    assert figures["wasted_handshakes"] == 3
    assert figures["peak_per_second"] == 3


def test_what_is_not_known_is_none() -> None:
    figures = result([1.0], [1.0], clients=4, setup_rate=1).figures()
    assert (figures["last"], figures["ratio"], figures["p50"], figures["not_back"]) == (None, None, None, 3)


def test_a_peak_is_the_most_within_any_second() -> None:
    assert peak(array("d")) == 0
    assert peak(array("d", [0.0, 0.6, 1.1, 1.5, 3.0])) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": 0},
        {"setup_rate": 0.0},
        {"setup_rate": math.nan},
        {"outage": -1.0},
        {"outage": math.inf},
        {"backlog": -1},
        {"members": 0},
        {"redirecting": 1},
        {"members": 3, "redirecting": 2},
        {"parking": True, "retry_after": False},
        {"when_full": "explode"},
        {"passive": "explode"},
        {"syn_repeats": "explode"},
        {"handshake_round_trips": 0},
        {"authentication": -1.0},
        {"members": 2, "passive": "refuse", "parking": True},
    ],
    ids=str,
)
def test_a_scenario_that_cannot_be_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=next(reversed(wrong)).replace("_", ".") + "|cannot redirect|retry_after"
    ):
        Scenario(**wrong)
