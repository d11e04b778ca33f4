"""A million clients: ``make simulate-million``.  A run takes minutes and 3 GB, and prints the figures."""

from __future__ import annotations

import json

import pytest

from haclient.retry.policy import Policy
from haclient.simulation.fleet import simulate
from haclient.simulation.result import Result
from haclient.simulation.scenario import Scenario

pytestmark = pytest.mark.soak

STORM = Scenario(clients=1_000_000, setup_rate=2000, outage=3.0, backlog=128)
# N/mu is 500 s: a ``retry_after`` must be allowed to be that long, and so must parking.
PATIENT = Policy(max_retry_after=900.0, park_timeout=900.0)


def shown(name: str, scenario: Scenario, policy: Policy) -> Result:
    result = simulate(scenario, policy, name=name)
    print(json.dumps(result.figures()))  # noqa: T201 - the output of the target
    return result


def test_a_million_with_retry_after_end_at_the_limit() -> None:
    result = shown("retry_after", STORM, PATIENT)
    assert result.not_back == 0
    assert result.ratio <= 1.10
    assert result.attempts_per_client < 2.0


@pytest.mark.parametrize("standby", ["outage", "warm"])
def test_a_million_parked_end_at_the_limit(standby: str) -> None:
    scenario = Scenario(clients=1_000_000, setup_rate=2000, members=2, parking=True)
    policy = Policy(
        max_retry_after=900.0, park_timeout=900.0, standby="warm" if standby == "warm" else "outage"
    )
    result = shown(standby, scenario, policy)
    assert result.not_back == 0
    assert result.ratio <= 1.05


def test_a_million_without_retry_after_need_a_ceiling_that_fits_them() -> None:
    scenario = Scenario(clients=1_000_000, setup_rate=2000, retry_after=False)
    result = shown("no retry-after", scenario, Policy(backoff_max=250.0))
    assert result.not_back == 0
    assert result.ratio <= 1.7
