"""The source's primary: an event for each message that comes, and in mode ``all`` that leaves.

Theory of operation
-------------------
A queue tells (``messages.Teller``) in the turn in which it changes, when its observers know
already.  The event is put into the replication queue in that turn, and *withheld* there.  The
message waits for its event, and the event for its message; when both are on the disk and on
the replicas, the producer is told and the event is handed out.  The event of a removal is handed
out when it is there itself.

Rules
-----
* Events are handed out in their order, each when all before it are.
* While this member does not serve nothing is told: what changes its queues has its event already.
* When it begins to serve, a message above the mark ``evented`` gets its event (``agreeing``).  So does
  everything in a queue that had no events before.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from broker_stub.queueing.message import Message, Replicate
from broker_stub.queueing.queue import Queue
from broker_stub.sites.event import Encoder, Numbers, Op, decode
from broker_stub.sites.marks import Marks
from broker_stub.sites.modes import REPLICATION_QUEUE, SiteMode


class Addresses(Protocol):
    """The queues of this member."""

    def find_queue(self, name: str) -> Queue | None:
        """The queue of a name."""

    def declare(self, name: str, *, replicate: Replicate | None = None) -> Queue:
        """Make a queue."""


class _Entry:
    """An event that is withheld.

    :ivar waiting: the message that waits for it, ``None`` for none (any more).
    """

    __slots__ = ("complete", "event", "waiting")

    def __init__(self, event: Message) -> None:
        self.event = event
        self.waiting: Message | None = None
        self.complete = False


class _Line:
    """Events that are withheld, in order."""

    __slots__ = ("_entries", "log")

    def __init__(self, log: Queue) -> None:
        self.log = log
        self._entries: deque[_Entry] = deque()

    def add(self, event: Message) -> _Entry:
        """A new event, the last one."""
        entry = _Entry(event)
        self._entries.append(entry)
        return entry

    def safe(self, entry: _Entry) -> None:
        """Everyone has the event: its message need not wait for it any more."""
        message, entry.waiting = entry.waiting, None
        if message is not None and self.log.guard is not None:
            self.log.guard.has(message)

    def done(self, entry: _Entry) -> None:
        """An event is complete: hand out what has nothing incomplete before it."""
        entry.complete = True
        entries = self._entries
        while entries and entries[0].complete:
            self.log.hand_out(entries.popleft().event)

    def end(self) -> None:
        """This member serves no longer: no message waits for an event of this reign."""
        for entry in self._entries:
            if entry.waiting is not None:
                entry.waiting.waits -= 1
                entry.waiting = None
        self._entries.clear()


class Source:
    """Makes the events of one site.

    :param now_ms: milliseconds since the epoch.
    :param put_marks: writes the marks of a queue down.
    """

    def __init__(
        self, addresses: Addresses, now_ms: Callable[[], int], put_marks: Callable[[Queue], object]
    ) -> None:
        self._addresses = addresses
        self._now_ms = now_ms
        self._put_marks = put_marks
        self._line: _Line | None = None
        self._encoders: dict[str, Encoder] = {}

    # -- life -----------------------------------------------------------------------------------

    def hand_out(self) -> None:
        """This member begins to serve: what its replication queue has, every heir has."""
        log = self._addresses.find_queue(REPLICATION_QUEUE)
        for number in () if log is None else log.ids():
            assert log is not None, "its numbers were given just now"
            event = log.message(number)
            if event is not None:
                log.hand_out(event)

    def begin(self, queue: Queue) -> None:
        """Make events of a queue, if it has any; first of what has none yet."""
        if queue.site is SiteMode.NONE:
            return
        self._open_line()
        if queue.marks is None:
            queue.marks = Marks()
        for number in queue.ids():
            message = queue.message(number)
            if message is not None and number > queue.marks.evented:
                self.enqueued(queue, message)
        queue.teller = self

    def change(self, queue: Queue) -> None:
        """Another site gets more or less of a queue than before."""
        queue.teller = None
        self._encoders.pop(queue.identity, None)
        self.begin(queue)

    def end(self, queue: Queue) -> None:
        """This member serves no longer: make no more events of a queue."""
        queue.teller = None
        if self._line is not None:
            self._line.end()
            self._line = None
            self._encoders.clear()

    # -- what a queue tells ---------------------------------------------------------------------

    def enqueued(self, queue: Queue, message: Message) -> None:
        """A message has come: producer and event wait for each other."""
        line = self._open_line()
        entry = self._put(line, queue, Op.ENQUEUE, message)
        marks = queue.marks
        assert marks is not None, "begin made them"
        marks.evented = message.number
        self._put_marks(queue)
        if entry.event.waits:
            message.waits += 1
            entry.waiting = message
            entry.event.calls = [(line.safe, entry)]
        if message.waits:
            message.calls = [*(message.calls or ()), (line.done, entry)]
        else:
            line.done(entry)

    def dequeued(self, queue: Queue, message: Message) -> None:
        """A message has left."""
        if queue.site is not SiteMode.ALL:
            return
        line = self._open_line()
        entry = self._put(line, queue, Op.DEQUEUE, message)
        if entry.event.waits:
            entry.event.calls = [(line.done, entry)]
        else:
            line.done(entry)

    def _put(self, line: _Line, queue: Queue, op: Op, message: Message) -> _Entry:
        log, now = line.log, self._now_ms()
        marks = log.marks
        assert marks is not None, "the replication queue always has them"
        marks.issued += 1
        numbers = Numbers(marks.issued, message.number, now, message.expires_at_ms or 0)
        data = message.data if op is Op.ENQUEUE else b""
        return line.add(log.withhold(self._encoder(queue, log).encode(op, numbers, data)))

    def _encoder(self, queue: Queue, log: Queue) -> Encoder:
        encoder = self._encoders.get(queue.identity)
        if encoder is None:
            ids = (uuid.UUID(identity).bytes for identity in (queue.identity, log.identity))
            encoder = self._encoders[queue.identity] = Encoder(queue.name, next(ids), queue.site, next(ids))
        return encoder

    def _open_line(self) -> _Line:
        line = self._line
        if line is None or line.log.deleted:
            log = self._addresses.find_queue(REPLICATION_QUEUE)
            if log is None:
                log = self._addresses.declare(REPLICATION_QUEUE, replicate=Replicate.ALL)
            line = self._line = _Line(log)
            self._encoders.clear()
        return line

    # -- status ---------------------------------------------------------------------------------

    def status(self) -> dict[str, Any] | None:
        """What another site lacks; ``None`` when there are no events here."""
        log = self._addresses.find_queue(REPLICATION_QUEUE)
        if log is None or log.marks is None:
            return None
        oldest = log.oldest
        age = 0.0 if oldest is None else (self._now_ms() - decode(oldest.data).time_ms) / 1000
        return {
            "stream": log.identity,
            "last_sequence": log.marks.issued,
            "lag_events": log.depth,
            "lag_seconds": max(0.0, age),
        }
