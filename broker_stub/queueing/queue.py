"""A queue: first in, first out, with competing consumers and browsers.  No I/O.

Theory of operation
-------------------
A message gets the queue's next number and keeps it: that number is its place (``order``).
``_waiting`` holds the consumers that may have room, in turn; whoever has none is taken out and
comes back by ``ready``.  Browsers have a place of their own each (``browsing``).

Rules
-----
* A message is available, acquired by one consumer, or gone.  Gone is for ever.  One that is
  *withheld* is none of these yet: nobody is given it before ``hand_out``.
* Only the consumer that holds a message can settle it, and once.
* A message that comes back stands at its original place.
* An expired message is never handed out.  One that expires while it is acquired is dropped
  when it comes back.
* The producer is told by ``done(token)``: at once, or by the ``Guard`` when it lets the message
  go.  A second copy of a message is told when the first one is.
* A number is a generation and a sequence (``SEQUENCE_BITS``), so two primaries never give
  the same number to different messages.
* A copy of a queue takes the numbers it is told (``copy``, ``forget``).
* When it is ``full`` the queue takes messages still, but senders get no new credit (``room``).

Sources: AMQP 1.0 part 3, sections 3.2.1 (header), 3.3 (distribution nodes), 3.4 (delivery state).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from broker_stub.amqp.message_format import PLAIN, Envelope
from broker_stub.queueing.browse import Browsers
from broker_stub.queueing.duplicate_detection import DuplicateWindow
from broker_stub.queueing.expiry import Expiry
from broker_stub.queueing.message import (
    DEFAULT_LIMITS,
    NO_SINK,
    SAFE,
    SEQUENCE_BITS,
    Consumer,
    Counters,
    Done,
    Guard,
    Message,
    Observer,
    Place,
    QueueLimits,
    Replicate,
    Sink,
    Teller,
)
from broker_stub.queueing.queue_limits import Room
from broker_stub.queueing.ready_list import Order
from broker_stub.sites.marks import Marks
from broker_stub.sites.modes import REPLICATION_QUEUE, SiteMode


class Queue:
    """A queue of one address.

    :param clock: seconds, only ever growing.
    :param site: which events another site gets of it.
    :param exclusive_to: the only connection that may take from it, ``None`` for any.
    :param temporary: lives as long as that connection.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        *,
        limits: QueueLimits = DEFAULT_LIMITS,
        exclusive_to: object | None = None,
        temporary: bool = False,
        identity: str | None = None,
        replicate: Replicate = Replicate.NONE,
        site: SiteMode = SiteMode.NONE,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = name
        self.identity = identity or str(uuid.uuid4())
        self.replicate = replicate
        self.site = site
        self.marks = Marks() if name == REPLICATION_QUEUE else None
        """What it remembers for another site's sake."""
        self.teller: Teller | None = None
        """Who makes events of what happens to it, while this member serves."""
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
        self._order = Order(self._drop_expired)
        self._expiry = Expiry(clock, now_ms)
        self._consumers: set[Consumer] = set()
        self._waiting: deque[Consumer] = deque()
        self._browsers = Browsers(self._messages, self._expiry.is_over)
        self._observers: tuple[Observer, ...] = ()
        self._room = Room(limits)

    # -- state ----------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Messages in the queue, acquired ones included."""
        return len(self._messages)

    @property
    def oldest(self) -> Message | None:
        """The first message, whoever has it."""
        return next(iter(self._messages.values()), None)

    @property
    def last_number(self) -> int:
        """The highest number that it knows of."""
        return self._last_number

    @property
    def full(self) -> bool:
        """Whether senders should get no new credit."""
        return not self.deleted and self._room.full(len(self._messages), self.size)

    @property
    def consumers(self) -> int:
        """Consumers and browsers that are subscribed."""
        return len(self._consumers) + len(self._browsers.consumers)

    def observe(self, observer: Observer) -> None:
        """Tell an observer of every message from now on."""
        self._observers = (*self._observers, observer)

    def unobserve(self, observer: Observer) -> None:
        """Tell it no longer."""
        self._observers = tuple(other for other in self._observers if other is not observer)

    def when_room(self, call: Callable[[], None]) -> None:
        """Call once when the queue has sunk below its low-water mark, or is deleted."""
        self._room.waiting.append(call)

    def close(self) -> None:
        """The queue is deleted: whoever waits for room may learn it by sending."""
        self.deleted = True
        self._room.call()

    # -- producers ------------------------------------------------------------------------------

    def enqueue(
        self, data: bytes, done: Done, token: Any, envelope: Envelope = PLAIN, lifetime: float | None = None
    ) -> Message | None:
        """Take a message; ``None`` for a second copy.

        :param done: called with ``token`` when the producer may be told that the message is safe.
        :param lifetime: seconds after which the message is expired.
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
        if lifetime is not None:
            self._expiry.within(message, lifetime)
        self._append(message)
        self.counters.enqueued += 1
        for observer in self._observers:
            observer.enqueued(self, message)
        if self.teller is not None:
            self.teller.enqueued(self, message)
        if message.waits:
            self._unsafe[number] = message
            message.calls = [(self._safe, number), *(message.calls or ())]
        self._complete(message, done, token)
        if self._browsers.consumers:
            self._browsers.feed_all(number)
        if self._waiting:
            self._pump()
        return message

    def _safe(self, number: int) -> None:
        del self._unsafe[number]

    def _append(self, message: Message) -> None:
        self._hold(message)
        self._order.append(message)

    def _hold(self, message: Message) -> None:
        number = message.number
        self._last_number = max(self._last_number, number)
        self._messages[number] = message
        self.size += len(message.data)

    def _complete(self, message: Message | None, done: Done, token: Any) -> None:
        if self.guard is None:
            done(token)
        else:
            self.guard.hold(message or SAFE, done, token)

    def withhold(self, data: bytes) -> Message:
        """Take a message that nobody is given before ``hand_out``; the observers are told now."""
        message = Message(self._last_number + 1, data, PLAIN)
        message.place = Place.WITHHELD
        self._hold(message)
        self.counters.enqueued += 1
        for observer in self._observers:
            observer.enqueued(self, message)
        return message

    def hand_out(self, message: Message) -> None:
        """Whoever wants it may have a message that was withheld."""
        if message.place is Place.WITHHELD:
            message.place = Place.AVAILABLE
            self._order.add(message)
            if self._browsers.consumers:
                self._browsers.feed_all(self._last_number)
            if self._waiting:
                self._pump()

    def mark(self) -> Message:
        """Tell the observers that the marks have changed; what waits until all have them."""
        ticket = Message(0, b"", PLAIN)
        for observer in self._observers:
            observer.marked(self, ticket)
        return ticket

    # -- consumers ------------------------------------------------------------------------------

    def subscribe(self, sink: Sink, *, browsing: bool = False, settles: bool = False) -> Consumer:
        """A new consumer; call ``ready`` when it has room."""
        consumer = Consumer(sink, browsing=browsing, settles=settles)
        if browsing:
            self._browsers.add(consumer)
        else:
            self._consumers.add(consumer)
        return consumer

    def unsubscribe(self, consumer: Consumer, *, died: bool = False) -> None:
        """The consumer is gone; what it holds comes back, with the delivery count up if it died."""
        consumer.sink = NO_SINK
        if consumer.browsing:
            self._browsers.discard(consumer)
            return
        self._consumers.discard(consumer)
        if consumer.waiting:
            self._waiting.remove(consumer)
            consumer.waiting = False
        held, consumer.held = consumer.held, set()
        for message in held:
            message.delivery_count += died
            self._put_back(message)
        if held:
            self._pump()

    def ready(self, consumer: Consumer) -> None:
        """The consumer may have room (again)."""
        if consumer.browsing:
            self._browsers.feed(consumer, self._last_number)
            return
        if self._order.parked:
            self._order.unpark(consumer)
        if not consumer.waiting and consumer in self._consumers:
            consumer.waiting = True
            self._waiting.append(consumer)
        self._pump()

    def idle_for(self, consumer: Consumer) -> bool:
        """Whether there is nothing now that the consumer could get."""
        if consumer.browsing:
            return self._browsers.first_for(consumer, self._last_number) is None
        head = self._order.take()
        if head is not None:
            self._order.put_back(head)
        return head is None

    # -- outcomes -------------------------------------------------------------------------------

    def accept(self, consumer: Consumer, message: Message) -> None:
        """The consumer took responsibility: the message leaves."""
        if message in consumer.held:
            consumer.held.discard(message)
            self._remove(message)
            self.counters.dequeued += 1

    def reject(self, consumer: Consumer, message: Message) -> None:
        """The consumer found the message invalid: it leaves (there is no dead-letter queue)."""
        if message in consumer.held:
            consumer.held.discard(message)
            self._remove(message)
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
        self._put_back(message)
        self._pump()

    # -- copies ---------------------------------------------------------------------------------

    def start_generation(self, generation: int) -> None:
        """Number what comes from now on as messages of this generation."""
        self._last_number = max(self._last_number, generation << SEQUENCE_BITS)

    def ids(self) -> list[int]:
        """The numbers of the messages, in order."""
        return list(self._messages)

    def message(self, number: int) -> Message | None:
        """The message of that number, if it is still there."""
        return self._messages.get(number)

    def copy(self, number: int, data: bytes, envelope: Envelope, count: int, expires_at_ms: int) -> None:
        """Take a message as another member or the store has it; its number must be new and the highest."""
        if self._messages and number <= next(reversed(self._messages)):
            raise ValueError(f"message {number} is not behind the last one of {self.name!r}")
        message = Message(number, data, envelope)
        message.set_count(count)
        if expires_at_ms:
            self._expiry.at(message, expires_at_ms)
        if envelope.duplicate_id is not None:
            self.duplicates.note(envelope.duplicate_id, number)
        self._append(message)

    def forget(self, numbers: Iterable[int]) -> None:
        """Messages that the primary has no more."""
        for number in numbers:
            message = self._messages.get(number)
            if message is not None:
                self._remove(message)
        self._compact()

    def take_out(self, message: Message) -> None:
        """Remove a message that is here, whoever has it."""
        if message.place is Place.ACQUIRED:
            for consumer in self._consumers:
                consumer.held.discard(message)
        self._remove(message)
        self.counters.dequeued += 1
        self._compact()

    # -- expiry ---------------------------------------------------------------------------------

    def expire(self) -> int:
        """Drop the available messages whose time is over; how many there were."""
        count = 0
        for number in self._expiry.overdue():
            message = self._messages.get(number)
            if message is not None and message.place is Place.AVAILABLE:
                count += self._drop_expired(message)
        self._compact()
        return count

    def remaining(self, message: Message) -> float | None:
        """Seconds until the message expires, ``None`` when it never does."""
        return self._expiry.remaining(message)

    def _drop_expired(self, message: Message) -> bool:
        over = self._expiry.is_over(message)
        if over:
            self._remove(message)
            self.counters.expired += 1
        return over

    # -- inside ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Hand out messages while there are any and somebody has room."""
        waiting = self._waiting
        while waiting:
            consumer = waiting[0]
            room = consumer.sink.room()
            if room <= 0:
                waiting.popleft()
                consumer.waiting = False
                continue
            message = self._order.take()
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
            self._remove(message)
            self.counters.dequeued += 1
        else:
            message.place = Place.ACQUIRED
            message.given += 1
            consumer.held.add(message)
            for observer in self._observers:
                observer.acquired(self, message)
        consumer.sink.deliver(message)

    def _give_to_another(self, message: Message) -> None:
        """A message that not every consumer takes: to one that does, or aside until one is ready."""
        refused_by = message.refused_by or set()
        for consumer in self._waiting:
            if consumer not in refused_by and consumer.sink.room() > 0:
                self._give(consumer, message)
                return
        self._order.park(message)

    def _put_back(self, message: Message) -> None:
        message.place = Place.AVAILABLE
        if not self._drop_expired(message):
            self._order.put_back(message)

    def _remove(self, message: Message) -> None:
        message.place = Place.GONE
        del self._messages[message.number]
        self.size -= len(message.data)
        for observer in self._observers:
            observer.dequeued(self, message)
        if self.teller is not None:
            self.teller.dequeued(self, message)
        if self._room.waiting:
            self._room.sunk(len(self._messages), self.size)

    def _compact(self) -> None:
        """Let go of what has left while nobody took from the queue."""
        self._order.compact(len(self._messages))
        self._expiry.compact(self._messages)
