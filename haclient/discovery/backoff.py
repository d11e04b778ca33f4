"""How long to wait between two rounds.

Rules
-----
1. The ceiling grows from failure to failure, ``backoff_base * backoff_factor**n``, up to
   ``backoff_max``.  The growth is the ``expo`` generator of the PyPI package ``backoff``.
2. Full jitter [1]: the delay is drawn evenly from 0 to the ceiling, *after* the ceiling was
   capped.  Clipping after the draw would put every long delay on the cap itself, and the
   clients of a reconnect storm would arrive together again.
3. A hint of the server wins over 1 and 2.  The wait is the hint plus a little jitter (0 to
   ``backoff_base``), for many clients may get the same hint.  It never exceeds ``max_hint``:
   a longer hint is cut to leave room for the jitter, so that rule 2 holds for it as well.
4. What is not a hint (negative, NaN, no number) is ignored: it comes from the network.
5. Only ``reset`` shrinks the ceiling; whoever calls it has seen the connection stay usable
   for ``stable_after``.  Hints count as failures, so a server that stops to send them does
   not meet clients that start again at the first ceiling.

[1] M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import backoff as backoff_package

from haclient.discovery.policy import Policy


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


def valid_hint(hint: object) -> float | None:
    """The hint as seconds, or ``None`` for what cannot be one."""
    if isinstance(hint, bool) or not isinstance(hint, (int, float)):
        return None
    return hint if hint >= 0 else None  # NaN compares false as well


class Backoff:
    """The delays of one client.

    :param rng: the random source, seeded per client.  ``backoff.full_jitter`` has the same
        formula but draws from the process-wide ``random``: forked workers would share its
        state and so their delays, and no simulation could be repeated.
    """

    def __init__(self, policy: Policy, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self.reset()

    @property
    def failures(self) -> int:
        """How many delays were asked for since the last reset."""
        return self._failures

    def reset(self) -> None:
        """The connection has proved stable: start again at the first ceiling."""
        self._failures = 0
        self._ceilings = _ceilings(self._policy)

    def next(self, hint: float | None = None) -> Delay:
        """The delay after one more failure."""
        self._failures += 1
        ceiling = next(self._ceilings)
        asked = valid_hint(hint)
        if asked is not None:
            return self._hinted(asked)
        return Delay(base=ceiling, delay=self._rng.uniform(0, ceiling))

    def _hinted(self, hint: float) -> Delay:
        spread = min(self._policy.backoff_base, self._policy.max_hint)
        floor = min(hint, self._policy.max_hint - spread)
        ceiling = min(floor + spread, self._policy.max_hint)  # the sum may round up
        return Delay(base=ceiling, delay=self._rng.uniform(floor, ceiling), hint=hint)


def _ceilings(policy: Policy) -> Generator[float, Any, None]:
    ceilings = backoff_package.expo(
        base=policy.backoff_factor, factor=policy.backoff_base, max_value=policy.backoff_max
    )
    next(ceilings)  # since 2.0 the package's generators begin with a yield of None, for send()
    return ceilings
