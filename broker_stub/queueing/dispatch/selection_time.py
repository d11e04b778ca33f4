"""How long consumers that select look at messages in one iteration of the event loop, at all queues together.

A selector is asked about each message, and both are a peer's: together they may take a thousand times what
each takes elsewhere.  What is left when the time is over is looked at in the next iteration, behind all that
waits there meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_MOST_SECONDS: Final = 0.05
"""A fortieth of the two seconds after which a supervisor gives a member up; and some thousand usual looks."""


class SelectionTime:
    """The time that is left.

    :param clock: seconds, only ever growing, also within an iteration.
    :ivar over: whether there is none left in this iteration.
    """

    __slots__ = ("_clock", "_spent", "over")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent = 0.0
        self.over = False

    def measure(self, began: float) -> None:
        """A look has ended that began at that time of ``now``."""
        if not self._spent:
            try:
                asyncio.get_running_loop().call_soon(self._renew)
            except RuntimeError:  # without a loop nobody waits
                return
        self._spent += self._clock() - began
        self.over = self._spent >= _MOST_SECONDS

    def now(self) -> float:
        """A time for ``measure``."""
        return self._clock()

    def _renew(self) -> None:
        self._spent, self.over = 0.0, False
