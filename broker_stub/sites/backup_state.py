"""A backup keeps the site progress of its queues from the replicated messages.

Theory of operation
-------------------
The primary sends queue and replication queue side by side.  A replicated event says up to which position
the queue has events, and in mode ``all`` that a message has left: it is removed here in the transaction in
which the event is written, so that a backup never has one without the other.  If a dequeue event arrives
before its message, the backup records the message's number and discards the message on arrival.  A
replicated message with an origin says which event was applied.

Rule: the progress changes in the event-loop iteration, and so in the transaction, of the message that
changes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteProgress
from broker_stub.replication.wire import ReplicatedMessage
from broker_stub.sites.event import Event, Op, decode, origin_of


class Queues(Protocol):
    """Finds the queue of an identity."""

    def by_identity(self, identity: str) -> Queue | None:
        """The queue, if there is one."""


class Writer(Protocol):
    """The persister of this member."""

    def put_site_progress(self, queue: Queue) -> int:
        """Write the site progress of a queue; the store's sequence of it."""


class BackupState:
    """What a backup does with the messages of queues that have site progress.

    :param insert: puts a replicated message into its queue as it is; the store's sequence of it.
    """

    def __init__(
        self, queues: Queues, persister: Writer, insert: Callable[[Queue, ReplicatedMessage], int]
    ) -> None:
        self._queues = queues
        self._persister = persister
        self._insert = insert
        self._removed_early: dict[str, set[int]] = {}
        """By the identity of the queue: numbers of messages that left before they arrived."""

    def begin(self, queue: Queue) -> None:
        """The queue is replicated from now on: clear what the primary sends anew."""
        self._removed_early.pop(queue.identity, None)
        if queue.site_progress is not None:
            queue.site_progress = SiteProgress()
            self._persister.put_site_progress(queue)

    def merge_progress(self, queue: Queue, plain: Mapping[str, Any]) -> int:
        """The primary sends the site progress of a queue."""
        _progress_of(queue).merge(plain)
        return self._persister.put_site_progress(queue)

    def apply(self, queue: Queue, message: ReplicatedMessage) -> int:
        """Apply a replicated message; the store's sequence of it."""
        if queue.name == REPLICATION_QUEUE:
            return self._apply_event(queue, message)
        removed_early = self._removed_early.get(queue.identity)
        if removed_early:
            self._removed_early[queue.identity] = {number for number in removed_early if number > message.id}
            if message.id in removed_early:
                return self._persister.put_site_progress(queue)
        self._insert(queue, message)
        origin = origin_of(message.data)
        if origin is not None:
            _progress_of(queue).apply(origin.stream_name, origin.sequence)
        return self._persister.put_site_progress(queue)

    def _apply_event(self, log: Queue, message: ReplicatedMessage) -> int:
        event = decode(message.data)
        queue = self._queues.by_identity(str(uuid.UUID(bytes=event.queue_id)))
        if queue is not None:
            self._apply_to_queue(queue, event)
        progress = _progress_of(log)
        progress.issued = max(progress.issued, event.sequence)
        self._insert(log, message)
        return self._persister.put_site_progress(log)

    def _apply_to_queue(self, queue: Queue, event: Event) -> None:
        progress = _progress_of(queue)
        if event.op is Op.ENQUEUE:
            progress.evented = max(progress.evented, event.position)
        elif queue.message(event.position) is not None:
            queue.discard((event.position,))
        elif event.position > queue.last_number:
            self._removed_early.setdefault(queue.identity, set()).add(event.position)
        self._persister.put_site_progress(queue)


def _progress_of(queue: Queue) -> SiteProgress:
    if queue.site_progress is None:
        queue.site_progress = SiteProgress()
    return queue.site_progress
