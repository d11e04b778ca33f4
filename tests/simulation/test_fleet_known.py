"""If the lost primary announced its fleet, the last client is back at the limit, most after one attempt."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from haclient.retry.policy import Policy
from haclient.simulation.fleet import simulate
from haclient.simulation.scenario import Scenario

pytestmark = pytest.mark.slow

KINDS: dict[str, dict[str, Any]] = {
    "reset": {"when_full": "reset"},
    "silent": {},
    "dead host": {"dead_host": True},
}


def known(clients: int, **facts: Any) -> Scenario:
    return Scenario(clients=clients, retry_after=False, fleet_known=True, horizon=2000.0, **facts)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("clients", "outage"), [(300, 0.3), (300, 3.0), (700, 1.0)])
def test_the_last_client_is_back_at_the_limit(clients: int, outage: float, kind: str, members: int) -> None:
    """The median of five seeds, as in the grid."""
    storms = [
        simulate(known(clients, outage=outage, members=members, seed=seed, **KINDS[kind]), Policy())
        for seed in range(1, 6)
    ]
    assert median(storm.ratio for storm in storms) <= 1.05
    assert median(storm.attempts_per_client for storm in storms) <= 3.0
    assert all(storm.syns.most_of_client <= 2 and storm.syns.smallest_gap >= 0.4 - 1e-6 for storm in storms)


@pytest.mark.parametrize("members", [1, 3])
def test_a_long_outage_and_a_large_fleet(members: int) -> None:
    storm = simulate(known(2000, outage=30.0, members=members), Policy())
    assert storm.ratio <= 1.05
    assert storm.attempts_per_client <= 3.0


def test_a_small_fleet_does_as_if_it_were_not_known() -> None:
    scenario = known(100)
    ordinary = Scenario(clients=100, retry_after=False, horizon=2000.0)
    assert simulate(scenario, Policy()).back == simulate(ordinary, Policy()).back


def test_a_primary_that_says_when_to_come_announces_no_fleet() -> None:
    with pytest.raises(ValueError, match="fleet_known"):
        Scenario(fleet_known=True)
