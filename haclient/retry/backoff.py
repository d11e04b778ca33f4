"""The wait between two rounds.

Rules
-----
1. Without ``retry_after`` the strategy chooses the delay (``strategies``).  Its ceiling grows with each
   failure, from ``backoff_base`` up to ``backoff_max``.
2. A server's ``retry_after`` overrides rule 1.  The wait is ``retry_after`` plus a little jitter (0 to
   ``backoff_base``), since many clients may get the same value.
3. All waits that servers asked for since the last reset never exceed ``max_retry_after`` in total.  The
   attempts after them count too (``charge``), as a server may ask for a wait of 0 again and again.
   A longer value is cut to the remaining time minus the jitter.  So clients with a cut value do not
   connect at the same instant.  If less time remains than the jitter, the client ignores ``retry_after``
   and uses its own backoff.
4. The client ignores a value that is no delay (negative, NaN, no number): a peer may send anything.
5. Only ``reset`` shrinks the ceiling and restores the full ``max_retry_after``; the caller has seen the
   connection stay usable for ``stable_after``.  Waits that servers asked for count as failures, so clients
   do not restart at the first ceiling when a server stops sending ``retry_after``.
6. ``FixedDelays`` of an application (for the drop-in) replace the strategy, and are used unchanged.  Rules 2
   to 5 still hold.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat

from haclient.retry.policy import Policy
from haclient.retry.strategies import STRATEGIES, Adaptive


def valid_retry_after(value: object) -> float | None:
    """Return the delay that a server asked for, in seconds; ``None`` if the value is no delay."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if value >= 0 else None  # NaN compares false as well


@dataclass(frozen=True, slots=True)
class Delay:
    """One wait, in seconds.

    :param base: the ceiling before jitter: the maximum of ``delay``.
    :param delay: the time to wait.
    :param retry_after: the server's uncut ``retry_after``, if it was used.
    :param floor: the minimum of ``delay``, which was drawn uniformly between ``floor`` and ``base``.  It is
        ``base`` if nothing was drawn; ``None`` if something other than the draw chose ``delay``.
    """

    base: float
    delay: float
    retry_after: float | None = None
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class FixedDelays:
    """Delays without jitter: one for each round after a loss; the last one repeats.

    The first connect begins its first round at once.  Within a round, the same delay separates a failed
    attempt from the next dial.

    :param delays: seconds; at least one value.
    :param rounds: number of rounds in an episode after which the search gives up.
    """

    delays: tuple[float, ...]
    rounds: float = math.inf


_NO_DELAYS = FixedDelays((0.0,))


class Backoff:
    """The delays of one client.

    :param rng: the random source, seeded per client.
    :param fixed: delays that replace the policy's.
    :ivar adaptive: whether these delays are used only after losses and for ``retry_after``.  Then the answers
        of members determine the delays between rounds (``discovery.polling``).
    :ivar spacing: seconds between a failed attempt and the next dial of its round; 0 without ``fixed``.
    :ivar rounds: rounds of one episode after which the search gives up.
    """

    __slots__ = (
        "_delays",
        "_failures",
        "_fixed",
        "_honored",
        "_policy",
        "adaptive",
        "rng",
        "rounds",
        "spacing",
    )

    def __init__(self, policy: Policy, rng: random.Random, fixed: FixedDelays | None = None) -> None:
        self._policy = policy
        self.rng = rng
        self.adaptive = fixed is None and policy.backoff_strategy == Adaptive.name
        self._fixed = fixed
        self._delays: Iterator[tuple[float, float]] | None = None
        self.rounds = (fixed or _NO_DELAYS).rounds
        self.spacing = (fixed or _NO_DELAYS).delays[0]
        self.reset()
        if fixed is not None:
            self._delays = self._begin_delays()
            next(self._delays)  # the first connect does not wait

    @property
    def failures(self) -> int:
        """Return the number of delays since the last reset."""
        return self._failures

    @property
    def honors_retry_after(self) -> bool:
        """Return whether a ``retry_after`` would still be used (rule 3)."""
        left = self._policy.max_retry_after - self._honored
        return left > 0 and left >= self._spread

    def reset(self) -> None:
        """Start again at the first ceiling: the connection has proved stable."""
        self._failures = 0
        self._honored = 0.0
        # Created at the first failure: most idle connections need none.
        self._delays = None

    def next(self, retry_after: float | None = None) -> Delay:
        """Return the delay after another failure."""
        self._failures += 1
        if self._delays is None:
            self._delays = self._begin_delays()
        ceiling, delay = next(self._delays)
        if self._fixed is not None:
            self.spacing = delay
        seconds = valid_retry_after(retry_after)
        if seconds is not None and self.honors_retry_after:
            return self._honor(seconds)
        return Delay(base=ceiling, delay=delay, floor=self._floor(ceiling))

    def _floor(self, ceiling: float) -> float:
        if self._fixed is not None:
            return ceiling
        policy = self._policy
        return STRATEGIES[policy.backoff_strategy].floor(ceiling, policy.backoff_base, policy.backoff_max)

    def charge(self, seconds: float) -> None:
        """Count the duration of a failed attempt that followed a ``retry_after`` (rule 3)."""
        self._honored += seconds

    def _begin_delays(self) -> Iterator[tuple[float, float]]:
        if self._fixed is not None:
            return _repeat_last(self._fixed.delays)
        policy = self._policy
        strategy = STRATEGIES[policy.backoff_strategy]
        return strategy.delays(policy.backoff_base, policy.backoff_factor, policy.backoff_max, self.rng)

    @property
    def _spread(self) -> float:
        return min(self._policy.backoff_base, self._policy.max_retry_after)

    def _honor(self, retry_after: float) -> Delay:
        left, spread = self._policy.max_retry_after - self._honored, self._spread
        floor = min(retry_after, left - spread)
        ceiling = min(floor + spread, left)  # the sum may round up
        delay = self.rng.uniform(floor, ceiling)
        self._honored += delay
        return Delay(base=ceiling, delay=delay, retry_after=retry_after, floor=floor)


def _repeat_last(delays: tuple[float, ...]) -> Iterator[tuple[float, float]]:
    for delay in chain(delays, repeat(delays[-1])):
        yield delay, delay
