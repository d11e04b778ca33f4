"""Browse consumers: each gets a copy of every available message.  No I/O.

Theory of operation
-------------------
The cursor of a browse consumer is the number of the last message that it passed.  Usually the next message
has the next number.  Gaps arise between two generations (``message.SEQUENCE_BITS``) and where other consumers
acquired messages.  At a gap, ``Consumer.ahead`` lists the numbers beyond the cursor.  Later messages stand
behind these, so the list serves until it is used up, and no message is listed twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile

from broker_stub.queueing.dispatch.selection_time import SelectionTime
from broker_stub.queueing.message import Consumer, Message, MessageState

# Messages that one consumer may skip in one iteration of the event loop, which blocks all connections.
_MAX_SKIPPED = 500


class BrowseConsumers:
    """The browse consumers of one queue.

    :param messages: the queue's messages by number, in order.
    :param is_expired: returns True if a message has expired.
    :param time: the time budget for selectors, shared by all queues.
    """

    __slots__ = ("_messages", "_time", "consumers", "is_expired")

    def __init__(
        self, messages: dict[int, Message], is_expired: Callable[[Message], bool], time: SelectionTime
    ) -> None:
        self._time = time
        self.consumers: list[Consumer] = []
        self._messages = messages
        self.is_expired = is_expired

    def add(self, consumer: Consumer) -> None:
        """Add a new consumer, which starts at the first message."""
        self.consumers.append(consumer)

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer; does nothing if it was removed before."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    def feed_all(self, last: int) -> None:
        """Send new messages to every consumer; ``last`` as for ``first_for``."""
        for consumer in tuple(self.consumers):
            self.feed(consumer, last)

    def feed(self, consumer: Consumer, last: int) -> None:
        """Send a consumer the messages that it selects, as many as it has capacity for."""
        if consumer.waiting:
            return
        selects, left, time = consumer.selects, _MAX_SKIPPED, self._time
        while consumer.sink.capacity() > 0 and (message := self.first_for(consumer, last)) is not None:
            consumer.cursor = message.number
            if selects is None:
                consumer.sink.deliver(message)
                continue
            began = time.now()
            selected = selects(message)
            time.measure(began)
            left -= not selected
            if selected:
                consumer.sink.deliver(message)
            if time.over or not left:
                consumer.waiting = True
                asyncio.get_running_loop().call_soon(_resume, consumer)
                return

    def first_for(self, consumer: Consumer, last: int) -> Message | None:
        """Return the first available message that the consumer has not passed yet.

        :param last: the highest number that the queue has assigned.
        """
        while consumer.cursor < last:
            message = self._following(consumer)
            if message is None:
                consumer.cursor = last
            elif message.state is MessageState.AVAILABLE and not self.is_expired(message):
                return message
            elif message.state is MessageState.HELD:
                return None
            else:
                consumer.cursor = message.number
        return None

    def _following(self, consumer: Consumer) -> Message | None:
        """Return the first message beyond the cursor, available or not."""
        cursor, messages = consumer.cursor, self._messages
        message = messages.get(cursor + 1) or self._first_ahead(consumer)
        if message is None:
            consumer.ahead = list(takewhile(lambda number: number > cursor, reversed(messages)))
            message = self._first_ahead(consumer)
        return message

    def _first_ahead(self, consumer: Consumer) -> Message | None:
        ahead = consumer.ahead
        while ahead:
            message = self._messages.get(ahead[-1])
            if message is not None and message.number > consumer.cursor:
                return message
            ahead.pop()
        return None


def _resume(consumer: Consumer) -> None:
    consumer.waiting = False
    consumer.sink.idle()
