"""Every delay that is drawn lies evenly between the bounds that it says: the analysis judges it by them.

scipy is the judge; the seeds are fixed, so a p of 0.001 is never met by chance.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from scipy.stats import kstest

from haclient.retry.backoff import Backoff, Delay
from haclient.retry.policy import Policy
from haclient.retry.strategies import StrategyName


def places(delays: Iterable[Delay]) -> list[float]:
    """Where those that were drawn lie between their bounds."""
    drawn = [each for each in delays if each.floor is not None and each.floor < each.base]
    return [(each.delay - float(each.floor or 0)) / (each.base - float(each.floor or 0)) for each in drawn]


@pytest.mark.parametrize("strategy", ["full", "adaptive"])
def test_a_jittered_delay_lies_evenly_between_its_bounds(strategy: StrategyName) -> None:
    made = [
        backoff.next()
        for seed in range(300)
        for backoff in [Backoff(Policy(backoff_strategy=strategy), random.Random(seed))]
        for _ in range(10)
    ]
    found = places(made)
    assert len(found) == 3000
    assert kstest(found, "uniform").pvalue > 0.001
