"""A queue: first in, first out, with competing consumers and browse consumers.  No I/O.

Theory of operation
-------------------
A message gets the queue's next number and keeps it: that number is its position (``ready_list``).
``_waiting`` holds the consumers that may have capacity, in turn; one without is removed and
added again by ``ready``.  Browse consumers have a position of their own each (``browse``).

Rules
-----
* A message is available, acquired by one consumer, or removed for ever.  One that is
  *held* is none of these yet: no consumer gets it before ``publish``.
* Only the consumer that holds a message can settle it, and once.
* A message that is requeued goes back to its original position.
* An expired message is never delivered.  One that expires while it is acquired is dropped
  when it is requeued.
* ``done(token)`` settles the producer's transfer: at once, or by the ``Guard`` when the message is
  complete.  A second copy of a message completes with the first one.
* A number is a generation and a sequence (``SEQUENCE_BITS``), so two primaries never give
  the same number to different messages.
* A backup's queue takes its numbers from the primary (``insert``, ``discard``).
* A ``full`` queue still takes messages, but senders get no new credit; all queues are full while there are
  too many bytes in them together (``queue_limits``).

Sources: AMQP 1.0 part 3, sections 3.2.1 (header), 3.3 (distribution nodes), 3.4 (delivery state).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from broker_stub.amqp.message_format import PLAIN, Envelope
from broker_stub.queueing.browse import BrowseConsumers
from broker_stub.queueing.duplicate_detection import DuplicateWindow
from broker_stub.queueing.expiry import Expiry
from broker_stub.queueing.message import (
    NO_SINK,
    SAFE,
    SEQUENCE_BITS,
    Consumer,
    Counters,
    Done,
    Guard,
    Message,
    MessageState,
    Observer,
    Replicate,
    Sink,
    SiteEventListener,
)
from broker_stub.queueing.queue_limits import DEFAULT_LIMITS, QueueLimits, TotalSize, Watermarks
from broker_stub.queueing.ready_list import ReadyList
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode, SiteProgress


class Queue:
    """A queue of one address.

    :param clock: seconds, only ever growing.
    :param total: the size of all queues, of which it is one.
    :param site: which events another site gets of it.
    :param exclusive_to: the only connection that may take from it, ``None`` for any.
    :param temporary: lives as long as that connection.
    :param on_expiring: called with the time, by the clock, at which ``expire`` is due for a message.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        *,
        limits: QueueLimits = DEFAULT_LIMITS,
        total: TotalSize | None = None,
        exclusive_to: object | None = None,
        temporary: bool = False,
        identity: str | None = None,
        replicate: Replicate = Replicate.NONE,
        site: SiteMode = SiteMode.NONE,
        now_ms: Callable[[], int] = lambda: 0,
        on_expiring: Callable[[Queue, float], None] = lambda _queue, _expires_at: None,
    ) -> None:
        self.name = name
        self.identity = identity or str(uuid.uuid4())
        self.replicate = replicate
        self.site = site
        self.site_progress = SiteProgress() if name == REPLICATION_QUEUE else None
        """What it remembers for another site."""
        self.site_listener: SiteEventListener | None = None
        """Makes site events of its changes, while this member serves."""
        self.exclusive_to = exclusive_to
        self.temporary = temporary
        self.deleted = False
        self.size = 0
        self.counters = Counters()
        self.guard: Guard | None = None
        self.duplicates = DuplicateWindow(limits.duplicates)
        self._last_number = 0
        self._unsafe: dict[int, Message] = {}
        self._messages: dict[int, Message] = {}
        self._ready_list = ReadyList(self._drop_expired)
        self._expiry = Expiry(clock, now_ms)
        self._on_expiring = on_expiring
        self._consumers: set[Consumer] = set()
        self._waiting: deque[Consumer] = deque()
        self._browse_consumers = BrowseConsumers(self._messages, self._expiry.is_expired)
        self._observers: tuple[Observer, ...] = ()
        self._watermarks = Watermarks(limits, TotalSize() if total is None else total)

    # -- state ----------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Messages in the queue, acquired ones included."""
        return len(self._messages)

    @property
    def oldest(self) -> Message | None:
        """The first message, acquired or not."""
        return next(iter(self._messages.values()), None)

    @property
    def last_number(self) -> int:
        """The highest number that it knows of."""
        return self._last_number

    @property
    def full(self) -> bool:
        """Whether senders should get no new credit."""
        return not self.deleted and self._watermarks.full(len(self._messages), self.size)

    @property
    def is_replicated(self) -> bool:
        """Whether the backups have its messages."""
        return self.replicate is Replicate.ALL and not self.temporary

    @property
    def consumers(self) -> int:
        """Consumers, browse consumers included."""
        return len(self._consumers) + len(self._browse_consumers.consumers)

    def observe(self, observer: Observer) -> None:
        """Report every change to an observer from now on."""
        self._observers = (*self._observers, observer)

    def unobserve(self, observer: Observer) -> None:
        """Stop reporting to it."""
        self._observers = tuple(other for other in self._observers if other is not observer)

    def when_not_full(self, call: Callable[[], None]) -> None:
        """Call once when this queue and all together are below their low watermarks, or it is deleted."""
        self._watermarks.wait(call)

    def stop_waiting(self, call: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._watermarks.waiting.pop(call, None)

    def close(self) -> None:
        """The queue is deleted: senders that wait for credit learn it by sending."""
        self.deleted = True
        self._watermarks.close(self.size)

    # -- producers ------------------------------------------------------------------------------

    def enqueue(
        self, data: bytes, done: Done, token: Any, envelope: Envelope = PLAIN, lifetime: float | None = None
    ) -> Message | None:
        """Take a message; ``None`` for a second copy.

        :param done: called with ``token`` when the producer's transfer may be settled.
        :param lifetime: seconds after which the message is expired; its own time to live by default.
        """
        number = self._last_number + 1
        if envelope.duplicate_id is not None:
            first = self.duplicates.first_copy(envelope.duplicate_id)
            if first is not None:
                self.counters.duplicates += 1
                self._complete(self._unsafe.get(first), done, token)
                return None
            self.duplicates.remember(envelope.duplicate_id, number)
        message = Message(number, data, envelope)
        if lifetime is None and envelope.ttl_ms is not None:
            lifetime = envelope.ttl_ms / 1000
        if lifetime is not None or envelope.expiry_ms:
            self._expiry.within(message, lifetime)
            self._expires(message)
        self._append(message)
        self.counters.enqueued += 1
        for observer in self._observers:
            observer.enqueued(self, message)
        if self.site_listener is not None:
            self.site_listener.enqueued(self, message)
        if message.pending_acks:
            self._unsafe[number] = message
            message.on_complete = [(self._safe, number), *(message.on_complete or ())]
        self._complete(message, done, token)
        if self._browse_consumers.consumers:
            self._browse_consumers.feed_all(number)
        if self._waiting:
            self._pump()
        return message

    def _safe(self, number: int) -> None:
        del self._unsafe[number]

    def _append(self, message: Message) -> None:
        self._add(message)
        self._ready_list.append(message)

    def _add(self, message: Message) -> None:
        number = message.number
        self._last_number = max(self._last_number, number)
        self._messages[number] = message
        size = len(message.data)
        self.size += size
        self._watermarks.total.size += size

    def _complete(self, message: Message | None, done: Done, token: Any) -> None:
        if self.guard is None:
            done(token)
        else:
            self.guard.when_complete(message or SAFE, done, token)

    def hold(self, data: bytes) -> Message:
        """Take a message that no consumer gets before ``publish``; the observers see it now."""
        message = Message(self._last_number + 1, data, PLAIN)
        message.state = MessageState.HELD
        self._add(message)
        self.counters.enqueued += 1
        for observer in self._observers:
            observer.enqueued(self, message)
        return message

    def publish(self, message: Message) -> None:
        """A held message becomes available."""
        if message.state is MessageState.HELD:
            message.state = MessageState.AVAILABLE
            self._ready_list.add(message)
            if self._browse_consumers.consumers:
                self._browse_consumers.feed_all(self._last_number)
            if self._waiting:
                self._pump()

    def record_progress(self) -> Message:
        """Have the observers write the changed site progress; the result completes when all have it."""
        completion = Message(0, b"", PLAIN)
        for observer in self._observers:
            observer.progress_changed(self, completion)
        return completion

    # -- consumers ------------------------------------------------------------------------------

    def subscribe(self, sink: Sink, *, browsing: bool = False, settles: bool = False) -> Consumer:
        """A new consumer; call ``ready`` when it has room."""
        consumer = Consumer(sink, browsing=browsing, settles=settles)
        if browsing:
            self._browse_consumers.add(consumer)
        else:
            self._consumers.add(consumer)
        return consumer

    def unsubscribe(self, consumer: Consumer, *, died: bool = False) -> None:
        """The consumer is gone; what it holds is requeued, with a higher delivery count if it died."""
        consumer.sink = NO_SINK
        if consumer.browsing:
            self._browse_consumers.discard(consumer)
            return
        self._consumers.discard(consumer)
        if consumer.waiting:
            self._waiting.remove(consumer)
            consumer.waiting = False
        held, consumer.held = consumer.held, set()
        for message in held:
            message.delivery_count += died
            self._requeue(message)
        if held:
            self._pump()

    def ready(self, consumer: Consumer) -> None:
        """The consumer may have room (again)."""
        if consumer.browsing:
            self._browse_consumers.feed(consumer, self._last_number)
            return
        if self._ready_list.deferred:
            self._ready_list.restore_deferred(consumer)
        if not consumer.waiting and consumer in self._consumers:
            consumer.waiting = True
            self._waiting.append(consumer)
        self._pump()

    def idle_for(self, consumer: Consumer) -> bool:
        """Whether there is nothing now that the consumer could get."""
        if consumer.browsing:
            return self._browse_consumers.first_for(consumer, self._last_number) is None
        head = self._ready_list.take()
        if head is not None:
            self._ready_list.requeue(head)
        return head is None

    # -- outcomes -------------------------------------------------------------------------------

    def accept(self, consumer: Consumer, message: Message) -> None:
        """The consumer took responsibility: the message leaves."""
        if message in consumer.held:
            consumer.held.discard(message)
            self._drop(message)
            self.counters.dequeued += 1

    def reject(self, consumer: Consumer, message: Message) -> None:
        """The consumer found the message invalid: it leaves (there is no dead-letter queue)."""
        if message in consumer.held:
            consumer.held.discard(message)
            self._drop(message)
            self.counters.rejected += 1

    def release(self, consumer: Consumer, message: Message) -> None:
        """Back to its place, as if it had not been sent."""
        self.modify(consumer, message)

    def modify(
        self,
        consumer: Consumer,
        message: Message,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
    ) -> None:
        """Back to its place, with what the consumer says about it."""
        if message not in consumer.held:
            return
        consumer.held.discard(message)
        if delivery_failed:
            message.delivery_count += 1
        if undeliverable_here:
            message.refused_by = (message.refused_by or set()) | {consumer}
        self._requeue(message)
        self._pump()

    # -- copies ---------------------------------------------------------------------------------

    def start_generation(self, generation: int) -> None:
        """Number later messages as messages of this generation."""
        self._last_number = max(self._last_number, generation << SEQUENCE_BITS)

    def ids(self) -> list[int]:
        """The numbers of the messages, in order."""
        return list(self._messages)

    def message(self, number: int) -> Message | None:
        """The message of that number, if it is still there."""
        return self._messages.get(number)

    def insert(self, number: int, data: bytes, envelope: Envelope, count: int, expires_at_ms: int) -> None:
        """Take a message as another member or the store has it; its number must be new and the highest."""
        if self._messages and number <= next(reversed(self._messages)):
            raise ValueError(f"message {number} is not behind the last one of {self.name!r}")
        message = Message(number, data, envelope)
        message.set_count(count)
        if expires_at_ms or envelope.expiry_ms:
            self._expiry.at(message, expires_at_ms)
            self._expires(message)
        if envelope.duplicate_id is not None:
            self.duplicates.add(envelope.duplicate_id, number)
        self._append(message)

    def discard(self, numbers: Iterable[int]) -> None:
        """Messages that the primary has no more."""
        for number in numbers:
            message = self._messages.get(number)
            if message is not None:
                self._drop(message)
        self._compact()

    def remove(self, message: Message) -> None:
        """Remove a message, acquired or not."""
        if message.state is MessageState.ACQUIRED:
            for consumer in self._consumers:
                consumer.held.discard(message)
        self._drop(message)
        self.counters.dequeued += 1
        self._compact()

    # -- expiry ---------------------------------------------------------------------------------

    def expire(self) -> int:
        """Drop the expired available messages; how many there were."""
        count = 0
        for number in self._expiry.overdue():
            message = self._messages.get(number)
            if message is not None and message.state is MessageState.AVAILABLE:
                count += self._drop_expired(message)
        self._compact()
        return count

    def remaining(self, message: Message) -> float | None:
        """Seconds until the message expires, ``None`` when it never does."""
        return self._expiry.remaining(message)

    def lifetime_ms(self, message: Message) -> int:
        """What is left of its time to live, at least 1; 0 when it has none but an absolute expiry."""
        return self._expiry.lifetime_ms(message)

    def correct_lifetimes(self, left: Iterable[tuple[int, int]]) -> list[Message]:
        """Take from the primary what messages have left to live, in milliseconds; those that had another."""
        present = ((self._messages.get(number), lifetime) for number, lifetime in left)
        corrected = [
            each for each, lifetime in present if each is not None and self._expiry.correct(each, lifetime)
        ]
        for message in corrected:
            self._expires(message)
        return corrected

    @property
    def next_expiry(self) -> float | None:
        """When ``expire`` is due next, by the clock; ``None`` for never."""
        return self._expiry.next

    def _expires(self, message: Message) -> None:
        if message.expires_at is not None:
            self._expiry.compact(self._messages)
            self._on_expiring(self, message.expires_at)

    def _drop_expired(self, message: Message) -> bool:
        over = self._expiry.is_expired(message)
        if over:
            self._drop(message)
            self.counters.expired += 1
        return over

    # -- inside ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Hand out messages while there are any and somebody has room."""
        waiting = self._waiting
        while waiting:
            consumer = waiting[0]
            capacity = consumer.sink.capacity()
            if capacity <= 0:
                waiting.popleft()
                consumer.waiting = False
                continue
            message = self._ready_list.take()
            if message is None:
                return
            if message.refused_by is not None and consumer in message.refused_by:
                self._give_to_another(message)
                continue
            if len(waiting) > 1:
                waiting.rotate(-1)
            self._give(consumer, message)

    def _give(self, consumer: Consumer, message: Message) -> None:
        self.counters.acquired += 1
        if message.delivery_count:
            self.counters.redelivered += 1
        if consumer.settles:
            self._drop(message)
            self.counters.dequeued += 1
        else:
            message.state = MessageState.ACQUIRED
            message.failover_delivery_count += 1
            consumer.held.add(message)
            for observer in self._observers:
                observer.acquired(self, message)
        consumer.sink.deliver(message)

    def _give_to_another(self, message: Message) -> None:
        """A message that not every consumer takes: to one that does, or aside until one is ready."""
        refused_by = message.refused_by or set()
        for consumer in self._waiting:
            if consumer not in refused_by and consumer.sink.capacity() > 0:
                self._give(consumer, message)
                return
        self._ready_list.defer(message)

    def _requeue(self, message: Message) -> None:
        message.state = MessageState.AVAILABLE
        if not self._drop_expired(message):
            self._ready_list.requeue(message)

    def _drop(self, message: Message) -> None:
        message.state = MessageState.REMOVED
        del self._messages[message.number]
        size = len(message.data)
        self.size -= size
        self._watermarks.total.remove(size)
        for observer in self._observers:
            observer.dequeued(self, message)
        if self.site_listener is not None:
            self.site_listener.dequeued(self, message)
        if self._watermarks.waiting:
            self._watermarks.shrunk(len(self._messages), self.size)

    def _compact(self) -> None:
        """Release what has left while no consumer took from the queue."""
        self._ready_list.compact(len(self._messages))
        self._expiry.compact(self._messages)
