"""How long to wait between two rounds.

Rules
-----
1. Without a hint the strategy decides (``strategies``); its ceiling grows from failure to failure,
   from ``backoff_base`` up to ``backoff_max``.
2. A hint of the server wins over 1.  The wait is the hint plus a little jitter (0 to
   ``backoff_base``), for many clients may get the same hint.
3. All hinted waits since the last reset together never exceed ``max_hint``: a hint that is too long
   is cut to what is left, with room for its jitter, so that the cut ones do not come together.  When
   less is left than the jitter takes, hints are not obeyed any more: a server that always says
   "later" gets the client's own backoff.
4. What is not a hint (negative, NaN, no number) is ignored: it comes from the network.
5. Only ``reset`` shrinks the ceiling and gives the hints their room back; whoever calls it has seen
   the connection stay usable for ``stable_after``.  Hints count as failures, so a server that stops
   to send them does not meet clients that start again at the first ceiling.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from haclient.discovery.evidence import valid_hint
from haclient.retry.policy import Policy
from haclient.retry.strategies import STRATEGIES


@dataclass(frozen=True, slots=True)
class Delay:
    """One wait, in seconds.

    :param base: the ceiling before jitter: the longest that ``delay`` could have been.
    :param delay: what to wait.
    :param hint: what the server asked for, when that decided; uncut.
    """

    base: float
    delay: float
    hint: float | None = None


class Backoff:
    """The delays of one client.

    :param rng: the random source, seeded per client.
    """

    __slots__ = ("_delays", "_failures", "_hinted", "_policy", "_rng")

    def __init__(self, policy: Policy, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self.reset()

    @property
    def failures(self) -> int:
        """How many delays were asked for since the last reset."""
        return self._failures

    @property
    def obeys_hints(self) -> bool:
        """Whether a hint would still decide (rule 3)."""
        left = self._policy.max_hint - self._hinted
        return left > 0 and left >= self._spread

    def reset(self) -> None:
        """The connection has proved stable: start again at the first ceiling."""
        policy = self._policy
        self._failures = 0
        self._hinted = 0.0
        self._delays = STRATEGIES[policy.backoff_strategy].delays(
            policy.backoff_base, policy.backoff_factor, policy.backoff_max, self._rng
        )

    def next(self, hint: float | None = None) -> Delay:
        """The delay after one more failure."""
        self._failures += 1
        ceiling, delay = next(self._delays)
        asked = valid_hint(hint)
        if asked is not None and self.obeys_hints:
            return self._obey(asked)
        return Delay(base=ceiling, delay=delay)

    @property
    def _spread(self) -> float:
        return min(self._policy.backoff_base, self._policy.max_hint)

    def _obey(self, hint: float) -> Delay:
        left, spread = self._policy.max_hint - self._hinted, self._spread
        floor = min(hint, left - spread)
        ceiling = min(floor + spread, left)  # the sum may round up
        delay = self._rng.uniform(floor, ceiling)
        self._hinted += delay
        return Delay(base=ceiling, delay=delay, hint=hint)
