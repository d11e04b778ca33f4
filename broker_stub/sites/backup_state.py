"""A backup's copy of queues that have marks: what a copied message says beside itself.

Theory of operation
-------------------
The primary sends queue and replication queue side by side.  A copied event says which position was
told, and in mode ``all`` that a message has left: it is removed here in the transaction in which
the event is written, so that a backup never has one without the other.  If the event is faster
than the message, its number is noted, and the message is not taken when it comes.  A copied message
with an origin says which event was applied.

Rule: marks change in the turn, and so in the transaction, of the message that changes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from broker_stub.queueing.queue import Queue
from broker_stub.replication.wire import ReplicatedMessage
from broker_stub.sites.event import Event, Op, decode, origin_of
from broker_stub.sites.marks import Marks
from broker_stub.sites.modes import REPLICATION_QUEUE


class Queues(Protocol):
    """Finds the queue of an identity."""

    def by_identity(self, identity: str) -> Queue | None:
        """The queue, if there is one."""


class Writer(Protocol):
    """The keeper of this member."""

    def put_marks(self, queue: Queue) -> int:
        """Write the marks of a queue; the store's sequence of it."""


class Copied:
    """What a backup does with the messages of queues that have marks.

    :param take: copies a message as it is; the store's sequence of it.
    """

    def __init__(
        self, queues: Queues, keeper: Writer, take: Callable[[Queue, ReplicatedMessage], int]
    ) -> None:
        self._queues = queues
        self._keeper = keeper
        self._take = take
        self._gone: dict[str, set[int]] = {}
        """By the identity of the queue: messages that left before they came."""

    def begin(self, queue: Queue) -> None:
        """The queue is copied from now on: forget what the primary tells anew."""
        self._gone.pop(queue.identity, None)
        if queue.marks is not None:
            queue.marks = Marks()
            self._keeper.put_marks(queue)

    def take_marks(self, queue: Queue, plain: Mapping[str, Any]) -> int:
        """The primary tells the marks of a queue."""
        _marks(queue).merge(plain)
        return self._keeper.put_marks(queue)

    def apply(self, queue: Queue, message: ReplicatedMessage) -> int:
        """Copy a message; the store's sequence of it."""
        if queue.name == REPLICATION_QUEUE:
            return self._apply_event(queue, message)
        gone = self._gone.get(queue.identity)
        if gone:
            self._gone[queue.identity] = {number for number in gone if number > message.id}
            if message.id in gone:
                return self._keeper.put_marks(queue)
        self._take(queue, message)
        origin = origin_of(message.data)
        if origin is not None:
            _marks(queue).apply(origin.stream_name, origin.sequence)
        return self._keeper.put_marks(queue)

    def _apply_event(self, log: Queue, message: ReplicatedMessage) -> int:
        event = decode(message.data)
        queue = self._queues.by_identity(str(uuid.UUID(bytes=event.queue_id)))
        if queue is not None:
            self._tell(queue, event)
        marks = _marks(log)
        marks.issued = max(marks.issued, event.sequence)
        self._take(log, message)
        return self._keeper.put_marks(log)

    def _tell(self, queue: Queue, event: Event) -> None:
        marks = _marks(queue)
        if event.op is Op.ENQUEUE:
            marks.evented = max(marks.evented, event.position)
        elif queue.message(event.position) is not None:
            queue.forget((event.position,))
        elif event.position > queue.last_number:
            self._gone.setdefault(queue.identity, set()).add(event.position)
        self._keeper.put_marks(queue)


def _marks(queue: Queue) -> Marks:
    if queue.marks is None:
        queue.marks = Marks()
    return queue.marks
