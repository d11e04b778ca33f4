"""The available messages of one queue, in order.  No I/O.

Theory of operation
-------------------
``_fresh`` holds messages that were never acquired, in order; ``_returned`` (a heap) holds requeued messages.
The first message is the smaller of the two heads.  A message that leaves the queue in another way stays in
the list until ``take`` meets it or ``compact`` removes it.

Once a queue has had a message of another priority than the default, it has a ``PriorityReadyList``: one
``ReadyList`` per priority.  The highest priority that has a message is served first.

Source: AMQP 1.0 part 3, section 3.2.1 (``priority``: ten levels).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from broker_stub.amqp.message_format import DEFAULT_PRIORITY
from broker_stub.queueing.message import Message, MessageState

SLACK = 1000
"""Stale entries that a list may keep, so that they are removed many at a time."""


class ReadyList:
    """The available messages of one queue, by number.

    :param drop_expired: drops a message if it has expired; returns True if it did.
    :ivar append: adds a new message at the end.
    """

    __slots__ = ("_drop_expired", "_fresh", "_returned", "append", "on_returned")

    def __init__(self, drop_expired: Callable[[Message], bool]) -> None:
        self._drop_expired = drop_expired
        self._fresh: deque[Message] = deque()
        self._returned: list[Message] = []
        self.on_returned: Callable[[Message], None] | None = None
        """Called for a message that is added anywhere but at the end, or requeued."""
        # A bound method, for speed: it is called for every message.
        self.append: Callable[[Message], None] = self._fresh.append

    def add(self, message: Message) -> None:
        """Add a message at its position, usually the end."""
        if self._fresh and message.number < self._fresh[-1].number:
            self.requeue(message)
        else:
            self._fresh.append(message)
            if self.on_returned is not None:
                self.on_returned(message)

    def requeue(self, message: Message) -> None:
        """Return a message to its position."""
        heapq.heappush(self._returned, message)
        if self.on_returned is not None:
            self.on_returned(message)

    def take(self) -> Message | None:
        """Remove and return the first available message."""
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
        """Forget messages that left the queue, if they are most of the entries; ``depth`` is the queue's."""
        if len(self._fresh) > 2 * depth + SLACK:
            kept = [message for message in self._fresh if message.state is not MessageState.REMOVED]
            self._fresh.clear()
            self._fresh.extend(kept)
        if len(self._returned) > 2 * depth + SLACK:
            available = {each for each in self._returned if each.state is MessageState.AVAILABLE}
            self._returned[:] = sorted(available)


class PriorityReadyList:
    """A ready list for messages of several priorities.

    :param usual: the available messages of the default priority.
    """

    __slots__ = ("_drop_expired", "_levels", "_ordered", "on_returned")

    def __init__(self, drop_expired: Callable[[Message], bool], usual: ReadyList) -> None:
        self._drop_expired = drop_expired
        self._levels: dict[int, ReadyList] = {}
        self.on_returned, usual.on_returned = usual.on_returned, None
        self._ordered: tuple[ReadyList, ...] = ()
        """The ready lists, highest priority first."""
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
        """Add a new message at the end of its priority."""
        self._level(message).append(message)

    def add(self, message: Message) -> None:
        """Add a message at its position."""
        self._level(message).add(message)
        if self.on_returned is not None:
            self.on_returned(message)

    def requeue(self, message: Message) -> None:
        """Return a message to its position."""
        self._level(message).requeue(message)
        if self.on_returned is not None:
            self.on_returned(message)

    def take(self) -> Message | None:
        """Remove and return the first available message."""
        for level in self._ordered:
            message = level.take()
            if message is not None:
                return message
        return None

    def compact(self, depth: int) -> None:
        """Forget messages that left the queue, if they are most of the entries; ``depth`` is the queue's."""
        for level in self._ordered:
            level.compact(depth)
