"""A queue: first in, first out, with competing consumers and browse consumers.  No I/O.

Theory of operation
-------------------
A message gets the queue's next number, which is its position, and keeps it.  This module knows the messages
and reports every change; ``dispatch.dispatcher`` delivers them to the consumers.

Rules
-----
* A message is available, acquired by one consumer, or removed for good.  Before that it may be *held*: no
  consumer gets a held message until it is complete, or until ``publish``.
* Only the consumer that holds a message can settle it, and only once.
* An expired message is never delivered.  If it expires while it is acquired, it is dropped when it is
  requeued.
* ``done(token)`` settles the producer's transfer: at once, or through the ``Guard`` when the message is
  complete.  A second copy of a message completes with the first.
* A number consists of a generation and a sequence (``SEQUENCE_BITS``), so two primaries never assign the same
  number to different messages.
* A backup's queue takes its numbers from the primary (``insert``, ``discard``).
* A ``full`` queue still takes messages, but senders get no new credit.  All queues are full while their total
  size exceeds its limit (``queue_limits``).  Queues with events for another site are also full while too many
  of these events wait.

Sources: AMQP 1.0 part 3, sections 3.2.1 (header), 3.3 (distribution nodes), 3.4 (delivery state).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from broker_stub.amqp.message_format import PLAIN, Envelope
from broker_stub.queueing.annotations import combined
from broker_stub.queueing.confirmations import Confirmations
from broker_stub.queueing.dispatch.arrivals import Arrivals
from broker_stub.queueing.dispatch.delayed import CallAt, DelayedMessages, never
from broker_stub.queueing.dispatch.dispatcher import Dispatcher
from broker_stub.queueing.dispatch.expiry import Expiry
from broker_stub.queueing.dispatch.selection_time import SelectionTime
from broker_stub.queueing.duplicate_detection import DuplicateWindow
from broker_stub.queueing.message import (
    SEQUENCE_BITS,
    Call,
    Consumer,
    Counters,
    Done,
    Guard,
    Message,
    MessageState,
    Replicate,
    Selects,
    Sink,
    nothing,
)
from broker_stub.queueing.observers import Burial, Observer, SiteEventListener
from broker_stub.queueing.options import NO_OPTIONS, QueueOptions
from broker_stub.queueing.queue_limits import DEFAULT_LIMITS, QueueLimits, TotalSize, Watermarks
from broker_stub.queueing.selectors import Selector
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode, SiteProgress

_MAY_EXPIRE = (MessageState.AVAILABLE, MessageState.DELAYED)


class Queue:
    """A queue of one address.

    :param clock: monotonic seconds.
    :param total: the size of all queues, including this one.
    :param site: the events that another site gets.
    :param dead_letters: moves undeliverable messages, if ``options`` have a dead-letter address.
    :param exclusive_to: the only connection that may take from it, ``None`` for any.
    :param temporary: lives as long as that connection.
    :param call_at: calls at a time by the clock, for delayed messages.
    :param on_expiring: called with the time, by the clock, at which ``expire`` is due for a message.
    :param selection_time: the time budget for selectors, shared by all queues.
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
        options: QueueOptions = NO_OPTIONS,
        dead_letters: Burial | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        call_at: CallAt = never,
        on_expiring: Callable[[Queue, float], None] = lambda _queue, _expires_at: None,
        selection_time: SelectionTime | None = None,
    ) -> None:
        self.name = name
        self.identity = identity or str(uuid.uuid4())
        self.replicate = replicate
        self.site = site
        self.options = options
        self.selector = Selector(options.selector, bounded=False) if options.selector else None
        """Selects the messages that it gets from exchanges; ``None`` for all."""
        self.dead_letters = dead_letters
        self.site_progress = SiteProgress() if name == REPLICATION_QUEUE else None
        """The progress that it records for another site."""
        self.site_listener: SiteEventListener | None = None
        """Makes site events of its changes while this member is primary."""
        self.exclusive_to = exclusive_to
        self.temporary = temporary
        self.deleted = False
        self.size = 0
        self.counters = Counters()
        self.guard: Guard | None = None
        self.duplicates = DuplicateWindow(limits.duplicates)
        self.confirmations = Confirmations(self)
        self._last_number = 0
        self._messages: dict[int, Message] = {}
        self.expiry = Expiry(clock, now_ms)
        """The expiry times of its messages."""
        self._on_expiring = on_expiring
        self._clocks = (clock, now_ms)
        self._call_at = call_at
        self._delays: DelayedMessages | None = None
        self._dispatcher = Dispatcher(
            self, self._messages, self.expiry.is_expired, selection_time or SelectionTime()
        )
        self._arrivals = Arrivals(
            self, self._dispatcher, add=self._add, remove=self._remove, set_times=self._set_times
        )
        self._held = self._arrivals.held
        self.observers: tuple[Observer, ...] = ()
        """The observers of each change, in the order of the calls."""
        self._watermarks = Watermarks(limits, TotalSize() if total is None else total)

    # -- state ----------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The number of messages in the queue: available, acquired, held and delayed ones."""
        return len(self._messages)

    @property
    def held(self) -> int:
        """The number of messages that wait until they and all before them are complete; all if suspended."""
        return len(self._messages) if self._dispatcher.suspended else len(self._held)

    @property
    def oldest(self) -> Message | None:
        """The first message, acquired or not."""
        return next(iter(self._messages.values()), None)

    @property
    def last_number(self) -> int:
        """The highest number that the queue has assigned or received."""
        return self._last_number

    @property
    def full(self) -> bool:
        """True if senders should get no new credit."""
        return not self.deleted and (
            self._watermarks.full(len(self._messages), self.size) or self._events_are_full
        )

    @property
    def _events_are_full(self) -> bool:
        return self.site_listener is not None and self.site_listener.full

    @property
    def full_itself(self) -> bool:
        """True if the queue has reached its own limits; moves between queues do not change the total size."""
        return not self.deleted and self._watermarks.full_itself(len(self._messages), self.size)

    @property
    def is_replicated(self) -> bool:
        """True if the backups have its messages."""
        return self.replicate is Replicate.ALL and not self.temporary

    @property
    def consumers(self) -> int:
        """The number of consumers, browse consumers included."""
        return len(self._dispatcher)

    def observe(self, observer: Observer) -> None:
        """Add an observer of every change."""
        self.observers = (*self.observers, observer)

    def unobserve(self, observer: Observer) -> None:
        """Remove an observer, if it is registered."""
        self.observers = tuple(other for other in self.observers if other is not observer)

    def when_not_full(self, call: Callable[[], None]) -> None:
        """Call once, later, when there may be credit again or the queue is deleted; check ``full`` then."""
        self._watermarks.wait(call)
        if self.site_listener is not None and self.site_listener.full:
            self.site_listener.when_not_full(self.ask_again)

    def ask_again(self) -> None:
        """Call every waiting callback of ``when_not_full`` now, each once."""
        self._watermarks.notify()

    def stop_waiting(self, call: Callable[[], None]) -> None:
        """Cancel a callback of ``when_not_full``, if it still waits."""
        self._watermarks.waiting.pop(call, None)

    def close(self) -> None:
        """End a deleted queue: consumers are informed now, senders that wait for credit when they send."""
        self.deleted = True
        if self._delays is not None:
            self._delays.close()
        if self.site_listener is not None:
            self.site_listener.stop_waiting(self.ask_again)
        self._watermarks.close(self.size)
        self._dispatcher.close()

    # -- producers ------------------------------------------------------------------------------

    def enqueue(
        self,
        data: bytes,
        done: Done,
        token: Any,
        envelope: Envelope = PLAIN,
        lifetime: float | None = None,
        *,
        producer: str | None = None,
    ) -> Message | None:
        """Add a message, if necessary held or delayed, and return it; return ``None`` for a second copy.

        :param done: called with ``token`` when the producer's transfer may be settled.
        :param lifetime: seconds until the message expires; its own time to live by default.
        :param producer: the container id of its sender, for consumers that want no messages of their own.
        """
        return self._arrivals.enqueue(data, done, token, envelope, lifetime, producer=producer)

    def _set_times(self, message: Message, lifetime: float | None) -> None:
        envelope = message.envelope
        if lifetime is None and envelope.ttl_ms is not None:
            lifetime = envelope.ttl_ms / 1000
        if lifetime is not None or envelope.expiry_ms:
            self.expiry.within(message, lifetime)
            self._expires(message)
        if envelope.delay_ms is not None or envelope.deliver_at_ms is not None:
            self.delays.schedule(message)

    def _add(self, message: Message) -> None:
        number, size = message.number, len(message.data)
        if number > self._last_number:  # noqa: PLR1730  (no call: faster)
            self._last_number = number
        self._messages[number] = message
        self.size += size
        self._watermarks.total.size += size

    def _remove(self, message: Message) -> None:
        if self._messages.pop(message.number, None) is not None:
            size = len(message.data) + len(message.annotations)
            self.size -= size
            self._watermarks.total.remove(size)

    def hold(self, data: bytes) -> Message:
        """Add a message that no consumer gets before ``publish``; observers see it now."""
        return self._arrivals.hold(data)

    def withdraw(self, message: Message) -> None:
        """Remove a message added by ``hold``, as if it had never been added."""
        self._arrivals.withdraw(message, self.observers)

    def publish(self, message: Message) -> None:
        """Make a held message available."""
        if message.state is MessageState.HELD:
            message.state = MessageState.AVAILABLE
            self._dispatcher.add(message)

    # -- consumers ------------------------------------------------------------------------------

    def subscribe(
        self, sink: Sink, *, browsing: bool = False, settles: bool = False, selects: Selects | None = None
    ) -> Consumer:
        """Add a consumer; call ``ready`` when it has capacity.

        :param settles: each message leaves the queue when the consumer gets it (at-most-once).
        :param selects: returns True for messages that it takes; ``None`` for all.
        """
        return self._dispatcher.subscribe(sink, browsing=browsing, settles=settles, selects=selects)

    def unsubscribe(self, consumer: Consumer, *, died: bool = False) -> None:
        """Remove a consumer and requeue its messages, with a higher delivery count if it died."""
        self._dispatcher.unsubscribe(consumer, died=died)

    def ready(self, consumer: Consumer) -> None:
        """Serve a consumer that may have capacity again."""
        self._dispatcher.ready(consumer)

    def idle_for(self, consumer: Consumer) -> bool:
        """Return True if no available message can be for this consumer now; see ``Dispatcher``."""
        return self._dispatcher.idle_for(consumer)

    def suspend_delivery(self) -> None:
        """Stop delivery until ``resume_delivery``: it is unknown which messages are complete."""
        self._dispatcher.suspend()
        self._held.release()

    def resume_delivery(self) -> None:
        """Resume delivery: the messages present when it was suspended are complete."""
        self._dispatcher.resume()

    # -- outcomes -------------------------------------------------------------------------------

    def accept(self, consumer: Consumer, message: Message) -> None:
        """Remove a message that the consumer accepted."""
        if message in consumer.held:
            consumer.held.discard(message)
            self.drop(message)
            self.counters.dequeued += 1

    def reject(
        self, consumer: Consumer, message: Message, description: str = "", gone: Call = nothing
    ) -> None:
        """Remove a message that the consumer found invalid, to the dead-letter address if there is one.

        :param description: the consumer's reason.
        :param gone: called when the message has left; at once if the consumer does not hold it.
        """
        self._dispatcher.reject(consumer, message, description, gone)

    def release(self, consumer: Consumer, message: Message) -> None:
        """Return a message to its position, as if it had not been delivered."""
        self.modify(consumer, message)

    def modify(
        self,
        consumer: Consumer,
        message: Message,
        *,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        annotations: bytes = b"",
    ) -> None:
        """Return a message to its position, modified (``Outcome``); remove it at the limit of deliveries."""
        if annotations and message in consumer.held:
            former = message.annotations
            self.annotate(message.number, combined(former, annotations))
            for observer in self.observers if message.annotations != former else ():
                observer.annotated(self, message)
        self._dispatcher.modify(consumer, message, failed=delivery_failed, refused=undeliverable_here)

    def annotate(self, number: int, annotations: bytes) -> Message | None:
        """Replace a message's annotations without informing observers; return it if it is in the queue."""
        message = self._messages.get(number)
        if message is not None:
            growth = len(annotations) - len(message.annotations)
            message.annotations = annotations
            self.size += growth
            self._watermarks.total.remove(-growth)
        return message

    # -- generations, backups and stores --------------------------------------------------------

    def start_generation(self, generation: int) -> None:
        """Assign numbers of this generation from now on; make messages that were leaving available again."""
        if self.options.dead_letter_address:
            self._dispatcher.restore_leaving(self._messages.values())
        self._last_number = max(self._last_number, generation << SEQUENCE_BITS)

    def ids(self) -> list[int]:
        """Return the numbers of the messages, in order."""
        return list(self._messages)

    def message(self, number: int) -> Message | None:
        """Return the message with a number, if it is still in the queue."""
        return self._messages.get(number)

    def insert(self, number: int, data: bytes, envelope: Envelope, count: int, expires_at_ms: int) -> None:
        """Add a message from another member or the store, with the delivery count ``count``.

        :param expires_at_ms: end of its time to live by this member's wall clock; 0 if it has none.
        :raises ValueError: if its number is not above all present ones.
        """
        if self._messages and number <= next(reversed(self._messages)):
            raise ValueError(f"message {number} is not behind the last one of {self.name!r}")
        message = Message(number, data, envelope)
        message.set_count(count)
        if expires_at_ms or envelope.expiry_ms:
            self.expiry.at(message, expires_at_ms)
            self._expires(message)
        if envelope.duplicate_id is not None:
            self.duplicates.add(envelope.duplicate_id, number)
        if envelope.delay_ms is not None or envelope.deliver_at_ms is not None:
            self.delays.schedule(message)
        self._add(message)
        self._dispatcher.append(message)

    def discard(self, numbers: Iterable[int]) -> None:
        """Remove messages that the primary no longer has."""
        for number in numbers:
            message = self._messages.get(number)
            if message is not None:
                self.drop(message)
        self._compact()

    def remove(self, message: Message) -> None:
        """Remove a message, acquired or not."""
        if message.state is MessageState.ACQUIRED:
            self._dispatcher.discard(message)
        self.drop(message)
        self.counters.dequeued += 1
        self._compact()

    # -- delays ---------------------------------------------------------------------------------

    @property
    def delays(self) -> DelayedMessages:
        """The queue's delayed messages."""
        if self._delays is None:
            self._delays = DelayedMessages(self._messages, self._clocks, self._call_at, self._dispatcher.add)
        return self._delays

    # -- expiry ---------------------------------------------------------------------------------

    def expire(self) -> int:
        """Drop the expired messages that are available or delayed; return how many."""
        count = 0
        for number in self.expiry.overdue():
            message = self._messages.get(number)
            if message is not None and message.state in _MAY_EXPIRE:
                count += self.drop_expired(message)
        self._compact()
        return count

    def correct_lifetimes(self, left: Iterable[tuple[int, int]]) -> list[Message]:
        """Apply remaining lifetimes, in milliseconds, from the primary; return the messages that differed."""
        present = ((self._messages.get(number), lifetime) for number, lifetime in left)
        corrected = [
            each for each, lifetime in present if each is not None and self.expiry.correct(each, lifetime)
        ]
        for message in corrected:
            self._expires(message)
        return corrected

    def _expires(self, message: Message) -> None:
        if message.expires_at is not None:
            self.expiry.compact(self._messages)
            self._on_expiring(self, message.expires_at)

    def drop_expired(self, message: Message) -> bool:
        """Drop a message if it has expired; return True if it had."""
        over = self.expiry.is_expired(message)
        if over:
            self.drop(message)
            self.counters.expired += 1
        return over

    # -- records --------------------------------------------------------------------------------

    def record_progress(self) -> Message:
        """Have the observers record the site progress; return a placeholder that completes with it."""
        completion = Message(0, b"", PLAIN)
        for observer in self.observers:
            observer.progress_changed(self, completion)
        return completion

    def record_confirmed(self, numbers: Sequence[int], owner: bytes, done: Done, token: Any) -> None:
        """Have the observers record the owner of accepted messages; see ``Confirmations``."""
        record = numbers, owner, done, token
        if self.site_listener is not None and self.site is SiteMode.ALL and self.guard is not None:
            self.guard.when_complete(self.site_listener.record(), self._write_confirmed, record)
        else:
            self._write_confirmed(record)

    def _write_confirmed(self, record: tuple[Sequence[int], bytes, Done, Any]) -> None:
        numbers, owner, done, token = record
        completion = Message(0, b"", PLAIN)
        for observer in self.observers:
            observer.confirmed(self, numbers, owner, completion)
        if self.guard is None:
            done(token)
        else:
            self.guard.when_complete(completion, done, token)

    # -- leaving --------------------------------------------------------------------------------

    def drop(self, message: Message) -> None:
        """Remove a message that no consumer holds, and report it."""
        message.state = MessageState.REMOVED
        self._remove(message)
        for observer in self.observers:
            observer.dequeued(self, message)
        if self.site_listener is not None:
            self.site_listener.dequeued(self, message)
        if self._watermarks.waiting and not self._events_are_full:
            self._watermarks.shrunk(len(self._messages), self.size)

    def _compact(self) -> None:
        """Remove stale entries of messages that have left the queue from all lists."""
        self._dispatcher.compact(len(self._messages))
        self.expiry.compact(self._messages)
        if self._delays is not None:
            self._delays.compact()
