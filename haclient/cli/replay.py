"""Replays storms of the analysis in the simulator, for its advice.

The clients are this package's, at a pair of which one member died.  A large storm is replayed with fewer
clients at a lower rate: N/rate, and with it the best possible time, stays what it was.
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
"""In a replay; it takes about half a second of processor time."""

_PATIENCE = 20.0  # times the best possible time, after which a replay ends
_LEAST = 600.0  # s, of the same

_STRATEGIES: dict[str, StrategyName] = {name: name for name in get_args(StrategyName)}


def replay(setting: Setting, /) -> Outcome | None:
    """Let the storm happen in virtual time; ``None`` if the strategy is not known."""
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
