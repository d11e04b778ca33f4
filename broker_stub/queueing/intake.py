"""Holds all producers up at once: for a reason that is not one queue's.

Rules
-----
* Full: no link gets new credit.  What was granted before may still arrive.
* Stopped: what arrives all the same is kept by its link, unsettled and in order, until that is over.
* What is never stored is not held up: temporary queues, and the broker's own nodes.
* A call that raises is logged: the others are not its link's, and none of them is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from haclient.printable.log import get_logger

logger = get_logger("broker_stub.queueing.intake")

_Call = Callable[[], object]


class Intake:
    """One for all queues of a broker; links wait for it as they do for a queue."""

    __slots__ = ("_at_restart", "_waiting", "full", "stopped")

    def __init__(self) -> None:
        self.full = False
        self.stopped = False
        self._waiting: dict[_Call, None] = {}
        self._at_restart: dict[_Call, None] = {}

    def set(self, *, full: bool, stopped: bool) -> None:
        """Change it, and call those who waited.

        :param stopped: it is full as well then.
        """
        self.full, self.stopped = full or stopped, stopped
        if not self.stopped:
            _call_all(self._at_restart)
        if not self.full:
            _call_all(self._waiting)

    def when_not_full(self, call: _Call) -> None:
        """Call once when credit may be given again."""
        self._waiting[call] = None

    def when_restarted(self, call: _Call) -> None:
        """Call once when what arrives may be stored again."""
        self._at_restart[call] = None

    def stop_waiting(self, call: _Call) -> None:
        """Do not call it any more."""
        self._waiting.pop(call, None)
        self._at_restart.pop(call, None)

    async def restarted(self) -> None:
        """Wait until what arrives may be stored."""
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
