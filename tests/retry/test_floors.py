"""Each drawn delay is uniform between the bounds that it states, as the analysis assumes.

scipy computes the p-value; the seeds are fixed, so no run falls below 0.001 by chance.
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
    """Return the positions of the drawn delays between their bounds, from 0 to 1."""
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
