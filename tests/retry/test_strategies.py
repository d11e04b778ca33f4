"""Backoff strategies: each draws as its formula says, and jitter does not pile up at the cap."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import parse_options
from haclient.retry.backoff import Backoff
from haclient.retry.policy import Policy
from haclient.retry.strategies import STRATEGIES

BASE, FACTOR, CAP = 0.1, 2.0, 10.0
DRAWS = 4000
# Kolmogorov's limit distribution: the statistic times sqrt(n) exceeds this once in 10,000 samples.
CRITICAL = 2.23


def drawn(name: str, seed: int = 1) -> Iterator[tuple[float, float]]:
    """Return the ceilings and delays of one client."""
    return STRATEGIES[name].delays(BASE, FACTOR, CAP, random.Random(seed))


def nth(name: str, number: int) -> list[tuple[float, float]]:
    """Return the n-th draw of many clients."""
    return [next(islice(drawn(name, seed), number, None)) for seed in range(DRAWS)]


def ks_statistic(sample: Sequence[float], cdf: Callable[[float], float]) -> float:
    """Return the largest distance between the distribution of the sample and ``cdf`` (Kolmogorov-Smirnov)."""
    size, ordered = len(sample), sorted(sample)
    below = max(cdf(value) - index / size for index, value in enumerate(ordered))
    above = max((index + 1) / size - cdf(value) for index, value in enumerate(ordered))
    return max(below, above)


def uniform(low: float, high: float) -> Callable[[float], float]:
    """Return the distribution function of the uniform distribution."""
    return lambda value: min(1.0, max(0.0, (value - low) / (high - low)))


def ceiling(number: int) -> float:
    """Return the ceiling of a strategy that grows by a factor."""
    return min(CAP, BASE * FACTOR**number)


@pytest.mark.parametrize("number", [0, 3, 6, 7, 12])
@pytest.mark.parametrize("name", ["full", "adaptive"])
def test_full_jitter_is_even_below_the_ceiling(name: str, number: int) -> None:
    """Below the cap, at the cap, and long after."""
    top = ceiling(number)
    assert {base for base, _ in nth(name, number)} == {top}
    sample = [delay for _, delay in nth(name, number)]
    assert ks_statistic(sample, uniform(0, top)) < CRITICAL / math.sqrt(DRAWS)


def test_the_statistic_sees_a_wrong_distribution() -> None:
    """Many libraries clip at the cap after the draw: the statistic is then far too large."""
    rng = random.Random(1)
    clipped = [min(CAP, rng.uniform(0, 2 * CAP)) for _ in range(DRAWS)]
    assert ks_statistic(clipped, uniform(0, CAP)) > 10 * CRITICAL / math.sqrt(DRAWS)


@pytest.mark.parametrize(("name", "share"), [("full", 0.001), ("adaptive", 0.001)])
def test_no_jittered_strategy_piles_up_at_the_cap(name: str, share: float) -> None:
    """With a uniform draw, a thousandth of the delays lies within a thousandth of the cap."""
    size = 200_000
    close = sum(delay >= 0.999 * CAP for _, delay in islice(drawn(name), size))
    bound = share * size
    assert close <= bound + 4 * math.sqrt(bound)


NUMBERS = st.floats(0.001, 100)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(STRATEGIES)),
    base=NUMBERS,
    factor=st.floats(1, 10),
    cap=NUMBERS,
    seed=st.integers(0, 99),
)
def test_no_delay_is_above_its_ceiling_nor_that_above_the_cap(
    name: str, base: float, factor: float, cap: float, seed: int
) -> None:
    """For any numbers, even a base above the cap; the first ceiling is the base, up to the cap."""
    delays = list(islice(STRATEGIES[name].delays(base, factor, cap, random.Random(seed)), 30))
    assert all(0 <= delay <= top <= cap for top, delay in delays)
    assert delays[0][0] == min(base, cap)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_strategy_is_chosen_by_its_name(name: str) -> None:
    """The URL names it, and the policy and the backoff use it."""
    policy = parse_options([("backoff_strategy", name)]).policy()
    backoff = Backoff(policy, random.Random(5))
    expected = islice(drawn(name, 5), 10)
    assert [(each.base, each.delay) for each in (backoff.next() for _ in range(10))] == list(expected)


def test_an_unknown_strategy_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ClusterURLError, match="adaptive, full"):
        parse_options([("backoff_strategy", "fibonacci")])


@pytest.mark.parametrize("name", ["equal", "decorrelated", "exponential", "constant"])
def test_a_strategy_of_earlier_versions_is_an_error_that_says_what_to_use(name: str) -> None:
    with pytest.raises(ClusterURLError, match=f"'{name}' was removed: use 'full'"):
        parse_options([("backoff_strategy", name)])


def test_jitter_is_the_default() -> None:
    """Without jitter, all clients of a primary would reconnect together."""
    assert Policy().backoff_strategy == "adaptive"
