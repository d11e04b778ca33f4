"""How long to wait between two rounds.

Rules
-----
1. Without ``retry_after`` the strategy decides (``strategies``); its ceiling grows from failure to
   failure, from ``backoff_base`` up to ``backoff_max``.
2. The ``retry_after`` of a server wins over 1.  The wait is ``retry_after`` plus a little jitter (0 to
   ``backoff_base``), for many clients may get the same value.
3. All waits that servers asked for since the last reset together never exceed ``max_retry_after``.  The
   attempts after them count too (``charge``): a server may ask for no wait at all, again and again.  A
   value that is too long is cut to what is left, minus the jitter, so that clients whose value was cut do
   not connect at the same instant.  When less is left than the jitter takes, the client ignores
   ``retry_after``: a server that always says "later" gets the client's own backoff.
4. The client ignores a value that is no delay (negative, NaN, no number): it was sent by a peer.
5. Only ``reset`` shrinks the ceiling and restores the whole ``max_retry_after``; the caller has seen the
   connection stay usable for ``stable_after``.  Waits that servers asked for count as failures: when a
   server stops sending ``retry_after``, its clients do not start again at the first ceiling.
6. ``FixedDelays`` replace the strategy: an application wrote them down for the drop-in, and they are taken
   as they are.  Rules 2 to 5 hold beside them.
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
    """The delay that a server asked for, in seconds; ``None`` for anything that is not a delay."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if value >= 0 else None  # NaN compares false as well


@dataclass(frozen=True, slots=True)
class Delay:
    """One wait, in seconds.

    :param base: the ceiling before jitter: the longest that ``delay`` could have been.
    :param delay: what to wait.
    :param retry_after: the delay that the server asked for, when that decided; uncut.
    :param floor: the least that it could have been: it was drawn evenly from there to ``base``.  ``base``
        itself where nothing was drawn; ``None`` where something else than the draw decided.
    """

    base: float
    delay: float
    retry_after: float | None = None
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class FixedDelays:
    """Delays without jitter: the first for the first round after a loss, the next for the round after it.

    The first connect begins its first round at once.  Within a round the same delay keeps an attempt that
    failed and the next dial apart.  The last one repeats.

    :param delays: seconds, at least one.
    :param rounds: after so many rounds of one episode the search gives up.
    """

    delays: tuple[float, ...]
    rounds: float = math.inf


_NO_DELAYS = FixedDelays((0.0,))


class Backoff:
    """The delays of one client.

    :param rng: the random source, seeded per client.
    :param fixed: delays to take instead of those that ``policy`` has.
    :ivar adaptive: whether only losses and ``retry_after`` wait for these delays: what members answered
        decides about the delays between rounds (``discovery.polling``).
    :ivar spacing: seconds between an attempt that failed and the next dial of its round; 0 without ``fixed``.
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
        """How many delays ``next`` returned since the last reset."""
        return self._failures

    @property
    def honors_retry_after(self) -> bool:
        """Whether ``retry_after`` would still decide (rule 3)."""
        left = self._policy.max_retry_after - self._honored
        return left > 0 and left >= self._spread

    def reset(self) -> None:
        """The connection has proved stable: start again at the first ceiling."""
        self._failures = 0
        self._honored = 0.0
        # Made at the first failure: few of many idle connections need one.
        self._delays = None

    def next(self, retry_after: float | None = None) -> Delay:
        """The delay after one more failure."""
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
        """An attempt at a time that a server asked for took so long, and failed (rule 3)."""
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
