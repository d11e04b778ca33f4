"""Strategies that draw the delay after the n-th failure, by name.

Rules:

- A strategy yields, without end, the ceiling before jitter and the delay, both in seconds.
- Jitter is drawn *after* the ceiling was capped.  Clipping after the draw would put every long delay
  on the cap itself, and the clients of a connection flood would arrive together again.
- The first delay is that of ``n = 0``; nothing but the caller's ``rng`` is drawn from.

The PyPI package ``backoff`` has the right generator of ceilings, ``expo``.  Its
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

StrategyName = Literal["adaptive", "full"]
REMOVED = dict.fromkeys(("equal", "decorrelated", "exponential", "constant"), "full")
"""Strategies of earlier versions, and what to use instead; their telemetry still has them."""


class Strategy(Protocol):
    """How delays grow and spread."""

    name: ClassVar[str]

    def delays(
        self, base: float, factor: float, cap: float, rng: random.Random
    ) -> Iterator[tuple[float, float]]:
        """Ceilings and delays, without end.

        :param base: the first ceiling, in seconds; ``cap``: the highest, in seconds.
        :param factor: growth of the ceiling from one failure to the next.
        """

    def floor(self, ceiling: float, base: float, cap: float) -> float:
        """The least that a delay under that ceiling can be, in seconds; the ceiling itself without jitter."""


class Adaptive:
    """What members answered decides about the delays between rounds (``discovery.polling``).  The default.

    Losses of connections that were not stable, and everything else that waits, have full jitter.
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
    """``uniform(0, min(cap, base * factor**n))``: "full jitter" in [1]."""

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


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {each.name: each for each in (Adaptive(), FullJitter())}
)


def _ceilings(base: float, factor: float, cap: float) -> Iterator[float]:
    import backoff as backoff_package  # noqa: PLC0415 - loaded with the first delay: few connections need one

    ceilings = backoff_package.expo(base=factor, factor=base, max_value=cap)
    next(ceilings)
    return ceilings
