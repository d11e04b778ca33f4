"""The Kolmogorov-Smirnov test: the statistic of a sample, and its limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def distance(sample: Sequence[float], distribution: Callable[[float], float]) -> float:
    """Return the largest gap between the sample's distribution function and the given one."""
    ordered = sorted(sample)
    count = len(ordered)
    gaps = (
        max(distribution(value) - place / count, (place + 1) / count - distribution(value))
        for place, value in enumerate(ordered)
    )
    return max(gaps)


def limit(count: int) -> float:
    """Return the limit that a sample of the right distribution exceeds once in a thousand times."""
    return math.sqrt(-math.log(0.001 / 2) / 2) / math.sqrt(count)


def uniform(low: float, high: float) -> Callable[[float], float]:
    """Return the distribution function of the uniform distribution."""
    return lambda value: min(1.0, max(0.0, (value - low) / (high - low)))
