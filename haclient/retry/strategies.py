"""Strategies that draw the delay after the n-th failure, by name: one class each, to compare them.

Rules:

- A strategy yields, without end, the ceiling before jitter and the delay, both in seconds.
- Jitter is drawn *after* the ceiling was capped.  Clipping after the draw would put every long delay
  on the cap itself, and the clients of a connection flood would arrive together again.
- The first delay is the one for ``n = 0``; the caller's ``rng`` is the only random source.

Where the PyPI package ``backoff`` has the right generator it is used: ``expo`` and ``constant``.  Its
``full_jitter`` has the right formula but draws from the process-wide ``random``: forked workers would
share its state and so their delays, and no simulation could be repeated.  (Since 2.0 its generators
begin with a ``yield`` of ``None``, for ``send``.)

Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015, called [1] below.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol

StrategyName = Literal["adaptive", "full", "equal", "decorrelated", "exponential", "constant"]

# [1] multiplies by 3.  The mean of the next delay is then 1.5 times this one, and half the base.
_DECORRELATED_GROWTH = 3


class Strategy(Protocol):
    """The growth and the spread of delays."""

    name: ClassVar[str]

    def delays(
        self, base: float, factor: float, cap: float, rng: random.Random
    ) -> Iterator[tuple[float, float]]:
        """Yield ceilings and delays, without end.

        :param base: the first ceiling, in seconds; ``cap``: the highest, in seconds.
        :param factor: growth of the ceiling from one failure to the next.
        """

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """Return the shortest delay under a ceiling, in seconds; the ceiling itself without jitter."""


class Adaptive:
    """The default: the answers of members determine the delays between rounds (``discovery.polling``).

    Other waits, such as after the loss of a connection that was not stable, have full jitter.
    """

    name: ClassVar[str] = "adaptive"

    def delays(
        self, base: float, factor: float, cap: float, rng: random.Random
    ) -> Iterator[tuple[float, float]]:
        """See ``Strategy``."""
        return FullJitter().delays(base, factor, cap, rng)

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """See ``Strategy``."""
        return 0.0


class FullJitter:
    """``uniform(0, min(cap, base * factor**n))``: "full jitter" in [1].

    Of the jittered ones it has the least work in total: half of the time of ``exponential``.
    """

    name: ClassVar[str] = "full"

    def delays(
        self, base: float, factor: float, cap: float, rng: random.Random
    ) -> Iterator[tuple[float, float]]:
        """See ``Strategy``."""
        for ceiling in _ceilings(base, factor, cap):
            yield ceiling, rng.uniform(0, ceiling)

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """See ``Strategy``."""
        return 0.0


class EqualJitter:
    """``c/2 + uniform(0, c/2)`` with ``c = min(cap, base * factor**n)``: "equal jitter" in [1].

    Never less than half of the ceiling is waited, so it spreads over half the time only.
    """

    name: ClassVar[str] = "equal"

    def delays(
        self, base: float, factor: float, cap: float, rng: random.Random
    ) -> Iterator[tuple[float, float]]:
        """See ``Strategy``."""
        for ceiling in _ceilings(base, factor, cap):
            yield ceiling, rng.uniform(ceiling / 2, ceiling)

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """See ``Strategy``."""
        return ceiling / 2


class Decorrelated:
    """``uniform(base, min(cap, 3 * previous delay))``, the first from ``previous = base``.

    "Decorrelated jitter" in [1], which writes ``min(cap, uniform(base, 3 * previous))``: clipped after
    the draw, so that in the long run nearly a third of the delays are the cap.  Here the cap goes
    inside.  The growth is the 3 of [1]; ``factor`` is not used.
    """

    name: ClassVar[str] = "decorrelated"

    def delays(
        self,
        base: float,
        factor: float,
        cap: float,
        rng: random.Random,
    ) -> Iterator[tuple[float, float]]:
        """See ``Strategy``."""
        lowest = delay = min(base, cap)
        while True:
            ceiling = min(cap, _DECORRELATED_GROWTH * delay)
            delay = rng.uniform(lowest, ceiling)
            yield ceiling, delay

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """See ``Strategy``."""
        return min(base, cap)


class Exponential:
    """``min(cap, base * factor**n)`` without jitter: clients that fail together dial together each time.

    For comparison, and for a single client that must dial at known times.
    """

    name: ClassVar[str] = "exponential"

    def delays(
        self,
        base: float,
        factor: float,
        cap: float,
        rng: random.Random,
    ) -> Iterator[tuple[float, float]]:
        """See ``Strategy``."""
        for ceiling in _ceilings(base, factor, cap):
            yield ceiling, ceiling

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """See ``Strategy``."""
        return ceiling


class Constant:
    """``min(cap, base)`` after every failure, without jitter: polling.  For comparison."""

    name: ClassVar[str] = "constant"

    def delays(
        self,
        base: float,
        factor: float,
        cap: float,
        rng: random.Random,
    ) -> Iterator[tuple[float, float]]:
        """See ``Strategy``."""
        import backoff as backoff_package  # noqa: PLC0415 - loaded with the first delay: few connections need one

        intervals = backoff_package.constant(interval=min(base, cap))  # type: ignore[arg-type]  # a float is taken
        next(intervals)
        for interval in intervals:
            yield interval, interval

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """See ``Strategy``."""
        return ceiling


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        each.name: each
        for each in (Adaptive(), FullJitter(), EqualJitter(), Decorrelated(), Exponential(), Constant())
    }
)


def _ceilings(base: float, factor: float, cap: float) -> Iterator[float]:
    import backoff as backoff_package  # noqa: PLC0415 - loaded with the first delay: few connections need one

    ceilings = backoff_package.expo(base=factor, factor=base, max_value=cap)
    next(ceilings)
    return ceilings
