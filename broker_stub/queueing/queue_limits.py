"""When a queue has room for more.  No I/O.

Rule: at its high-water mark, in messages or in bytes, a queue takes messages still, but senders
get no new credit until it has sunk below the low-water mark.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_stub.queueing.message import QueueLimits


class Room:
    """Whoever waits for one queue to sink."""

    __slots__ = ("_limits", "waiting")

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self.waiting: list[Callable[[], None]] = []

    def full(self, depth: int, size: int) -> bool:
        """Whether senders should get no new credit."""
        return depth >= self._limits.messages or size >= self._limits.size

    def sunk(self, depth: int, size: int) -> None:
        """The queue has so many messages and bytes now: call those who wait for that."""
        limits = self._limits
        if depth <= limits.messages * limits.resume and size <= limits.size * limits.resume:
            self.call()

    def call(self) -> None:
        """Call all who wait."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()
