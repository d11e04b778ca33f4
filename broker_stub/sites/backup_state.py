"""Maintains the site progress of a backup's queues from the replicated messages.

Theory of operation
-------------------
The primary sends each queue and the replication queue concurrently.  A replicated enqueue event shows up to
which position its queue has events.  In mode ``all`` a dequeue event shows that a message has left.  The
backup removes the message in the transaction that writes the event, so it never has one without the other.
If a dequeue event arrives before its message, the backup records the number and discards the message on
arrival.  The origin of a replicated message shows which event was applied.

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
    """Finds queues by identity."""

    def by_identity(self, identity: str) -> Queue | None:
        """Return the queue with an identity, if there is one."""


class Writer(Protocol):
    """The persister of this member."""

    def put_site_progress(self, queue: Queue) -> int:
        """Write the site progress of a queue; return the store's sequence."""


class BackupState:
    """Applies replicated messages of queues that have site progress.

    :param insert: puts a replicated message unchanged into its queue; returns the store's sequence.
    """

    def __init__(
        self, queues: Queues, persister: Writer, insert: Callable[[Queue, ReplicatedMessage], int]
    ) -> None:
        self._queues = queues
        self._persister = persister
        self._insert = insert
        self._removed_early: dict[str, set[int]] = {}
        """Numbers of messages whose dequeue event arrived first, by the identity of the queue."""

    def begin(self, queue: Queue) -> None:
        """Clear the progress of a queue that is replicated from now on; the primary sends it again."""
        self._removed_early.pop(queue.identity, None)
        if queue.site_progress is not None:
            queue.site_progress = SiteProgress()
            self._persister.put_site_progress(queue)

    def merge_progress(self, queue: Queue, plain: Mapping[str, Any]) -> int:
        """Merge the site progress that the primary sent; return the store's sequence."""
        _progress_of(queue).merge(plain)
        return self._persister.put_site_progress(queue)

    def apply(self, queue: Queue, message: ReplicatedMessage) -> int:
        """Apply a replicated message; return the store's sequence."""
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
