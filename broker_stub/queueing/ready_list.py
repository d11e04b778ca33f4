"""In which order a queue's available messages go out.  No I/O.

Theory of operation
-------------------
``_fresh`` holds what was never handed out, in order; ``_returned`` (a heap) what came back.  The
first one is the smaller of their heads.  ``parked`` holds what every consumer that has room has
refused: it stands aside until another one is ready.  What leaves the queue in another way stays
here until it is met, or ``compact`` sweeps it up.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from broker_stub.queueing.message import Consumer, Message, Place

SLACK = 1000
"""Entries that may be kept although their messages have left, so that they are swept up together."""


class Order:
    """The available messages of one queue, by number.

    :param drop_expired: drops a message whose time is over; whether it did.
    :ivar append: takes a new message, the last of all.
    """

    __slots__ = ("_drop_expired", "_fresh", "_returned", "append", "parked")

    def __init__(self, drop_expired: Callable[[Message], bool]) -> None:
        self.parked: list[Message] = []
        self._drop_expired = drop_expired
        self._fresh: deque[Message] = deque()
        self._returned: list[Message] = []
        # Bound, because it is called for every message.
        self.append: Callable[[Message], None] = self._fresh.append

    def add(self, message: Message) -> None:
        """Take a message at its place, which mostly is the last one."""
        if self._fresh and message.number < self._fresh[-1].number:
            self.put_back(message)
        else:
            self._fresh.append(message)

    def put_back(self, message: Message) -> None:
        """A message goes back to its place."""
        heapq.heappush(self._returned, message)

    def take(self) -> Message | None:
        """The first available message; it is in the order no longer."""
        fresh, returned = self._fresh, self._returned
        while fresh or returned:
            if returned and (not fresh or returned[0].number < fresh[0].number):
                message = heapq.heappop(returned)
            else:
                message = fresh.popleft()
            if message.place is Place.AVAILABLE and (
                message.expires_at is None or not self._drop_expired(message)
            ):
                return message
        return None

    def park(self, message: Message) -> None:
        """Nobody who has room takes it."""
        self.parked.append(message)

    def unpark(self, consumer: Consumer) -> None:
        """What this consumer has not refused goes back to its place."""
        kept = []
        for message in self.parked:
            if message.refused_by and consumer in message.refused_by:
                kept.append(message)
            else:
                heapq.heappush(self._returned, message)
        self.parked = kept

    def compact(self, depth: int) -> None:
        """Let go of what has left, if that is most of it; ``depth`` as the queue's."""
        if len(self._fresh) > 2 * depth + SLACK:
            kept = [message for message in self._fresh if message.place is not Place.GONE]
            self._fresh.clear()
            self._fresh.extend(kept)
