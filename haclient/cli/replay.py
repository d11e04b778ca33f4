"""Replay storms of the analysis in the simulator, for its advice.

The simulated clients are this package's, with a pair of brokers of which one died.  A large storm is replayed
with fewer clients at a proportionally lower rate.  So N/rate, and the best possible time, stay the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from haclient.analysis.advice import Outcome, Setting
from haclient.retry.policy import Policy
from haclient.retry.strategies import StrategyName
from haclient.simulation.fleet import simulate
from haclient.simulation.scenario import Scenario

CLIENTS = 1000
"""Most clients in a replay, which then takes about half a second of processor time."""

_PATIENCE = 20.0  # length of a replay, in multiples of the best possible time
_LEAST = 600.0  # s; shortest limit of a replay

_STRATEGIES: dict[str, StrategyName] = {name: name for name in get_args(StrategyName)}


def replay(setting: Setting, /) -> Outcome | None:
    """Simulate the storm in virtual time; return ``None`` if the strategy is unknown."""
    name = setting.strategy or Policy().backoff_strategy
    if name not in _STRATEGIES:
        return None
    policy = replace(Policy(), backoff_strategy=_STRATEGIES[name], deadline=setting.deadline)
    if setting.backoff_max is not None:
        policy = replace(policy, backoff_max=setting.backoff_max)
    scenario = _scenario(setting)
    result = simulate(scenario, policy)
    attempts = len(result.attempts) + result.elsewhere + result.earlier
    return Outcome(
        last=setting.storm.outage + result.last,
        attempts=attempts / scenario.clients,
        gave_up=result.gave_up,
    )


def _scenario(setting: Setting) -> Scenario:
    storm = setting.storm
    part = min(1.0, CLIENTS / storm.clients)
    usual = Scenario()
    return Scenario(
        clients=min(CLIENTS, storm.clients),
        setup_rate=part * storm.rate,
        accept_rate=None if setting.accept_rate is None else part * setting.accept_rate,
        retry_after=setting.retry_after,
        outage=storm.outage,
        backlog=max(1, round(part * usual.backlog)),
        members=2,
        horizon=max(_LEAST, _PATIENCE * storm.clients / storm.rate),
    )
