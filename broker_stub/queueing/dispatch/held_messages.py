"""Messages of one queue that are held back from consumers until they are complete.  No I/O.

Theory of operation
-------------------
A message is complete when the guard would settle its transfer: the guard is not suspended, and every required
store and replica has the message.  Messages usually become complete in the order of the queue, but not
always.  While the in-sync set shrinks, a new message does not wait for the dropped replica, and replicas
acknowledge in any order.  So a complete message is held until all messages before it are complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker_stub.queueing.message import Message, MessageState
from broker_stub.queueing.options import Deliver


class HeldMessages:
    """The held messages of one queue, in order.

    :param append: adds an available message at the end.
    :param drop_expired: drops a message if it has expired; returns True if it did.
    """

    __slots__ = ("_append", "_drop_expired", "_incomplete", "_order")

    def __init__(self, append: Callable[[Message], None], drop_expired: Callable[[Message], bool]) -> None:
        self._append = append
        self._drop_expired = drop_expired
        self._incomplete: dict[int, Message] = {}
        self._order: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def incomplete(self, number: int) -> Message | None:
        """Return the message with a number, if it is not complete."""
        return self._incomplete.get(number)

    def add(self, message: Message, *, deliver: Deliver) -> None:
        """Track a new message until it is complete; hold it if the queue delivers only complete messages."""
        self._incomplete[message.number] = message
        if deliver is Deliver.COMMITTED:
            message.state = MessageState.HELD
            self._order.append(message)

    def complete(self, number: int) -> bool:
        """Mark a message complete; return True if messages have become available.

        A message that is no longer held, because this member is no longer primary, is ignored.
        """
        incomplete, order = self._incomplete, self._order
        incomplete.pop(number, None)
        more = False
        while order and order[0].number not in incomplete:
            message = order.popleft()
            if message.state is MessageState.HELD:
                message.state = MessageState.AVAILABLE
                if message.expires_at is None or not self._drop_expired(message):
                    self._append(message)
                    more = True
        return more

    def discard(self, number: int) -> None:
        """Stop tracking a message that did not enter the queue after all."""
        self._incomplete.pop(number, None)

    def release(self) -> None:
        """Release every held message: this queue no longer tracks which ones are complete."""
        for message in self._order:
            if message.state is MessageState.HELD:
                message.state = MessageState.AVAILABLE
                self._append(message)
        self._order.clear()
        self._incomplete.clear()
