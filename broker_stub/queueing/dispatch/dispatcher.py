"""Delivers the available messages of one queue to its consumers.  No I/O.

Theory of operation
-------------------
``waiting`` holds the consumers that may have capacity, in turn.  A consumer without capacity is removed, and
``ready`` adds it again.  These consumers get the messages of the ``ready_list``, in order of priority and
position.  Browse and selective consumers each have a position of their own (``browse``, ``selective``).

Rules
-----
* Each message goes to the next consumer in turn that can take it.  If no consumer with capacity can, the
  message is deferred and does not block the others (``deferred``).
* Available messages are delivered in order of priority, and of position within a priority.
* A requeued message returns to its original position.
* The messages of a group go to one consumer as long as it lives (``groups``), except any that it cannot take.
* Browse consumers get messages by position, whatever their priority.

Sources: AMQP 1.0 part 3, sections 3.3 (distribution nodes) and 3.4 (delivery state).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker_stub.amqp.message_format import DEFAULT_PRIORITY
from broker_stub.queueing.dispatch.browse import BrowseConsumers
from broker_stub.queueing.dispatch.deferred import Deferred
from broker_stub.queueing.dispatch.groups import GroupOwners
from broker_stub.queueing.dispatch.ready_list import PriorityReadyList, ReadyList
from broker_stub.queueing.dispatch.selection_time import SelectionTime
from broker_stub.queueing.dispatch.selective import SelectiveConsumers, selects
from broker_stub.queueing.message import (
    NO_SINK,
    Call,
    Consumer,
    DeadLetterReason,
    Message,
    MessageState,
    Selects,
    Sink,
    nothing,
)
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from broker_stub.queueing.queue import Queue

logger = get_logger("broker_stub.queueing.dispatcher")


class Dispatcher:
    """The consumers of one queue, and the messages that they can get.

    :param messages: the queue's messages by number, in order.
    :param is_expired: returns True if a message has expired.
    :param time: the time budget for selectors, shared by all queues.
    :ivar waiting: the consumers that may have capacity, the next one first.
    :ivar browse_consumers: the consumers that get copies.
    :ivar suspended: True while no consumer gets anything.
    """

    __slots__ = (
        "_browse",
        "_consumers",
        "_deferred",
        "_groups",
        "_queue",
        "_selective",
        "browse_consumers",
        "ready_list",
        "selecting",
        "suspended",
        "waiting",
    )

    def __init__(
        self,
        queue: Queue,
        messages: dict[int, Message],
        is_expired: Callable[[Message], bool],
        time: SelectionTime,
    ) -> None:
        self.ready_list: ReadyList | PriorityReadyList = ReadyList(queue.drop_expired)
        self._deferred = Deferred(self._suits)
        self._groups: GroupOwners | None = None
        self.waiting: deque[Consumer] = deque()
        self.suspended = False
        self._queue = queue
        self._consumers: set[Consumer] = set()
        self._browse = BrowseConsumers(messages, is_expired, time)
        self.browse_consumers = self._browse.consumers
        selective = SelectiveConsumers(
            messages,
            self._browse,
            lambda: queue.last_number,
            self._give_selected,
            self._may_select,
            time=time,
        )
        self.selecting = selective.waiting
        self._selective = selective

    def __len__(self) -> int:
        return len(self._consumers) + len(self.browse_consumers)

    # -- consumers ------------------------------------------------------------------------------

    def subscribe(
        self, sink: Sink, *, browsing: bool, settles: bool, selects: Selects | None = None
    ) -> Consumer:
        """Add a consumer; call ``ready`` when it has capacity.

        :param browsing: gets copies.
        :param settles: each message leaves the queue when the consumer gets it (at-most-once).
        :param selects: returns True for messages that it takes; ``None`` for all.
        """
        consumer = Consumer(sink, browsing=browsing, settles=settles, selects=selects)
        if browsing:
            self._browse.add(consumer)
        elif selects is not None:
            self._consumers.add(consumer)
            self._selective.add(consumer)
            self.ready_list.on_returned = self._selective.returned
        else:
            self._consumers.add(consumer)
            if self._deferred:
                self._deferred.add_consumer(consumer)
        return consumer

    def unsubscribe(self, consumer: Consumer, *, died: bool) -> None:
        """Remove a consumer and requeue its messages, with a higher delivery count if it died."""
        consumer.sink = NO_SINK
        if consumer.browsing:
            self._browse.discard(consumer)
            return
        self._consumers.discard(consumer)
        self._selective.discard(consumer)
        if consumer.waiting:
            self.waiting.remove(consumer)
            consumer.waiting = False
        held, consumer.held = consumer.held, set()
        for message in held:
            message.delivery_count += died
            self._requeue(message)
        restored = self._restore(consumer, len(consumer.candidates))
        moved = self._groups is not None and self._groups.discard(consumer)
        if moved:
            for message in self._deferred.restore_all():
                self.ready_list.requeue(message)
            self._selective.begin_again()
        if held or restored or moved:
            self.pump()

    def ready(self, consumer: Consumer) -> None:
        """Serve a consumer that may have capacity again."""
        if consumer.browsing:
            if not self.suspended:
                self._browse.feed(consumer, self._queue.last_number)
            return
        if consumer.selects is not None:
            self._selective.ready(consumer)
            self.pump()
            return
        if not consumer.waiting and consumer in self._consumers:
            consumer.waiting = True
            self.waiting.append(consumer)
        if consumer.candidates:
            while self._restore(consumer, consumer.sink.capacity()):
                self.pump()
        self.pump()

    def idle_for(self, consumer: Consumer) -> bool:
        """Return True if no available message can be for this consumer now, or if delivery is suspended.

        A message counts if the consumer's selector has not examined it yet.
        """
        if self.suspended:
            return True
        if consumer.browsing:
            return self._browse.first_for(consumer, self._queue.last_number) is None
        if consumer.selects is not None:
            return self._selective.idle_for(consumer)
        head = self.ready_list.take()
        if head is not None:
            self.ready_list.requeue(head)
        return head is None

    def discard(self, message: Message) -> None:
        """Take a message away from the consumer that holds it.

        The consumer is not informed, and its later outcome has no effect.  The message stays in the queue.
        """
        for consumer in self._consumers:
            consumer.held.discard(message)

    def close(self) -> None:
        """Inform the consumers that the queue is deleted."""
        consumers = (*self._consumers, *self.browse_consumers)
        self._consumers.clear()
        self.browse_consumers.clear()
        self.waiting.clear()
        self.selecting.clear()
        for consumer in consumers:
            consumer.waiting = False
            consumer.sink.queue_deleted()

    def _restore(self, consumer: Consumer, most: int) -> int:
        """Move up to ``most`` of a consumer's candidates to the ready list; return how many."""
        restored = tuple(self._deferred.restore(consumer, most))
        for message in restored:
            self.ready_list.requeue(message)
        return len(restored)

    def suspend(self) -> None:
        """Stop delivery until ``resume``; waiting selective consumers must call ``ready`` again."""
        self.suspended = True
        self.selecting.clear()

    def resume(self) -> None:
        """Resume delivery."""
        self.suspended = False
        self.feed_browse_consumers()
        self.pump()

    # -- messages -------------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        """Add a new available message at the end, or delay it if it is not due; deliver nothing yet."""
        if message.due_at is not None and self._queue.delays.hold_back(message):
            return
        envelope = message.envelope
        if envelope.priority != DEFAULT_PRIORITY:
            self._use_priorities()
        if envelope.group is not None and self._groups is None:
            self._groups = GroupOwners()
        self.ready_list.append(message)

    def _use_priorities(self) -> None:
        if isinstance(self.ready_list, ReadyList):
            self.ready_list = PriorityReadyList(self._queue.drop_expired, self.ready_list)
            self._selective.by_priority = True

    def compact(self, depth: int) -> None:
        """Remove stale entries from the ready list and the deferred messages, once they are most entries.

        An entry is stale if its message left the queue, but was not taken from the list.

        :param depth: the number of messages in the queue.
        """
        self.ready_list.compact(depth)
        self._deferred.compact(depth)

    def modify(self, consumer: Consumer, message: Message, *, failed: bool, refused: bool) -> None:
        """Make a message that a consumer held available again at its position; see ``Queue.modify``."""
        if message not in consumer.held:
            return
        consumer.held.discard(message)
        if failed:
            message.delivery_count += 1
        if refused:
            message.refused_by = (message.refused_by or set()) | {consumer}
        self._requeue(message)
        self.pump()

    def restore_leaving(self, messages: Iterable[Message]) -> None:
        """Make messages available again that were leaving for a dead-letter queue."""
        for message in messages:
            if message.state is MessageState.LEAVING:
                message.state = MessageState.AVAILABLE
                self.ready_list.requeue(message)

    def add(self, message: Message) -> None:
        """Add an available message at its position, and deliver it if a consumer has capacity."""
        if message.envelope.priority != DEFAULT_PRIORITY:
            self._use_priorities()
        if message.envelope.group is not None and self._groups is None:
            self._groups = GroupOwners()
        self.ready_list.add(message)
        if self.browse_consumers:
            self.feed_browse_consumers()
        if self.waiting or self.selecting:
            self.pump()

    def feed_browse_consumers(self) -> None:
        """Send new available messages to the browse consumers."""
        if not self.suspended:
            self._browse.feed_all(self._queue.last_number)

    def pump(self) -> None:
        """Deliver messages while there are any and a consumer has capacity."""
        if self.suspended:
            return
        if self.selecting:
            self._selective.pump()
        waiting = self.waiting
        while waiting:
            consumer = waiting[0]
            capacity = consumer.sink.capacity()
            if capacity <= 0:
                waiting.popleft()
                consumer.waiting = False
                continue
            message = self.ready_list.take()
            if message is None:
                return
            restricted = message.refused_by is not None or self._groups is not None
            if restricted and not self._suits(consumer, message):
                self._give_to_another(message)
                continue
            if len(waiting) > 1:
                waiting.rotate(-1)
            self._give(consumer, message)

    def _give(self, consumer: Consumer, message: Message) -> None:
        queue = self._queue
        if message.delivery_count:
            if self._dead_letter_if_exhausted(message):
                return
            queue.counters.redelivered += 1
        queue.counters.acquired += 1
        if self._groups is not None:
            self._groups.assign(message, consumer)
        if consumer.settles:
            queue.drop(message)
            queue.counters.dequeued += 1
        else:
            message.state = MessageState.ACQUIRED
            message.failover_delivery_count += 1
            consumer.held.add(message)
            for observer in queue.observers:
                observer.acquired(queue, message)
        consumer.sink.deliver(message)

    def _give_selected(self, consumer: Consumer, message: Message) -> None:
        self._give(consumer, message)
        # The message stays in the ready list, which grows without this if all consumers are selective.
        self.compact(self._queue.depth)

    def _give_to_another(self, message: Message) -> None:
        """Give a message to another waiting consumer that can take it, or defer it."""
        for consumer in self.waiting:
            if self._suits(consumer, message) and consumer.sink.capacity() > 0:
                self._give(consumer, message)
                return
        self._deferred.defer(message, self._consumers)

    def _requeue(self, message: Message) -> None:
        message.state = MessageState.AVAILABLE
        if self._deferred:
            self._deferred.discard(message)
        queue = self._queue
        if not queue.drop_expired(message) and not (
            message.delivery_count and self._dead_letter_if_exhausted(message)
        ):
            self.ready_list.requeue(message)

    # -- which consumer may get a message -------------------------------------------------------

    def _suits(self, consumer: Consumer, message: Message) -> bool:
        """Return True if a consumer can take a message from the ready list, as only non-selective ones do."""
        return consumer.selects is None and self._may_select(consumer, message)

    def _may_select(self, consumer: Consumer, message: Message) -> bool:
        """Return True if a consumer can take a message.

        A message of a group goes to the group's owner, unless the owner cannot take it.
        """
        if not selects(consumer, message):
            return False
        owner = None if self._groups is None else self._groups.owner(message)
        return owner is None or owner is consumer or not selects(owner, message)

    # -- undeliverable messages -----------------------------------------------------------------

    def reject(self, consumer: Consumer, message: Message, description: str, gone: Call) -> None:
        """Dead-letter or remove a message that its consumer rejected; see ``Queue.reject``.

        If the consumer does not hold the message, ``gone`` is called at once, and nothing else happens.
        """
        if message not in consumer.held:
            gone()
            return
        consumer.held.discard(message)
        self._queue.counters.rejected += 1
        if not self._dead_letter(message, DeadLetterReason.REJECTED, description, gone):
            self._queue.drop(message)
            gone()

    def _dead_letter(
        self, message: Message, reason: DeadLetterReason, description: str = "", gone: Call = nothing
    ) -> bool:
        """Move a message that no consumer holds to the dead-letter address; return False if there is none."""
        queue = self._queue
        if queue.dead_letters is None or not queue.options.dead_letter_address:
            return False
        queue.dead_letters.move(queue, message, reason, description, gone)
        return True

    def _dead_letter_if_exhausted(self, message: Message) -> bool:
        """Remove or dead-letter a message that has reached the limit of deliveries; return True if it had."""
        queue = self._queue
        spent = 0 < queue.options.max_delivery_count <= message.delivery_count
        if spent and not self._dead_letter(message, DeadLetterReason.MAX_DELIVERY_COUNT):
            if not queue.counters.dropped:
                logger.warning("%s drops messages at the limit of deliveries", queue.name)
            queue.counters.dropped += 1
            queue.drop(message)
        return spent
