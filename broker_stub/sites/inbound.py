"""Applies another site's events to the queues of the same names: a ``replication`` exchange.

Theory of operation
-------------------
Each target queue records the last sequence of the stream that was applied to it.  The record changes in the
event-loop iteration, and so in the transaction, of the event's effect, and is replicated with it.  The
applied message itself carries the record.  If an event leaves no message, a *completion* carries it and waits
for store and replicas like a message.  An event is settled when its message or completion is complete.  A
second copy of an event is settled when the latest completion of its queue is.

Rules
-----
* Events of one queue arrive in the order of their sequences, or are repeated.
* Every event is applied, dropped or put into the unroutable queue, and then settled: none delays the next.
* If the limit of queues prevents making an event's queue, it counts as an event without a queue.
* When a queue is made, the waiting events for it are applied before anything else.

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
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode, SiteProgress
from broker_stub.sites.anomalies import Anomalies, ReportAnomaly
from broker_stub.sites.event import Event, Op, annotate, decode, origin_of

APPLYING, MISSING = "applying", "missing"
"""The exchange's options: whether it applies events, and how it handles events without a queue."""
CREATE, KEEP = "create", "park"
# Stale positions that an index may keep, so that they are removed many at a time.
_SLACK = 1000


class OwnEventError(MalformedMessageError):
    """An event of this site itself: applying it would make another event, and so on."""


@dataclass(slots=True)
class EventCounts:
    """The number of events since this member became primary, by result."""

    applied: int = 0
    duplicates: int = 0
    gaps: int = 0
    missing: int = 0
    created: int = 0
    parked: int = 0  # in the unroutable queue; the names of the fields are sent in status and telemetry
    taken: int = 0
    copies: int = 0
    gone: int = 0
    malformed: int = 0


class Inbound:
    """Applies the events that one replication exchange receives.

    :param now_ms: milliseconds since the epoch.
    :param report: called with anomalies.
    """

    def __init__(
        self, exchange: Exchange, addresses: Addresses, now_ms: Callable[[], int], report: ReportAnomaly
    ) -> None:
        self.counts = EventCounts()
        self.last: dict[str, int] = {}
        """The last sequence, by stream."""
        self.delay_ms: int | None = None
        """The age of the last event when it was applied."""
        self._exchange = exchange
        self._addresses = addresses
        self._now_ms = now_ms
        # Weak keys, so that the entries of a deleted queue do not keep it in memory.
        self._completions: WeakKeyDictionary[Queue, Message] = WeakKeyDictionary()
        self._indexes: WeakKeyDictionary[Queue, dict[tuple[bytes, int], int]] = WeakKeyDictionary()
        self.anomalies = Anomalies(exchange.name, report)

    @property
    def applying(self) -> bool:
        """True if events are applied; False after the site was promoted."""
        return self._exchange.options.get(APPLYING, True) is True

    @property
    def unroutable_queue(self) -> str:
        """The name of the queue for events without a target queue."""
        return f"{self._exchange.name}.parked"  # a stored name

    def targets(self) -> list[str]:
        """Return the names of the queues that have followed a source."""
        found = (
            queue
            for queue in self._addresses
            if queue.site_progress is not None and queue.site_progress.applied
        )
        return sorted(queue.name for queue in found if queue.name != self.unroutable_queue)

    def begin(self) -> None:
        """Begin as primary, from the state that the last primary left."""
        self._completions.clear()
        self._indexes.clear()
        self.last.clear()
        for queue in self._addresses:
            if queue.site_progress is not None:
                self._resume_from(queue, queue.site_progress)
        self._apply_unroutable()

    def _resume_from(self, queue: Queue, progress: SiteProgress) -> None:
        """Continue from a queue's site progress, and from its last message if that is newer."""
        last = queue.message(max(queue.ids(), default=0))
        origin = None if last is None else origin_of(last.data)
        if origin is not None:
            progress.apply(origin.stream_name, origin.sequence)
        for stream, sequence in progress.applied.items():
            self.last[stream] = max(self.last.get(stream, 0), sequence)

    # -- events ---------------------------------------------------------------------------------

    def apply_event(self, data: bytes, done: Done, token: Any) -> None:
        """Apply an event, and call ``done(token)`` when this is complete.

        :raises MalformedMessageError: when it is not an event, or is one of this site's own.
        :raises UnroutableError: when this site no longer follows.
        """
        if not self.applying:
            raise UnroutableError(f"{self._exchange.name!r} applies nothing: this site was promoted")
        try:
            event = decode(data)
            if event.op is Op.ENQUEUE:
                inspect(event.data)
        except MalformedMessageError as error:
            self._report("malformed", str(error))
            raise
        self._refuse_own(event)
        self._watch_gaps(event)
        queue = self._target(event.queue)
        if queue is None:
            self._keep_unroutable(event, data, done, token)
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
            self.counts.missing += event.sequence - last - 1
            self._report("gaps", f"event {event.sequence} of {stream} arrived after {last}", event.sequence)
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
        self._report("created", f"queue {name!r}")
        return queue

    def _may_be_target(self, name: str) -> bool:
        queue = self._addresses.find_queue(name)
        return name not in (REPLICATION_QUEUE, self.unroutable_queue) and not (
            queue is not None and queue.temporary
        )

    def _apply(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        if event.sequence <= self._progress_of(queue, event).applied[event.stream_name]:
            self._report(
                "duplicates", f"event {event.sequence} for {queue.name!r} was sent again", event.sequence
            )
            self._when_complete(queue, self._completions.get(queue, SAFE), done, token)
            return
        self.counts.applied += 1
        if event.op is Op.ENQUEUE:
            self._enqueue(queue, event, done, token)
        else:
            self._dequeue(queue, event, done, token)

    def _progress_of(self, queue: Queue, event: Event) -> SiteProgress:
        """Return the site progress of a target queue; the backups get it before the first event."""
        if queue.site_progress is None:
            queue.site_progress = SiteProgress()
        if event.stream_name not in queue.site_progress.applied:
            queue.site_progress.apply(event.stream_name, 0)
            self._completions[queue] = queue.record_progress()
        return queue.site_progress

    def _enqueue(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        index = self._index(queue) if event.mode is SiteMode.ALL else {}
        envelope = inspect(event.data)
        if queue.message(index.get(event.origin.queue_position, 0)) is not None:
            self._report("taken", f"position {event.position} of {queue.name!r} is occupied", event.sequence)
            self._record(queue, event, done, token)
            return
        copy = (
            envelope.duplicate_id is not None
            and queue.duplicates.first_copy(envelope.duplicate_id) is not None
        )
        if copy and event.mode is SiteMode.ALL:
            envelope = envelope._replace(
                duplicate_id=None
            )  # the source has both, and reports when each leaves
        elif copy:
            description = f"event {event.sequence} for {queue.name!r} is of a second copy"
            self._report("copies", description, event.sequence)
            self._record(queue, event, done, token)
            return
        lifetime = None
        if event.expires_at_ms and event.expires_at_ms != envelope.expiry_ms:
            lifetime = max(0, event.expires_at_ms - self._now_ms()) / 1000
        message = self._put(queue, event, annotate(event.data, event.origin), done, token, envelope, lifetime)
        index[event.origin.queue_position] = message.number

    def _put(self, queue: Queue, event: Event, data: bytes, done: Done, token: Any, *rest: Any) -> Message:
        progress = self._progress_of(queue, event)
        before = progress.applied[event.stream_name]
        progress.apply(event.stream_name, event.sequence)
        try:
            message = queue.enqueue(data, done, token, *rest)
        except BaseException:
            # The event was not applied, so its next copy is not a duplicate.
            progress.applied[event.stream_name] = before
            raise
        assert message is not None, "whether it is a second copy was asked before"
        self._completions[queue] = message
        return message

    def _dequeue(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        index = self._index(queue)
        message = queue.message(index.get(event.origin.queue_position, 0))
        if message is None:
            self._report(
                "gone", f"position {event.position} of {queue.name!r} was removed before", event.sequence
            )
        else:
            queue.remove(message)
        index.pop(event.origin.queue_position, None)
        self._record(queue, event, done, token)

    def _record(self, queue: Queue, event: Event, done: Done, token: Any) -> None:
        """Record an event that leaves no message as applied."""
        self._progress_of(queue, event).apply(event.stream_name, event.sequence)
        completion = self._completions[queue] = queue.record_progress()
        self._when_complete(queue, completion, done, token)

    def _when_complete(self, queue: Queue, completion: Message, done: Done, token: Any) -> None:
        if queue.guard is None:
            done(token)
        else:
            queue.guard.when_complete(completion, done, token)

    # -- events without a queue -----------------------------------------------------------------

    def _keep_unroutable(self, event: Event, data: bytes, done: Done, token: Any) -> None:
        unroutable_queue = self._addresses.find_queue(self.unroutable_queue)
        if unroutable_queue is None:
            unroutable_queue = self._addresses.declare(
                self.unroutable_queue, replicate=Replicate.ALL, limited=False
            )
        if event.sequence <= self._progress_of(unroutable_queue, event).applied[event.stream_name]:
            description = f"event {event.sequence} for {event.queue!r} is already in the unroutable queue"
            self._report("duplicates", description, event.sequence)
            self._when_complete(unroutable_queue, self._completions.get(unroutable_queue, SAFE), done, token)
            return
        description = f"event {event.sequence}: there is no queue {event.queue!r}"
        self._report("parked", description, event.sequence)
        self._put(unroutable_queue, event, annotate(data, event.origin), done, token)

    def queue_added(self, queue: Queue) -> None:
        """Apply the events that could not be routed to a queue before it was made."""
        if self._may_be_target(queue.name):
            self._apply_unroutable(queue)

    def _apply_unroutable(self, only: Queue | None = None) -> None:
        """Apply unroutable events whose queue exists now, for one queue or for all."""
        unroutable_queue = self._addresses.find_queue(self.unroutable_queue)
        if unroutable_queue is None or not self.applying:
            return
        for number in unroutable_queue.ids():
            message = unroutable_queue.message(number)
            event = None if message is None else self._unroutable_event(message)
            if event is None or not self._may_be_target(event.queue):
                continue
            queue = self._addresses.find_queue(event.queue)
            if queue is not None and only in (None, queue):
                self._apply(queue, event, _remove_unroutable, (unroutable_queue, message))

    def _unroutable_event(self, message: Message) -> Event | None:
        """Decode a message of the unroutable queue; ``None`` if it is not an event.

        Such a message was in the queue before the exchange was made.
        """
        try:
            return decode(message.data)
        except MalformedMessageError as error:
            self._report("malformed", f"message {message.number} of {self.unroutable_queue!r}: {error}")
            return None

    # -- inside ---------------------------------------------------------------------------------

    def _index(self, queue: Queue) -> dict[tuple[bytes, int], int]:
        """Return the numbers of a queue's messages by their queue and position at the source."""
        index = self._indexes.get(queue)
        if index is None or len(index) > 2 * queue.depth + _SLACK:
            messages = [queue.message(number) for number in queue.ids()]
            origins = [(origin_of(each.data), each.number) for each in messages if each is not None]
            index = {origin.queue_position: number for origin, number in origins if origin is not None}
            self._indexes[queue] = index
        return index

    def _report(self, case: str, description: str, sequence: int | None = None) -> None:
        """Count and report an anomaly."""
        setattr(self.counts, case, getattr(self.counts, case) + 1)
        self.anomalies.record(case, description, sequence)


def _remove_unroutable(routed: tuple[Queue, Message]) -> None:
    """Remove an unroutable event that was applied; may be called twice for an event."""
    unroutable_queue, message = routed
    if unroutable_queue.message(message.number) is message:
        unroutable_queue.remove(message)
