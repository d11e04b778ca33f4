"""A storm ends as designed: the figures of the issue and the design, with the real client code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.grid.preset_clients import simulate
from benchmarks.grid.presets import PRESETS, Preset
from haclient.retry.policy import Policy
from haclient.simulation.scenario import Scenario

STORM = Scenario(clients=2000, setup_rate=200, outage=3.0, backlog=128, retry_after=True)
ORDINARY = replace(STORM, retry_after=False, when_full="reset")
FULL = Policy(backoff_strategy="full")
SMALL = Scenario(clients=200, setup_rate=100, outage=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_with_retry_after_the_last_client_is_back_at_the_limit(seed: int) -> None:
    result = simulate(replace(STORM, seed=seed), Policy())
    assert result.not_back == 0
    assert result.ratio <= 1.10
    assert result.attempts_per_client < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_without_retry_after_full_jitter_ends_soon_after_it(seed: int) -> None:
    result = simulate(replace(ORDINARY, seed=seed), FULL)
    assert result.not_back == 0
    assert result.ratio <= 1.7
    assert result.attempts_per_client < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_full_jitter_needs_fewer_attempts_than_any_preset_that_is_as_fast(seed: int) -> None:
    scenario = replace(ORDINARY, seed=seed)
    ours = simulate(scenario, FULL)
    others = [simulate(scenario, preset) for preset in PRESETS.values()]
    as_fast = [other for other in others if other.last <= ours.last]
    assert as_fast
    assert all(ours.attempts_per_client < other.attempts_per_client for other in as_fast)


@pytest.mark.slow
@pytest.mark.timeout(600)  # 15 s on a free processor
def test_ten_times_the_clients_and_the_rate_hold_the_same_ratios() -> None:
    """``make simulate-million`` runs the million; its N/mu of 500 s needs a longer ``max_retry_after``."""
    scenario = replace(STORM, clients=20_000, setup_rate=2000)
    deferred = simulate(scenario, Policy())
    assert deferred.ratio <= 1.10
    assert deferred.attempts_per_client < 2.0
    assert simulate(replace(scenario, retry_after=False, when_full="reset"), Policy()).ratio <= 1.7


@pytest.mark.slow
def test_a_slot_beyond_max_retry_after_is_asked_for_again_and_again() -> None:
    scenario = replace(STORM, clients=1000, setup_rate=10)
    short = simulate(scenario, Policy(max_retry_after=20.0))
    long = simulate(scenario, Policy(max_retry_after=120.0))
    assert long.attempts_per_client < 2.0 < short.attempts_per_client
    assert short.ratio <= 1.2


@pytest.mark.parametrize("standby", ["outage", "warm"])
def test_parked_clients_come_back_at_the_limit_without_an_attempt(standby: str) -> None:
    scenario = replace(STORM, members=2, parking=True)
    result = simulate(scenario, Policy(standby="warm" if standby == "warm" else "outage"))
    assert result.not_back == 0
    assert result.parked == scenario.clients
    assert result.attempts_per_client == 0
    assert result.ratio <= 1.05


@pytest.mark.slow
def test_clients_parked_at_a_member_that_is_not_promoted_reach_the_primary_by_its_redirect() -> None:
    scenario = replace(STORM, members=3, redirecting=1, parking=True)
    result = simulate(scenario, Policy(standby="warm"))
    assert result.not_back == 0
    assert 0.4 <= len(result.attempts) / scenario.clients <= 1.1
    assert result.ratio <= 1.10


@pytest.mark.slow
def test_a_primary_parks_newcomers_whose_slot_is_later_so_that_one_attempt_is_enough() -> None:
    result = simulate(replace(STORM, parking=True), Policy(standby="outage"))
    assert result.attempts_per_client == 1
    assert result.deferred == 0
    assert result.ratio <= 1.05


def test_parked_clients_look_around_again_after_park_timeout() -> None:
    scenario = replace(STORM, clients=400, setup_rate=20, members=2, parking=True)
    result = simulate(scenario, Policy(park_timeout=5.0))
    assert result.not_back == 0
    assert result.attempts_per_client > 0


def test_redirecting_members_bring_clients_to_the_primary() -> None:
    scenario = replace(STORM, clients=600, setup_rate=60, members=4, redirecting=2)
    result = simulate(scenario, Policy(standby="none"))
    assert result.not_back == 0
    assert result.ratio <= 1.10
    assert result.elsewhere > 0


def test_clients_whose_syn_is_lost_try_again_by_tcp_or_by_themselves() -> None:
    scenario = replace(ORDINARY, clients=1000, when_full="silent")
    ours, proton = simulate(scenario, Policy()), simulate(scenario, PRESETS["proton"])
    full = simulate(scenario, FULL)
    assert ours.not_back == proton.not_back == full.not_back == 0
    for result in (ours, proton, full):
        assert result.refused == len(result.attempts) - len(result.back)  # each SYN is an attempt
    assert full.dials < len(full.attempts)
    # The client closes two SYNs of three before the kernel repeats them, and the third after three repeats.
    assert 0.75 < ours.dials / len(ours.attempts) < 1


@pytest.mark.slow
def test_a_primary_that_works_for_clients_that_gave_up_reaches_the_others_in_the_end() -> None:
    """The last would wait 30 s in the backlog, and an attempt has 10 s at first: 40 of 60 were never back."""
    scenario = replace(SMALL, clients=60, setup_rate=2, backlog=1000, retry_after=False, horizon=300.0)
    result = simulate(scenario, Policy())
    assert result.not_back == 0
    assert result.ratio <= 3.0


@pytest.mark.slow
def test_the_work_of_refusals_makes_the_storm_longer() -> None:
    costs = [simulate(replace(STORM, refusal_cost=cost), Policy()).ratio for cost in (0.0, 0.2, 1.0)]
    assert costs == sorted(costs)
    assert costs[1] == pytest.approx(1.2, abs=0.05)


@pytest.mark.parametrize(
    "client", [Policy(), *PRESETS.values()], ids=lambda client: getattr(client, "name", "full")
)
def test_every_client_is_back_once_and_the_primary_never_exceeds_its_rate(client: Policy | Preset) -> None:
    scenario = replace(SMALL, retry_after=False, when_full="reset")
    result = simulate(scenario, client)
    assert len(result.back) == scenario.clients
    assert result.back[0] >= 0
    gaps = [later - earlier for earlier, later in zip(result.back, result.back[1:], strict=False)]
    assert min(gaps) >= 1 / scenario.setup_rate - 1e-9
    assert result.refused == len(result.attempts) - scenario.clients


@pytest.mark.parametrize("client", [Policy(), PRESETS["kafka"]], ids=["ours", "kafka"])
def test_the_same_seed_gives_the_same_storm(client: Policy | Preset) -> None:
    assert simulate(SMALL, client) == simulate(SMALL, client)
    assert simulate(SMALL, client).attempts != simulate(replace(SMALL, seed=2), client).attempts


def test_a_horizon_ends_the_storm_and_leaves_clients_disconnected() -> None:
    result = simulate(replace(SMALL, horizon=0.5), Policy())
    assert 0 < result.not_back < SMALL.clients
    assert result.figures()["last"] is None


def test_clients_with_a_deadline_give_up() -> None:
    result = simulate(replace(SMALL, outage=5.0), Policy(deadline=2.0))
    assert result.gave_up == result.not_back == SMALL.clients


def test_progress_is_reported() -> None:
    told: list[tuple[int, int]] = []
    simulate(SMALL, Policy(), progress=lambda back, clients: told.append((back, clients)))
    assert told == sorted(told)
    assert len(told) > 10
    assert told[-1][1] == SMALL.clients
