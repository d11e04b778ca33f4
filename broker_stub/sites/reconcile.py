"""A new primary makes its queues agree with the events that tell of them.

Theory of operation
-------------------
Only the last moment under the old primary can differ, and nothing of it was settled or handed out:

* Messages without an event get one from ``source``, which knows them by the mark ``evented``; it is made
  good from the events themselves, for those of a queue that was just made may be here before the queue.
* In mode ``all`` an event tells of a message that is not here and did not leave, for then its
  event would be here too (``copied``): it never came, and is taken from its event.  So the
  second copy that the producer sends is known as one.
* In mode ``enqueues`` such a message may have been consumed, and nothing is done: the second copy
  gets an event of its own, and the target queue drops it by its duplicate-detection id.
"""

from __future__ import annotations

import logging
import uuid

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.persister import Keeper
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.replication.wire import ReplicatedMessage
from broker_stub.sites.event import Event, Op, decode
from broker_stub.sites.marks import Marks
from broker_stub.sites.modes import REPLICATION_QUEUE, SiteMode

logger = logging.getLogger("broker_stub.sites")


def agree(addresses: Addresses, keeper: Keeper) -> int:
    """Put messages back that only their events have; how many there were."""
    log = addresses.find_queue(REPLICATION_QUEUE)
    if log is None:
        return 0
    count = 0
    for number in _lacking(log, addresses):
        event = _event(log, number)
        queue = _queue_of(event, addresses)
        assert queue is not None, "it was found just now"
        count += _put_back(queue, event, keeper)
    if count:
        logger.info("%d messages that had come with their events only are in their queues", count)
    return count


def _lacking(log: Queue, addresses: Addresses) -> list[int]:
    """The events of messages that are not here and have not left; every mark is made good on the way."""
    found: dict[tuple[bytes, int], int] = {}
    for number in log.ids():
        event = _event(log, number)
        queue = _queue_of(event, addresses)
        if event.op is Op.DEQUEUE:
            found.pop(event.origin.place, None)
        elif queue is not None:
            if queue.marks is None:
                queue.marks = Marks()
            queue.marks.evented = max(queue.marks.evented, event.position)
            if event.mode is SiteMode.ALL and queue.message(event.position) is None:
                found[event.origin.place] = number
    return list(found.values())


def _event(log: Queue, number: int) -> Event:
    message = log.message(number)
    assert message is not None, "its number was given just now"
    return decode(message.data)


def _queue_of(event: Event, addresses: Addresses) -> Queue | None:
    return addresses.by_identity(str(uuid.UUID(bytes=event.queue_id)))


def _put_back(queue: Queue, event: Event, keeper: Keeper) -> bool:
    last = max(queue.ids(), default=0)
    if event.position <= last:
        logger.error("message %d of %r is in its event only, and out of place", event.position, queue.name)
        return False
    envelope = inspect(event.data)
    row = ReplicatedMessage(event.position, 0, event.expires_at_ms, event.data)
    duplicate_id = envelope.duplicate_id
    if duplicate_id is not None and queue.duplicates.first_copy(duplicate_id) is not None:
        duplicate_id = None
    queue.copy(event.position, event.data, envelope, 0, event.expires_at_ms)
    keeper.put(queue, row, duplicate_id)
    return True
