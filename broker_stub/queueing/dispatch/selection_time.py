"""Limits the time for selectors in one iteration of the event loop, over all queues.

Peers choose both the selectors and the messages.  Together they may need a thousand times the usual time.
When the limit is reached, the remaining messages wait for the next iteration, behind all other work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_MAX_SECONDS: Final = 0.05
"""A fortieth of the two seconds after which a supervisor gives a member up; some thousand messages."""


class SelectionTime:
    """The time that selectors have left in this iteration of the event loop.

    :param clock: monotonic seconds, which also advance within an iteration.
    :ivar over: True if no time is left in this iteration.
    """

    __slots__ = ("_clock", "_spent", "over")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent = 0.0
        self.over = False

    def measure(self, began: float) -> None:
        """Count the time since ``began``, a result of ``now``, as used."""
        if not self._spent:
            try:
                asyncio.get_running_loop().call_soon(self._renew)
            except RuntimeError:  # no event loop, so nothing to protect
                return
        self._spent += self._clock() - began
        self.over = self._spent >= _MAX_SECONDS

    def now(self) -> float:
        """Return a time for ``measure``."""
        return self._clock()

    def _renew(self) -> None:
        self._spent, self.over = 0.0, False
