"""Warnings that calls wait for a primary, and a helper to wait for several calls.

The first warning comes after 5 s, the next ones every 30 s.  A connection has one timer at most, and none
while it has a session or nothing waits.  Calls have no timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from haclient.printable.log import get_logger

logger = get_logger("haclient")

# Seconds: longer than a successful failover, and sooner than users start to investigate.
_FIRST = 5.0
# Seconds: visible among other log lines, and two a minute at most.
_NEXT = 30.0


class WaitWarnings:
    """Logs warnings while calls of a connection wait for a primary.  Belongs to its event loop.

    :param name: name of the connection in log lines.
    :param waiting: describes the waiting calls and messages; empty if there are none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, waiting: Callable[[], str]) -> None:
        self._loop = loop
        self._name = name
        self._waiting = waiting
        self._timer: asyncio.TimerHandle | None = None
        # When the search for a primary began; ``None`` while there is a session.
        self._began: float | None = None
        self._not_before = 0.0

    def search_began(self) -> None:
        """Allow warnings from now on; calls made before count as waiting from now on."""
        self._began = self._not_before = self._loop.time()
        if self._waiting():
            self.call_waits()

    def call_waits(self) -> None:
        """Start the timer: a call or a message begins to wait."""
        if self._began is None or self._timer is not None:
            return
        self._timer = self._loop.call_at(max(self._loop.time() + _FIRST, self._not_before), self._warn)

    def search_ended(self) -> None:
        """Stop warning: there is a session, or the connection is closed."""
        self._began = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _warn(self) -> None:
        self._timer = None
        waiting = self._waiting()
        if not waiting or self._began is None:
            return
        now = self._loop.time()
        logger.warning("%s: no primary for %.0f s; %s", self._name, now - self._began, waiting)
        self._not_before = now + _NEXT
        self.call_waits()


async def in_parallel(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all calls, then raise the first error among them."""
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if error is not None:
            raise error
