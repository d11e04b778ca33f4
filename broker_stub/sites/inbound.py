"""Carries another site's events out on the queues of the same names: a ``replication`` exchange.

Theory of operation
-------------------
Each target queue has a mark: the last sequence of the stream that was carried out there.  It
changes in the turn, and so in the transaction, of what the event did, and goes to the backups
with it: in the applied message itself, or, for an event that leaves no message, as a *ticket* that waits
for store and replicas as a message does.  An event is settled when its message or ticket is
safe; a second copy, when the last one of its queue is.

Rules
-----
* Events of one queue come in the order of their sequences, or come again.
* Every event is carried out, dropped or put aside, and then settled: nothing holds up the next one.
* What is put aside for want of a queue is carried out before anything else when the queue is made.

Source: docs/sites.md, "At the DR site".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from broker_stub.amqp.message_format import MalformedMessageError, inspect
from broker_stub.queueing.exchanges import Exchange, UnroutableError
from broker_stub.queueing.message import SAFE, Done, Message, Replicate
from broker_stub.queueing.nodes import Addresses, AddressRefusedError
from broker_stub.queueing.queue import Queue
from broker_stub.sites.anomalies import OddCases, Tell
from broker_stub.sites.event import Event, Op, annotate, decode, origin_of
from broker_stub.sites.marks import Marks
from broker_stub.sites.modes import REPLICATION_QUEUE, SiteMode

APPLYING, MISSING = "applying", "missing"
"""The exchange's options: whether it does anything, what becomes of events without a queue."""
CREATE, PARK = "create", "park"
# Positions that are remembered although their messages have left, so that they are forgotten together.
_SLACK = 1000


class OwnEventError(MalformedMessageError):
    """An event of this site itself: carried out, it would make the next one, and so on."""


@dataclass(slots=True)
class Tally:
    """What became of events since this member began to serve."""

    applied: int = 0
    duplicates: int = 0
    gaps: int = 0
    missing: int = 0
    created: int = 0
    parked: int = 0
    taken: int = 0
    copies: int = 0
    gone: int = 0
    malformed: int = 0


class Applier:
    """What one replication exchange does.

    :param now_ms: milliseconds since the epoch.
    :param tell: is told of events that are not as they should be.
    """

    def __init__(
        self, exchange: Exchange, addresses: Addresses, now_ms: Callable[[], int], tell: Tell
    ) -> None:
        self.tally = Tally()
        self.last: dict[str, int] = {}
        """The last sequence, by stream."""
        self.delay_ms: int | None = None
        """How old the last event was when it was carried out."""
        self._exchange = exchange
        self._addresses = addresses
        self._now_ms = now_ms
        # A queue that is deleted must not stay for what is remembered of it.
        self._tickets: WeakKeyDictionary[Queue, Message] = WeakKeyDictionary()
        self._indexes: WeakKeyDictionary[Queue, dict[tuple[bytes, int], int]] = WeakKeyDictionary()
        self.odd = OddCases(exchange.name, tell)

    @property
    def applying(self) -> bool:
        """Whether events are carried out; not any more when the site was promoted."""
        return self._exchange.options.get(APPLYING, True) is True

    @property
    def parking(self) -> str:
        """The name of the queue for events without a target queue."""
        return f"{self._exchange.name}.parked"

    def targets(self) -> list[str]:
        """The names of the queues that have followed a source."""
        found = (queue for queue in self._addresses if queue.marks is not None and queue.marks.applied)
        return sorted(queue.name for queue in found if queue.name != self.parking)

    def begin(self) -> None:
        """This member serves from now on: what it has is as the last primary left it."""
        self._tickets.clear()
        self._indexes.clear()
        self.last.clear()
        for queue in self._addresses:
            if queue.marks is not None:
                self._take_up(queue, queue.marks)
        self._unpark()

    def _take_up(self, queue: Queue, marks: Marks) -> None:
        """Go on from the marks of a queue, which are not behind its last message."""
        last = queue.message(max(queue.ids(), default=0))
        origin = None if last is None else origin_of(last.data)
        if origin is not None:
            marks.apply(origin.stream_name, origin.sequence)
        for stream, sequence in marks.applied.items():
            self.last[stream] = max(self.last.get(stream, 0), sequence)

    # -- events ---------------------------------------------------------------------------------

    def carry_out(self, data: bytes, done: Done, token: Any) -> None:
        """Do what an event says; ``done(token)`` when that is safe.

        :raises MalformedMessageError: when it is no event, or one of this site's own.
        :raises UnroutableError: when this site does not follow any more.
        """
        if not self.applying:
            raise UnroutableError(f"{self._exchange.name!r} carries out nothing: this site was promoted")
        try:
            event = decode(data)
            if event.op is Op.ENQUEUE:
                inspect(event.data)
        except MalformedMessageError as error:
            self._tell("malformed", str(error))
            raise
        self._refuse_own(event)
        self._watch_gaps(event)
        queue = self._target(event.queue)
        if queue is None:
            self._park(event, data, done, token)
        else:
            self._apply(queue, event, done, token)
        self.delay_ms = self._now_ms() - event.time_ms

    def _refuse_own(self, event: Event) -> None:
        log = self._addresses.find_queue(REPLICATION_QUEUE)
        if log is not None and log.identity == event.stream_name:
            raise OwnEventError("a link to this very cluster: it cannot follow itself")

    def _watch_gaps(self, event: Event) -> None:
        stream = event.stream_name
        last = self.last.get(stream)
        if last is not None and event.sequence > last + 1:
            self.tally.missing += event.sequence - last - 1
            self._tell("gaps", f"event {event.sequence} of {stream} came behind {last}", event.sequence)
        self.last[stream] = max(last or 0, event.sequence)

    def _target(self, name: str) -> Queue | None:
        if not self._may_be_target(name):
            return None
        queue = self._addresses.find_queue(name)
        if queue is not None or self._exchange.options.get(MISSING, CREATE) != CREATE:
            return queue
        try:
            queue = self._addresses.declare(name, replicate=Replicate.ALL)
        except AddressRefusedError:
            return None
        self._tell("created", f"queue {name!r}")
        return queue

    def _may_be_target(self, name: str) -> bool:
        queue = self._addresses.find_queue(name)
        return name not in (REPLICATION_QUEUE, self.parking) and not (queue is not None and queue.temporary)

    def _apply(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        if event.sequence <= self._marks(queue, event).applied[event.stream_name]:
            self._tell("duplicates", f"event {event.sequence} for {queue.name!r} came again", event.sequence)
            self._hold(queue, self._tickets.get(queue, SAFE), done, token)
            return
        self.tally.applied += 1
        if event.op is Op.ENQUEUE:
            self._enqueue(queue, event, done, token)
        else:
            self._dequeue(queue, event, done, token)

    def _marks(self, queue: Queue, event: Event) -> Marks:
        """The marks of a target queue; the backups know that it is one before the first event."""
        if queue.marks is None:
            queue.marks = Marks()
        if event.stream_name not in queue.marks.applied:
            queue.marks.apply(event.stream_name, 0)
            self._tickets[queue] = queue.mark()
        return queue.marks

    def _enqueue(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        index = self._index(queue) if event.mode is SiteMode.ALL else {}
        envelope = inspect(event.data)
        if queue.message(index.get(event.origin.place, 0)) is not None:
            self._tell("taken", f"position {event.position} of {queue.name!r} is taken", event.sequence)
            self._mark(queue, event, done, token)
            return
        copy = (
            envelope.duplicate_id is not None
            and queue.duplicates.first_copy(envelope.duplicate_id) is not None
        )
        if copy and event.mode is SiteMode.ALL:
            envelope = envelope._replace(duplicate_id=None)  # the source has both, and tells when each leaves
        elif copy:
            words = f"event {event.sequence} for {queue.name!r} is of a second copy"
            self._tell("copies", words, event.sequence)
            self._mark(queue, event, done, token)
            return
        lifetime = None
        if event.expires_at_ms:
            lifetime = max(0, event.expires_at_ms - self._now_ms()) / 1000
        message = self._put(queue, event, annotate(event.data, event.origin), done, token, envelope, lifetime)
        index[event.origin.place] = message.number

    def _put(self, queue: Queue, event: Event, data: bytes, done: Done, token: Any, *rest: Any) -> Message:
        self._marks(queue, event).apply(event.stream_name, event.sequence)
        message = queue.enqueue(data, done, token, *rest)
        assert message is not None, "whether it is a second copy was asked before"
        self._tickets[queue] = message
        return message

    def _dequeue(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        number = self._index(queue).pop(event.origin.place, 0)
        message = queue.message(number)
        if message is None:
            self._tell("gone", f"position {event.position} of {queue.name!r} is gone", event.sequence)
        else:
            queue.take_out(message)
        self._mark(queue, event, done, token)

    def _mark(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        """An event that leaves no message was carried out."""
        self._marks(queue, event).apply(event.stream_name, event.sequence)
        ticket = self._tickets[queue] = queue.mark()
        self._hold(queue, ticket, done, token)

    def _hold(self, queue: Queue, ticket: Message, done: Done, token: Any) -> None:
        if queue.guard is None:
            done(token)
        else:
            queue.guard.hold(ticket, done, token)

    # -- events without a queue -----------------------------------------------------------------

    def _park(self, event: Event, data: bytes, done: Done, token: Any) -> None:
        parking = self._addresses.find_queue(self.parking)
        if parking is None:
            parking = self._addresses.declare(self.parking, replicate=Replicate.ALL)
        if event.sequence <= self._marks(parking, event).applied[event.stream_name]:
            words = f"event {event.sequence} for {event.queue!r} is parked already"
            self._tell("duplicates", words, event.sequence)
            self._hold(parking, self._tickets.get(parking, SAFE), done, token)
            return
        words = f"event {event.sequence}: there is no queue {event.queue!r}"
        self._tell("parked", words, event.sequence)
        self._put(parking, event, annotate(data, event.origin), done, token)

    def queue_added(self, queue: Queue) -> None:
        """A queue is new: carry out what was parked for want of it."""
        if self._may_be_target(queue.name):
            self._unpark(queue)

    def _unpark(self, only: Queue | None = None) -> None:
        """Carry out what was parked, for one queue or for every one that there is now."""
        parking = self._addresses.find_queue(self.parking)
        if parking is None or not self.applying:
            return
        for number in parking.ids():
            message = parking.message(number)
            event = None if message is None else self._parked(message)
            if event is None or not self._may_be_target(event.queue):
                continue
            queue = self._addresses.find_queue(event.queue)
            if queue is not None and only in (None, queue):
                self._apply(queue, event, _take_out, (parking, message))

    def _parked(self, message: Message) -> Event | None:
        """The event that was parked; ``None`` for what was in the queue before its exchange was."""
        try:
            return decode(message.data)
        except MalformedMessageError as error:
            self._tell("malformed", f"message {message.number} of {self.parking!r}: {error}")
            return None

    # -- inside ---------------------------------------------------------------------------------

    def _index(self, queue: Queue) -> dict[tuple[bytes, int], int]:
        """The numbers of a queue's messages by their places at the source."""
        index = self._indexes.get(queue)
        if index is None or len(index) > 2 * queue.depth + _SLACK:
            messages = [queue.message(number) for number in queue.ids()]
            origins = [(origin_of(each.data), each.number) for each in messages if each is not None]
            index = {origin.place: number for origin, number in origins if origin is not None}
            self._indexes[queue] = index
        return index

    def _tell(self, case: str, words: str, sequence: int | None = None) -> None:
        """Count what is not as it should be, and say so."""
        setattr(self.tally, case, getattr(self.tally, case) + 1)
        self.odd.happened(case, words, sequence)


def _take_out(parked: tuple[Queue, Message]) -> None:
    """What was parked is carried out; that may be told twice."""
    parking, message = parked
    if parking.message(message.number) is message:
        parking.take_out(message)
