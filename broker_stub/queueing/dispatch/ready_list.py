"""The available messages of one queue, in order.  No I/O.

Theory of operation
-------------------
``_fresh`` holds what was never acquired, in order; ``_returned`` (a heap) what was requeued.  The
first message is the smaller of their heads.  What leaves the queue in another way stays here until ``take``
meets it, or ``compact`` removes it.

A queue with a message of another priority than the default has a ``PriorityReadyList``: one such list for
each priority that there was.  The highest that has a message comes first, and within it the order is as ever.

Source: AMQP 1.0 part 3, section 3.2.1 (``priority``: ten levels).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from broker_stub.amqp.message_format import DEFAULT_PRIORITY
from broker_stub.queueing.message import Message, MessageState

SLACK = 1000
"""Entries that may be kept although their messages have left, so that they are swept up together."""


class ReadyList:
    """The available messages of one queue, by number.

    :param drop_expired: drops an expired message; whether it did.
    :ivar append: takes a new message, the last of all.
    """

    __slots__ = ("_drop_expired", "_fresh", "_returned", "append", "on_returned")

    def __init__(self, drop_expired: Callable[[Message], bool]) -> None:
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

    def compact(self, depth: int) -> None:
        """Let go of what has left, if that is most of it; ``depth`` as the queue's."""
        if len(self._fresh) > 2 * depth + SLACK:
            kept = [message for message in self._fresh if message.state is not MessageState.REMOVED]
            self._fresh.clear()
            self._fresh.extend(kept)
        if len(self._returned) > 2 * depth + SLACK:
            available = {each for each in self._returned if each.state is MessageState.AVAILABLE}
            self._returned[:] = sorted(available)


class PriorityReadyList:
    """The same, where messages have several priorities.

    :param usual: what is available of the default priority.
    """

    __slots__ = ("_drop_expired", "_levels", "_ordered", "on_returned")

    def __init__(self, drop_expired: Callable[[Message], bool], usual: ReadyList) -> None:
        self._drop_expired = drop_expired
        self._levels: dict[int, ReadyList] = {}
        self.on_returned, usual.on_returned = usual.on_returned, None
        self._ordered: tuple[ReadyList, ...] = ()
        """The highest priority first."""
        self._add_level(DEFAULT_PRIORITY, usual)

    def _add_level(self, priority: int, level: ReadyList) -> ReadyList:
        self._levels[priority] = level
        self._ordered = tuple(self._levels[each] for each in sorted(self._levels, reverse=True))
        return level

    def _level(self, message: Message) -> ReadyList:
        priority = message.envelope.priority
        level = self._levels.get(priority)
        return self._add_level(priority, ReadyList(self._drop_expired)) if level is None else level

    def append(self, message: Message) -> None:
        """Take a new message, the last of all."""
        self._level(message).append(message)

    def add(self, message: Message) -> None:
        """Take a message at its position."""
        self._level(message).add(message)
        if self.on_returned is not None:
            self.on_returned(message)

    def requeue(self, message: Message) -> None:
        """A message goes back to its position."""
        self._level(message).requeue(message)
        if self.on_returned is not None:
            self.on_returned(message)

    def take(self) -> Message | None:
        """The first available message; it leaves the list."""
        for level in self._ordered:
            message = level.take()
            if message is not None:
                return message
        return None

    def compact(self, depth: int) -> None:
        """Let go of what has left, if that is most of it; ``depth`` as the queue's."""
        for level in self._ordered:
            level.compact(depth)
