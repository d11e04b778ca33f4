"""Available messages that no consumer with capacity takes: they hold up nobody.  No I/O.

Theory of operation
-------------------
A message may not be for every consumer.  One that none with capacity takes is deferred: it leaves the ready
list, and each consumer that takes it, but has no capacity now, remembers it as a candidate.  When such a
consumer is ready, as many of its candidates as it has capacity for go back to the ready list, in order.  So
each message is compared with each consumer once each time that it is deferred, and no more than that.

Rules
-----
* An available message is in the ready list or here, never in both.
* A candidate may have been given to another consumer meanwhile: it counts only as long as it is here.
* A new consumer is compared with everything that is here, once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Consumer, Message, MessageState


class Deferred:
    """The deferred messages of one queue.

    :param takes: whether a message may go to a consumer.
    """

    __slots__ = ("_messages", "_takes")

    def __init__(self, takes: Callable[[Consumer, Message], bool]) -> None:
        self._messages: dict[int, Message] = {}
        self._takes = takes

    def discard(self, message: Message) -> None:
        """It is in the ready list."""
        self._messages.pop(message.number, None)

    def __len__(self) -> int:
        return len(self._messages)

    def defer(self, message: Message, consumers: Iterable[Consumer]) -> None:
        """No consumer with capacity takes a message; ``consumers`` are all there are."""
        self._messages[message.number] = message
        for consumer in consumers:
            if self._takes(consumer, message):
                self._add_candidate(consumer, message)

    def add_consumer(self, consumer: Consumer) -> None:
        """A consumer is new."""
        for message in self._messages.values():
            if self._takes(consumer, message):
                self._add_candidate(consumer, message)

    def _add_candidate(self, consumer: Consumer, message: Message) -> None:
        candidates = consumer.candidates
        heapq.heappush(candidates, (-message.envelope.priority, message.number))
        if len(candidates) > 2 * len(self._messages) + SLACK:
            candidates[:] = sorted({entry for entry in candidates if entry[1] in self._messages})

    def restore(self, consumer: Consumer, most: int) -> Iterator[Message]:
        """The first candidates of a consumer, up to so many; they are deferred no longer."""
        candidates = consumer.candidates
        while candidates and most > 0:
            message = self._messages.pop(heapq.heappop(candidates)[1], None)
            if message is not None and message.state is MessageState.AVAILABLE:
                most -= 1
                yield message

    def restore_all(self) -> list[Message]:
        """Everything that is here, which is deferred no longer."""
        messages, self._messages = self._messages, {}
        return [each for each in messages.values() if each.state is MessageState.AVAILABLE]

    def compact(self, depth: int) -> None:
        """Let go of what has left the queue, if that is most of it; ``depth`` as the queue's."""
        if len(self._messages) > 2 * depth + SLACK:
            self._messages = {
                number: message
                for number, message in self._messages.items()
                if message.state is not MessageState.REMOVED
            }
