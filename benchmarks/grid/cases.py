"""The clients of a comparison, by name: this package's own and the presets.

A preset meets an ordinary broker, because it ignores ``retry-after``; this package's clients meet the
broker of the scenario.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from benchmarks.grid.preset_clients import simulate
from benchmarks.grid.presets import PRESETS, Preset
from haclient.retry.policy import Policy
from haclient.retry.strategies import STRATEGIES, StrategyName
from haclient.simulation.fleet import Progress
from haclient.simulation.haclient_clients import name_of
from haclient.simulation.result import Result
from haclient.simulation.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a comparison."""

    name: str
    scenario: Scenario
    client: Policy | Preset

    def run(self, progress: Progress | None = None) -> Result:
        """Simulate it."""
        return simulate(self.scenario, self.client, name=self.name, progress=progress)


def strategy(name: str, scenario: Scenario, policy: Policy) -> Case:
    """This package's clients with a backoff strategy.

    :raises KeyError: when there is no such strategy.
    """
    known: Mapping[str, StrategyName] = {each: each for each in get_args(StrategyName)}
    chosen = replace(policy, backoff_strategy=known[name])
    return Case(name_of(chosen, scenario), scenario, chosen)


def preset(name: str, scenario: Scenario) -> Case:
    """Return the case of another client with an ordinary broker.

    :raises KeyError: if there is no such preset.
    """
    return Case(name, replace(scenario, retry_after=False, parking=False), PRESETS[name])


def comparison(scenario: Scenario, policy: Policy) -> Sequence[Case]:
    """Return the default cases: ``retry-after``, then an ordinary broker, then the presets."""
    deferred = replace(scenario, retry_after=True, parking=False)
    ordinary = replace(scenario, retry_after=False, parking=False)
    return (
        strategy(policy.backoff_strategy, deferred, policy),
        *(strategy(name, ordinary, policy) for name in STRATEGIES),
        *(preset(name, scenario) for name in PRESETS),
    )
