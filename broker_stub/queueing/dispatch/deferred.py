"""Available messages that no consumer with capacity can take.  No I/O.

Theory of operation
-------------------
Some consumers cannot take some messages.  If no consumer with capacity can take a message, it is deferred: it
leaves the ready list and no longer blocks the messages behind it.  Each consumer that can take it, but has no
capacity now, remembers it as a candidate.  When such a consumer is ready, its first candidates, as many as it
has capacity for, return to the ready list in order.  So a deferral compares the message with each consumer
only once.

Rules
-----
* An available message is in the ready list or deferred, never both.
* Another consumer may have got a candidate meanwhile, so a candidate counts only while it is deferred.
* A new consumer is compared once with every deferred message.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Consumer, Message, MessageState


class Deferred:
    """The deferred messages of one queue.

    :param takes: returns True if a message may go to a consumer.
    """

    __slots__ = ("_messages", "_takes")

    def __init__(self, takes: Callable[[Consumer, Message], bool]) -> None:
        self._messages: dict[int, Message] = {}
        self._takes = takes

    def discard(self, message: Message) -> None:
        """Remove a message that is in the ready list again."""
        self._messages.pop(message.number, None)

    def __len__(self) -> int:
        return len(self._messages)

    def defer(self, message: Message, consumers: Iterable[Consumer]) -> None:
        """Defer a message that no consumer with capacity can take.

        :param consumers: all consumers of the queue.
        """
        self._messages[message.number] = message
        for consumer in consumers:
            if self._takes(consumer, message):
                self._add_candidate(consumer, message)

    def add_consumer(self, consumer: Consumer) -> None:
        """Compare a new consumer with every deferred message."""
        for message in self._messages.values():
            if self._takes(consumer, message):
                self._add_candidate(consumer, message)

    def _add_candidate(self, consumer: Consumer, message: Message) -> None:
        candidates = consumer.candidates
        heapq.heappush(candidates, (-message.envelope.priority, message.number))
        if len(candidates) > 2 * len(self._messages) + SLACK:
            candidates[:] = sorted({entry for entry in candidates if entry[1] in self._messages})

    def restore(self, consumer: Consumer, most: int) -> Iterator[Message]:
        """Remove and yield the first ``most`` candidates of a consumer that are still deferred."""
        candidates = consumer.candidates
        while candidates and most > 0:
            message = self._messages.pop(heapq.heappop(candidates)[1], None)
            if message is not None and message.state is MessageState.AVAILABLE:
                most -= 1
                yield message

    def restore_all(self) -> list[Message]:
        """Remove and return every deferred message."""
        messages, self._messages = self._messages, {}
        return [each for each in messages.values() if each.state is MessageState.AVAILABLE]

    def compact(self, depth: int) -> None:
        """Forget messages that left the queue, if they are most of the entries; ``depth`` is the queue's."""
        if len(self._messages) > 2 * depth + SLACK:
            self._messages = {
                number: message
                for number, message in self._messages.items()
                if message.state is not MessageState.REMOVED
            }
