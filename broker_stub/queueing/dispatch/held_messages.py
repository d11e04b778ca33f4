"""The messages of one queue that no consumer gets yet, because they are not complete.  No I/O.

Theory of operation
-------------------
A message is complete when the guard would settle its transfer: every store and replica that must have it has
it, and the guard is not suspended.  Mostly messages become complete in the order of the queue, but not
always: what is sent while the in-sync set shrinks does not wait for the replica that was dropped, and a
replica acknowledges as it likes.  So a message that is complete is held until all before it are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker_stub.queueing.message import Message, MessageState
from broker_stub.queueing.options import Deliver


class HeldMessages:
    """What is to become available, in order.

    :param append: takes an available message, the last of all.
    :param drop_expired: drops an expired message; whether it did.
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
        """The message of that number, if it is not complete."""
        return self._incomplete.get(number)

    def add(self, message: Message, *, deliver: Deliver) -> None:
        """A new message is not complete: hold it, if its queue delivers only what is."""
        self._incomplete[message.number] = message
        if deliver is Deliver.COMMITTED:
            message.state = MessageState.HELD
            self._order.append(message)

    def complete(self, number: int) -> bool:
        """A message is complete; whether there are more available messages now.

        One that is held no more, because this member led no more, is no error.
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
        """A message is not in the queue after all: nothing waits for it, and ``complete`` passes over it."""
        self._incomplete.pop(number, None)

    def release(self) -> None:
        """Hold nothing any more: whether it was complete is for others to say."""
        for message in self._order:
            if message.state is MessageState.HELD:
                message.state = MessageState.AVAILABLE
                self._append(message)
        self._order.clear()
        self._incomplete.clear()
