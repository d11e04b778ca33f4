"""Selective consumers: they take only messages that match a condition (``Consumer.selects``).  No I/O.

Theory of operation
-------------------
The cursor of a selective consumer is the number of the last message that its selector examined.  So the
selector examines each message once, however often the consumer gives credit.  If a message returns to the
queue behind the cursor and matches, it waits in ``Consumer.returned``.

Rules
-----
* Selective consumers are served before the others, which would leave them nothing.
* Each gets matching messages in order of priority and position.
* At most ``_MAX_EXAMINED`` messages are examined in a row: a queue may have millions that match nothing, and
  other connections wait meanwhile.  When the time limit is reached (``selection_time``), the rest waits for
  the next iteration of the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from broker_stub.queueing.dispatch.browse import BrowseConsumers
from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.dispatch.selection_time import SelectionTime
from broker_stub.queueing.message import Consumer, Message, MessageState

_MAX_EXAMINED = 500


class SelectiveConsumers:
    """The selective consumers of one queue.

    :param messages: the queue's messages by number, in order.
    :param browse: finds the message behind a cursor.
    :param last_number: returns the highest number that the queue has assigned.
    :param give: delivers a message to a consumer.
    :param takes: returns True if a consumer selects a message and may get it.
    :param time: the time budget for selectors, shared by all queues.
    :ivar waiting: the consumers that may have capacity, in turn.
    :ivar by_priority: True if the queue has messages of several priorities.
    """

    __slots__ = (
        "_browse",
        "_consumers",
        "_give",
        "_last_number",
        "_messages",
        "_scheduled",
        "_takes",
        "_time",
        "by_priority",
        "waiting",
    )

    def __init__(
        self,
        messages: dict[int, Message],
        browse: BrowseConsumers,
        last_number: Callable[[], int],
        give: Callable[[Consumer, Message], None],
        takes: Callable[[Consumer, Message], bool],
        *,
        time: SelectionTime,
    ) -> None:
        self._time = time
        self.waiting: dict[Consumer, None] = {}
        self._consumers: set[Consumer] = set()
        self._messages = messages
        self._browse = browse
        self._last_number = last_number
        self._give = give
        self._takes = takes
        self._scheduled = False
        self.by_priority = False

    def add(self, consumer: Consumer) -> None:
        """Add a new consumer, which starts at the first message."""
        self._consumers.add(consumer)

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        self._consumers.discard(consumer)
        self.waiting.pop(consumer, None)
        consumer.returned.clear()

    def begin_again(self) -> None:
        """Restart matching from the first message: group ownership has changed."""
        for consumer in self._consumers:
            consumer.cursor = 0
            consumer.ahead.clear()

    def ready(self, consumer: Consumer) -> None:
        """Queue a consumer for delivery: it may have capacity again."""
        if consumer in self._consumers:
            self.waiting[consumer] = None

    def returned(self, message: Message) -> None:
        """Offer a message that became available anywhere but at the end of the queue."""
        for consumer in self._consumers:
            if message.number <= consumer.cursor:
                if self._time.over:  # go back: the consumer meets the message again later
                    consumer.cursor = message.number - 1
                    consumer.ahead.clear()
                elif self._examine(consumer, message):
                    self._requeue(consumer, message)

    def _examine(self, consumer: Consumer, message: Message) -> bool:
        """Apply a consumer's selector to a message, and measure the time."""
        began = self._time.now()
        takes = self._takes(consumer, message)
        self._time.measure(began)
        return takes

    def _requeue(self, consumer: Consumer, message: Message) -> None:
        returned = consumer.returned
        heapq.heappush(returned, (-message.envelope.priority, message.number, message))
        if len(returned) > 2 * len(self._messages) + SLACK:
            returned[:] = sorted({entry for entry in returned if _is_available(entry[-1])})

    def pump(self) -> None:
        """Deliver matching messages, one to each consumer in turn, while consumers have capacity."""
        if self._scheduled and self._time.over:
            return
        left = _MAX_EXAMINED
        while self.waiting:
            served = False
            for consumer in tuple(self.waiting):
                if consumer.sink.capacity() <= 0:
                    self.waiting.pop(consumer, None)
                    continue
                message, left = self._next(consumer, left)
                if message is not None:
                    served = True
                    self._give(consumer, message)
                if left <= 0:
                    self._schedule()
                    return
            if not served:
                return

    def idle_for(self, consumer: Consumer) -> bool:
        """Return True if nothing matches now; False until the selector was applied to every message."""
        message, left = self._next(consumer, 1)
        if message is not None:
            self._requeue(consumer, message)
        return message is None and left > 0

    def _next(self, consumer: Consumer, left: int) -> tuple[Message | None, int]:
        """Return the first match within ``left`` examined messages, and how many may still be examined."""
        last = self._last_number()
        if self.by_priority:
            # The message of the highest priority is known only once all were examined.
            while left > 0 and (found := self._browse.first_for(consumer, last)) is not None:
                consumer.cursor = found.number
                if self._examine(consumer, found):
                    self._requeue(consumer, found)
                left = self._remaining(left)
            if left <= 0:
                return None, left
        message = self._take_returned(consumer)
        if message is not None:
            return message, left
        while left > 0:
            found = self._browse.first_for(consumer, last)
            if found is None:
                return None, left
            consumer.cursor = found.number
            takes = self._examine(consumer, found)
            left = self._remaining(left)
            if takes:
                return found, left
        return None, left

    def _remaining(self, looks: int) -> int:
        """Return how many messages may still be examined after one more."""
        return 0 if self._time.over else looks - 1

    def _take_returned(self, consumer: Consumer) -> Message | None:
        returned = consumer.returned
        while returned:
            message = heapq.heappop(returned)[-1]
            # The message's group may have another owner since it was requeued.
            if (
                _is_available(message)
                and not self._browse.is_expired(message)
                and self._examine(consumer, message)
            ):
                return message
        return None

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._scheduled = False
        self.pump()
        if not self._scheduled:
            for consumer in tuple(self.waiting):
                consumer.sink.idle()


def selects(consumer: Consumer, message: Message) -> bool:
    """Return True if a consumer takes a message."""
    if message.refused_by is not None and consumer in message.refused_by:
        return False
    return consumer.selects is None or consumer.selects(message)


def _is_available(message: Message) -> bool:
    return message.state is MessageState.AVAILABLE
