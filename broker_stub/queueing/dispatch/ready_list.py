"""The available messages of one queue, in order.  No I/O.

Theory of operation
-------------------
``_fresh`` holds what was never acquired, in order; ``_returned`` (a heap) what was requeued.  The
first message is the smaller of their heads.  ``deferred`` holds what every consumer with capacity has
refused, until another consumer is ready.  What leaves the queue in another way stays
here until ``take`` meets it, or ``compact`` removes it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from broker_stub.queueing.message import Consumer, Message, MessageState

SLACK = 1000
"""Entries that may be kept although their messages have left, so that they are swept up together."""


class ReadyList:
    """The available messages of one queue, by number.

    :param drop_expired: drops an expired message; whether it did.
    :ivar append: takes a new message, the last of all.
    """

    __slots__ = ("_drop_expired", "_fresh", "_returned", "append", "deferred", "on_returned")

    def __init__(self, drop_expired: Callable[[Message], bool]) -> None:
        self.deferred: list[Message] = []
        self._drop_expired = drop_expired
        self._fresh: deque[Message] = deque()
        self._returned: list[Message] = []
        self.on_returned: Callable[[Message], None] | None = None
        """Called for a message that is not, or no longer, the last of all."""
        # Bound, because it is called for every message.
        self.append: Callable[[Message], None] = self._fresh.append

    def add(self, message: Message) -> None:
        """Take a message at its position, which mostly is the last one."""
        if self._fresh and message.number < self._fresh[-1].number:
            self.requeue(message)
        else:
            self._fresh.append(message)
            if self.on_returned is not None:
                self.on_returned(message)

    def requeue(self, message: Message) -> None:
        """A message goes back to its position."""
        heapq.heappush(self._returned, message)
        if self.on_returned is not None:
            self.on_returned(message)

    def take(self) -> Message | None:
        """The first available message; it leaves the list."""
        fresh, returned = self._fresh, self._returned
        while fresh or returned:
            if returned and (not fresh or returned[0].number < fresh[0].number):
                message = heapq.heappop(returned)
            else:
                message = fresh.popleft()
            if message.state is MessageState.AVAILABLE and (
                message.expires_at is None or not self._drop_expired(message)
            ):
                return message
        return None

    def defer(self, message: Message) -> None:
        """Every consumer with capacity has refused it."""
        self.deferred.append(message)

    def restore_deferred(self, consumer: Consumer) -> None:
        """What this consumer has not refused goes back to its place."""
        kept = []
        for message in self.deferred:
            if message.refused_by and consumer in message.refused_by:
                kept.append(message)
            else:
                heapq.heappush(self._returned, message)
        self.deferred = kept

    def compact(self, depth: int) -> None:
        """Let go of what has left, if that is most of it; ``depth`` as the queue's."""
        if len(self._fresh) > 2 * depth + SLACK:
            kept = [message for message in self._fresh if message.state is not MessageState.REMOVED]
            self._fresh.clear()
            self._fresh.extend(kept)
        if len(self._returned) > 2 * depth + SLACK:
            available = {each for each in self._returned if each.state is MessageState.AVAILABLE}
            self._returned[:] = sorted(available)
