"""Makes the source's events: one for each message enqueued and, in mode ``all``, dequeued.

Theory of operation
-------------------
A queue reports each change in the same event-loop iteration, after its observers
(``observers.SiteEventListener``).  In that iteration the event enters the replication queue, where it is
*held*.  The message waits for its event, and the event for its message.  When both are on the disk and on the
replicas, the producer's transfer is settled and the event is published.  The event of a dequeue is published
when it is complete itself.

Rules
-----
* Events are published in order, each after all before it are complete.
* Producers of queues with events get no credit while the replication queue has reached its own limits.
  Dequeues still make events, but at most one per message.
* Only a primary makes events.  The changes that a backup replicates have their events already.
* A new primary makes events for messages above the position ``evented`` (``reconcile``), and for all messages
  of a queue that had no events before.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from broker_stub.queueing.message import Message, Replicate
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode, SiteProgress
from broker_stub.sites.event import Encoder, Numbers, Op, decode


class Addresses(Protocol):
    """The queues of this member."""

    def find_queue(self, name: str) -> Queue | None:
        """Return the queue with a name, if there is one."""

    def declare(self, name: str, *, replicate: Replicate | None = None) -> Queue:
        """Make a queue."""


class _HeldEvent:
    """A held event.

    :ivar event: ``None`` until it is in the replication queue.
    :ivar waiting: the message that waits for it; ``None`` if none does.
    """

    __slots__ = ("complete", "event", "message", "sequence", "waiting")

    def __init__(self, message: Message, sequence: int) -> None:
        self.message = message
        self.sequence = sequence
        self.event: Message | None = None
        self.waiting: Message | None = None
        self.complete = False


class _HeldEvents:
    """The held events, in order."""

    __slots__ = ("_entries", "log")

    def __init__(self, log: Queue) -> None:
        self.log = log
        self._entries: deque[_HeldEvent] = deque()

    def add(self, message: Message, sequence: int) -> _HeldEvent:
        """Add an entry for the event of a message."""
        entry = _HeldEvent(message, sequence)
        self._entries.append(entry)
        return entry

    def withdraw(self, message: Message) -> None:
        """Remove the last event and its sequence if it is this message's: no sequence may be missing."""
        if self._entries and self._entries[-1].message is message:
            entry = self._entries.pop()
            progress = self.log.site_progress
            assert progress is not None, "the replication queue always has them"
            progress.issued = entry.sequence - 1
            if entry.event is not None:
                self.log.withdraw(entry.event)

    def safe(self, entry: _HeldEvent) -> None:
        """Stop a message from waiting for its event, which every store and replica has."""
        message, entry.waiting = entry.waiting, None
        if message is not None and self.log.guard is not None:
            self.log.guard.acknowledged(message)

    def done(self, entry: _HeldEvent) -> None:
        """Mark an event complete; publish all events with nothing incomplete before them."""
        entry.complete = True
        entries = self._entries
        while entries and entries[0].complete:
            event = entries.popleft().event
            assert event is not None, "what is complete is in the queue"
            self.log.publish(event)

    def end(self) -> None:
        """Stop all waiting for events: this member is no longer primary."""
        for entry in self._entries:
            if entry.waiting is not None:
                entry.waiting.pending_acks -= 1
                entry.waiting = None
        self._entries.clear()


class Outbound:
    """Makes the events of one site.

    :param now_ms: milliseconds since the epoch.
    :param put_site_progress: writes the site progress of a queue.
    """

    def __init__(
        self, addresses: Addresses, now_ms: Callable[[], int], put_site_progress: Callable[[Queue], object]
    ) -> None:
        self._addresses = addresses
        self._now_ms = now_ms
        self._put_site_progress = put_site_progress
        self._held: _HeldEvents | None = None
        self._encoders: dict[str, Encoder] = {}

    # -- life -----------------------------------------------------------------------------------

    def publish(self) -> None:
        """Publish all events of a new primary: every eligible member has them."""
        log = self._addresses.find_queue(REPLICATION_QUEUE)
        for number in () if log is None else log.ids():
            assert log is not None, "its numbers were given just now"
            event = log.message(number)
            if event is not None:
                log.publish(event)

    def begin(self, queue: Queue) -> None:
        """Make events for a queue if it has a site mode, starting with messages that have none yet."""
        if queue.site is SiteMode.NONE:
            return
        self._open_held()
        if queue.site_progress is None:
            queue.site_progress = SiteProgress()
        for number in queue.ids():
            message = queue.message(number)
            if message is not None and number > queue.site_progress.evented:
                self.enqueued(queue, message)
        queue.site_listener = self

    def change(self, queue: Queue) -> None:
        """Switch a queue to its new site mode."""
        queue.site_listener = None
        self._encoders.pop(queue.identity, None)
        self.begin(queue)
        queue.ask_again()  # its producers may have waited for events that it no longer makes

    def end(self, queue: Queue) -> None:
        """Make no more events for a queue: this member is no longer primary."""
        queue.site_listener = None
        if self._held is not None:
            self._held.end()
            self._held = None
            self._encoders.clear()

    # -- the listener of a queue ----------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if the waiting events reach the limit of a queue, in messages or bytes."""
        return self._held is not None and self._held.log.full_itself

    def when_not_full(self, call: Callable[[], None]) -> None:
        """Call once when the replication queue is below its low watermark."""
        self._open_held().log.when_not_full(call)

    def stop_waiting(self, call: Callable[[], None]) -> None:
        """Cancel a callback."""
        if self._held is not None:
            self._held.log.stop_waiting(call)

    def enqueued(self, queue: Queue, message: Message) -> None:
        """Make the event of a new message; each waits until the other is stored and replicated."""
        held = self._open_held()
        progress = queue.site_progress
        assert progress is not None, "begin made them"
        progress.evented = message.number
        self._put_site_progress(queue)
        entry, event = self._put(held, queue, Op.ENQUEUE, message)
        if event.pending_acks:
            message.pending_acks += 1
            entry.waiting = message
            event.on_complete = [(held.safe, entry)]
        if message.pending_acks:
            message.on_complete = [*(message.on_complete or ()), (held.done, entry)]
        else:
            held.done(entry)

    def dequeued(self, queue: Queue, message: Message) -> None:
        """Make the event of a message that has left."""
        if queue.site is not SiteMode.ALL:
            return
        held = self._open_held()
        entry, event = self._put(held, queue, Op.DEQUEUE, message)
        if event.pending_acks:
            event.on_complete = [(held.done, entry)]
        else:
            held.done(entry)

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """Remove the event of a message that did not enter its queue; it is not published yet."""
        if self._held is not None:
            self._held.withdraw(message)

    def record(self) -> Message:
        """Return a message that completes when every event so far is complete."""
        return self._open_held().log.record_progress()

    def _put(self, held: _HeldEvents, queue: Queue, op: Op, message: Message) -> tuple[_HeldEvent, Message]:
        log, now = held.log, self._now_ms()
        progress = log.site_progress
        assert progress is not None, "the replication queue always has them"
        expires_at_ms = message.expires_at_ms or message.envelope.expiry_ms or 0
        # 0 means never, so a time before 1970 becomes 1.
        sequence = progress.issued + 1
        numbers = Numbers(sequence, message.number, now, expires_at_ms and max(1, expires_at_ms))
        data = self._encoder(queue, log).encode(op, numbers, message.data if op is Op.ENQUEUE else b"")
        entry = held.add(message, sequence)
        progress.issued = sequence
        try:
            entry.event = event = log.hold(data)
        except BaseException:
            held.withdraw(message)
            raise
        return entry, event

    def _encoder(self, queue: Queue, log: Queue) -> Encoder:
        encoder = self._encoders.get(queue.identity)
        if encoder is None:
            ids = (uuid.UUID(identity).bytes for identity in (queue.identity, log.identity))
            encoder = self._encoders[queue.identity] = Encoder(queue.name, next(ids), queue.site, next(ids))
        return encoder

    def _open_held(self) -> _HeldEvents:
        held = self._held
        if held is None or held.log.deleted:
            log = self._addresses.find_queue(REPLICATION_QUEUE)
            if log is None:
                log = self._addresses.declare(REPLICATION_QUEUE, replicate=Replicate.ALL)
            held = self._held = _HeldEvents(log)
            self._encoders.clear()
        return held

    # -- status ---------------------------------------------------------------------------------

    def status(self) -> dict[str, Any] | None:
        """Return the lag of the other site; ``None`` if there are no events here."""
        log = self._addresses.find_queue(REPLICATION_QUEUE)
        if log is None or log.site_progress is None:
            return None
        oldest = log.oldest
        age = 0.0 if oldest is None else (self._now_ms() - decode(oldest.data).time_ms) / 1000
        return {
            "stream": log.identity,
            "last_sequence": log.site_progress.issued,
            "lag_events": log.depth,
            "lag_seconds": max(0.0, age),
        }
