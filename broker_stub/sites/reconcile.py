"""Reconciles the queues of a new primary with their site events.

Theory of operation
-------------------
Only the last changes under the old primary can differ, and none of them was settled or published:

* ``outbound`` makes events for messages without one, which it finds by the position ``evented``.  That is
  first corrected from the events themselves, because events of a new queue may be here before the queue.
* In mode ``all`` an event may have neither its message nor a dequeue event here (``backup_state``).  Then the
  message never arrived, and is restored from its event.  So the producer's second copy is recognised.
* In mode ``enqueues`` such a message may have been consumed, so it is not restored.  The producer's second
  copy gets an event of its own, and the target queue drops it by its duplicate-detection id.
"""

from __future__ import annotations

import uuid

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.persister import Persister
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode, SiteProgress
from broker_stub.replication.wire import ReplicatedMessage
from broker_stub.sites.event import Event, Op, decode
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.sites")


def reconcile(addresses: Addresses, persister: Persister) -> int:
    """Restore messages that exist only in their events; return how many."""
    log = addresses.find_queue(REPLICATION_QUEUE)
    if log is None:
        return 0
    count = 0
    for number in _missing(log, addresses):
        event = _event(log, number)
        queue = _queue_of(event, addresses)
        assert queue is not None, "it was found just now"
        count += _restore_message(queue, event, persister)
    if count:
        logger.info("restored %d messages from site events after promotion", count)
    return count


def _missing(log: Queue, addresses: Addresses) -> list[int]:
    """Return the events of messages that are missing and have not left; also corrects the site progress."""
    found: dict[tuple[bytes, int], int] = {}
    for number in log.ids():
        event = _event(log, number)
        queue = _queue_of(event, addresses)
        if event.op is Op.DEQUEUE:
            found.pop(event.origin.queue_position, None)
        elif queue is not None:
            if queue.site_progress is None:
                queue.site_progress = SiteProgress()
            queue.site_progress.evented = max(queue.site_progress.evented, event.position)
            if event.mode is SiteMode.ALL and queue.message(event.position) is None:
                found[event.origin.queue_position] = number
    return list(found.values())


def _event(log: Queue, number: int) -> Event:
    message = log.message(number)
    assert message is not None, "its number was given just now"
    return decode(message.data)


def _queue_of(event: Event, addresses: Addresses) -> Queue | None:
    return addresses.by_identity(str(uuid.UUID(bytes=event.queue_id)))


def _restore_message(queue: Queue, event: Event, persister: Persister) -> bool:
    last = max(queue.ids(), default=0)
    if event.position <= last:
        logger.error(
            "message %d of %r exists only in its site event, and is not behind the queue's last message",
            event.position,
            queue.name,
        )
        return False
    envelope = inspect(event.data)
    row = ReplicatedMessage(event.position, 0, event.expires_at_ms, event.data)
    duplicate_id = envelope.duplicate_id
    if duplicate_id is not None and queue.duplicates.first_copy(duplicate_id) is not None:
        duplicate_id = None
    queue.insert(event.position, event.data, envelope, 0, event.expires_at_ms)
    persister.put(queue, row, duplicate_id)
    return True
