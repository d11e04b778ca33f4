"""Queues with expiring messages, by the second, so that a tick examines no other queue.  No I/O.

Rules
-----
* A queue is listed under at most one second: when its first message may expire.
* If that message leaves, the queue is examined too early; it is never examined too late.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from broker_stub.queueing.dispatch.ready_list import SLACK

if TYPE_CHECKING:
    from broker_stub.queueing.queue import Queue


class ExpirySchedule:
    """The expiry schedule of all queues of one member."""

    __slots__ = ("_at", "_queues", "_seconds")

    def __init__(self) -> None:
        self._at: dict[Queue, int] = {}
        self._queues: dict[int, set[Queue]] = {}
        self._seconds: list[int] = []
        """The keys of ``_queues`` as a heap, which may also contain stale ones."""

    def note(self, queue: Queue, expires_at: float) -> None:
        """Schedule a queue for the time, by the clock of the queues, at which a message expires."""
        second = int(expires_at)
        former = self._at.get(queue)
        if former is not None and former <= second:
            return
        self.discard(queue)
        self._at[queue] = second
        queues = self._queues.get(second)
        if queues is None:
            queues = self._queues[second] = set()
            heapq.heappush(self._seconds, second)
            if len(self._seconds) > 2 * len(self._queues) + SLACK:
                self._seconds = sorted(self._queues)
        queues.add(queue)

    def discard(self, queue: Queue) -> None:
        """Remove a queue from the schedule."""
        second = self._at.pop(queue, None)
        if second is not None:
            queues = self._queues[second]
            queues.discard(queue)
            if not queues:
                del self._queues[second]

    def due(self, now: float) -> list[Queue]:
        """Remove and return the queues in which a message may have expired."""
        due: list[Queue] = []
        while self._seconds and self._seconds[0] <= now:
            queues = self._queues.pop(heapq.heappop(self._seconds), set())
            due += queues
            for queue in queues:
                del self._at[queue]
        return due
