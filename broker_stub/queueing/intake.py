"""Stops all producers at once, for a reason that concerns the whole member.

Rules
-----
* Full: no link gets new credit.  Messages within earlier credit may still arrive.
* Stopped: a link keeps messages that still arrive, unsettled and in order, until the intake restarts.
* Nodes that are never stored are not affected: temporary queues, and the broker's own nodes.
* A callback that raises is logged, and the callbacks of other links are still called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from haclient.printable.log import get_logger

logger = get_logger("broker_stub.queueing.intake")

_Call = Callable[[], object]


class Intake:
    """The intake of all queues of a broker; links wait for it as they wait for a queue."""

    __slots__ = ("_at_restart", "_waiting", "full", "stopped")

    def __init__(self) -> None:
        self.full = False
        self.stopped = False
        self._waiting: dict[_Call, None] = {}
        self._at_restart: dict[_Call, None] = {}

    def set(self, *, full: bool, stopped: bool) -> None:
        """Change the state, and call the callbacks that waited for it.

        :param stopped: stop storing messages; implies ``full``.
        """
        self.full, self.stopped = full or stopped, stopped
        if not self.stopped:
            _call_all(self._at_restart)
        if not self.full:
            _call_all(self._waiting)

    def when_not_full(self, call: _Call) -> None:
        """Call once when links may get credit again."""
        self._waiting[call] = None

    def when_restarted(self, call: _Call) -> None:
        """Call once when messages may be stored again."""
        self._at_restart[call] = None

    def stop_waiting(self, call: _Call) -> None:
        """Cancel a callback."""
        self._waiting.pop(call, None)
        self._at_restart.pop(call, None)

    async def restarted(self) -> None:
        """Wait until messages may be stored."""
        while self.stopped:
            restarted = asyncio.Event()
            self.when_restarted(restarted.set)
            try:
                await restarted.wait()
            finally:
                self.stop_waiting(restarted.set)


def _call_all(waiting: dict[_Call, None]) -> None:
    calls = tuple(waiting)
    waiting.clear()
    for call in calls:
        try:
            call()
        except Exception:
            logger.exception("a link that waited for the intake failed")
