"""The primary sends one replica the content of one queue, and everything that happens to it afterwards.

Theory of operation
-------------------
The outbox holds what the replica must be sent, in order: message ids, encoded events, and one
``_CAUGHT_UP``.  The replica says which ids it has; the outbox then becomes the
difference between that and the queue, followed by ``_CAUGHT_UP``.  Everything that happens later is
appended, so catching up and following live are the same loop.  What happened to the queue
between the creation of the feed and that report is part of the difference.  All feeds of a replica share one
link, and take turns on it (``data_link``).

Rules
-----
* A message that is not to be replicated (``Envelope.is_replicated``) is as if it were not there.
* The replica has a message when it has settled it, when the message was among those it had, or when it
  left the queue before it was sent.  In place of one that has left, the replica is sent its
  duplicate-detection id, so that a second copy is recognised after a failover.
* A replica keeps what it has up to the first message that it lacks: the rest is sent again, so
  that what it is sent is always behind what it has.
* Dequeues and acquisitions of one iteration of the event loop are one event.
* As long as no message waits for the replica, these are corrections too: a dequeue that is complete without
  the replica must be on it before it is ready, or the message comes again.
* What corrects the replica's content (discards, duplicate-detection ids, counts) must be acknowledged too
  before it is ready: an eligible member has nothing that was discarded.
* The duplicate-detection ids follow the messages: those of messages that have left the
  primary's window, but not its queue, are the first to leave the replica's.
* So does the site progress: a replica that messages wait for must not have it before its cause.
* The delivery counts of what the replica keeps are sent anew: it may have missed some, or have
  counted what no other member did.  So are the annotations that consumers have added, what its messages have
  left to live, and what is left of their delays: its clock may be another.
* A feed that cannot send a message fails its replica: the producers and the other replicas go on.
* A message that is sent late is followed by what consumers have added to it.

Source: the replicating browser of Apache Qpid's hot-standby design.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from broker_stub.queueing.duplicate_detection import NO_MESSAGE
from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SiteMode, SiteProgress
from broker_stub.replication import wire
from haclient.outcome import ACCEPTED, Outcome
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from broker_stub.replication.replica import Replica

logger = get_logger("broker_stub.replication")

T = TypeVar("T")

_CAUGHT_UP: Final = object()
# Ids in one event: 8 bytes each, so an event stays far below a frame.
_IDS_PER_EVENT = 4096
# Bytes of duplicate-detection ids in one event: those of version 0.1.0 may have any length.
_BYTES_PER_EVENT = 1024 * 1024


class QueueFeed:
    """Observes a queue and feeds a replica (a ``data_link.Source``)."""

    __slots__ = (
        "_acquired",
        "_annotated",
        "_begun",
        "_consumed",
        "_corrections",
        "_data",
        "_dequeued",
        "_difference",
        "_early",
        "_ended",
        "_flush",
        "_head",
        "_outbox",
        "_replica",
        "_sent_to",
        "key",
        "queue",
        "scheduled",
        "unacknowledged",
        "waited_for",
    )

    def __init__(self, replica: Replica, queue: Queue, key: bytes) -> None:
        self.queue = queue
        self.key = key
        """What names the queue in its events."""
        self.scheduled = False
        self.waited_for: dict[int, Message] = {}
        """Messages that are not complete before this replica acknowledges them."""
        self.unacknowledged: set[int] = set()
        """Every message on its way to the replica, waited for or not; a correction is below 0."""
        self._replica = replica
        self._data = replica.data
        self._head = wire.message_head(key)
        self._begun = False
        self._ended = False
        self._outbox: deque[Any] = deque()
        self._difference = 0
        """How many of its first items are what the replica lacked; the rest has happened since."""
        self._consumed: dict[int, bytes] = {}
        """The duplicate-detection ids of messages that left before they were sent."""
        self._dequeued: list[int] = []
        self._acquired: list[int] = []
        self._annotated: dict[int, None] = {}
        self._flush: asyncio.Handle | None = None
        self._sent_to = 0
        self._corrections = 0
        self._early: list[Message] = []
        """Completions that wait for what the replica gets as a part of the difference."""

    def begin(self, have: Iterable[tuple[int, int]]) -> None:
        """The replica says what it has."""
        self._begun = True
        self._clear_outbox()
        self._dequeued.clear()
        self._acquired.clear()
        self._annotated.clear()
        ids = [number for number in self.queue.ids() if self._is_replicated(number)]
        kept, surplus = wire.compare(have, ids)
        kept_to = ids[kept - 1] if kept else 0
        gone = self.unacknowledged.difference(ids)
        # A look at each of those that it keeps would take a second for a million.
        for number in [each for each in self.unacknowledged if 0 < each <= kept_to or each in gone]:
            self._acknowledged(number)
        for spans in wire.in_pieces(surplus, _IDS_PER_EVENT):
            self._correct(_Discard(self.key, spans))
        for event in self._corrections_of(ids[:kept]):
            self._correct(event)
        progress = self.queue.site_progress
        if progress is not None:
            # That there is progress is sent first: each message says its own part of it.
            self._correct(wire.encode_event(self.key, "marks", SiteProgress().plain()))
        self._sent_to = kept_to
        for number in ids[kept:]:
            self._expect(number)
            self._outbox.append(number)
        for pairs in _pieces(self.queue.duplicates.pairs()):
            self._correct(self._duplicates(pairs))
        self._correct_confirmations()
        if progress is not None:
            self._correct(wire.encode_event(self.key, "marks", progress.plain()))
        self._outbox.append(_CAUGHT_UP)
        self._difference = len(self._outbox)
        self._pass_end_of_catch_up()
        self._pump()

    def _is_replicated(self, number: int) -> bool:
        message = self.queue.message(number)
        return message is not None and message.envelope.is_replicated

    def _correct_confirmations(self) -> None:
        for confirmed in _chunks(self.queue.confirmations.pairs()):
            self._correct(wire.encode_confirmed(self.key, confirmed))
        for completion in self._early:
            self._correct(wire.encode_confirmed(self.key, ()))
            self.waited_for[-self._corrections] = completion
        self._early.clear()

    def _expect(self, number: int) -> None:
        """An event is on its way from now on, be it sent or not."""
        if number not in self.unacknowledged:
            self.unacknowledged.add(number)
            self._replica.lag += 1

    def _correct(self, event: bytes | _Discard) -> None:
        """Change what the replica has; like a message, it is on its way until it is acknowledged."""
        self._corrections += 1
        self._expect(-self._corrections)
        self._outbox.append((-self._corrections, event))

    def _correct_later(self, event: bytes) -> None:
        """Behind the difference, where the outbox is bounded."""
        self._correct(event)
        self._replica.backlog.add(self._outbox[-1])

    def _corrections_of(self, kept: list[int]) -> Iterator[bytes]:
        """What of the kept messages may have changed at either side."""
        for chunk in _chunks(kept):
            yield self._counts(chunk)
            yield from self._annotations(chunk)
        for lifetimes in _chunks(self._lifetimes(kept)):
            yield self._columns("lifetimes", lifetimes, "ids", "left")
        for delays in _chunks(self._delays(kept)):
            yield self._columns("delays", delays, "ids", "left")

    def _counts(self, kept: list[int]) -> bytes:
        messages = (self.queue.message(number) for number in kept)
        counts = {
            each.number: each.failover_delivery_count
            for each in messages
            if each is not None and each.failover_delivery_count
        }
        arguments = {"ids": list(counts), "counts": list(counts.values()), "first": kept[0], "last": kept[-1]}
        return wire.encode_event(self.key, "counts", arguments)

    def _annotations(self, numbers: Iterable[int]) -> Iterator[bytes]:
        messages = filter(None, map(self.queue.message, numbers))
        for pairs in _pieces((each.annotations, each.number) for each in messages if each.annotations):
            yield self._columns("annotated", pairs, "annotations", "ids")

    def _lifetimes(self, kept: list[int]) -> list[tuple[int, int]]:
        messages = filter(None, map(self.queue.message, kept))
        lasting = (each for each in messages if each.expires_at is not None)
        left = ((each.number, self.queue.expiry.lifetime_ms(each)) for each in lasting)
        return [(number, lifetime) for number, lifetime in left if lifetime]

    def _delays(self, kept: list[int]) -> list[tuple[int, int]]:
        messages = ((number, self.queue.message(number)) for number in kept)
        return [
            (number, self.queue.delays.left_ms(each))
            for number, each in messages
            if each is not None and each.envelope.delay_ms is not None
        ]

    def _duplicates(self, pairs: list[tuple[bytes, int]]) -> bytes:
        return self._columns("duplicate", pairs, "ids", "of")

    def _columns(self, operation: str, pairs: list[tuple[Any, Any]], first: str, second: str) -> bytes:
        arguments = {first: [a for a, _ in pairs], second: [b for _, b in pairs]}
        return wire.encode_event(self.key, operation, arguments)

    def end(self) -> bool:
        """The queue is gone: nothing of it is waited for; whether the replica has said what it has."""
        if self._flush is not None:
            self._flush.cancel()
        self._clear_outbox()
        for number in (*self.waited_for, *self.unacknowledged):
            self._acknowledged(number)
        for completion in self._early:
            self._replica.acknowledged(self, 0, completion)
        self._early.clear()
        self._ended = True
        return self._begun

    def drop(self) -> list[Message]:
        """The replica is gone; the messages that wait for it."""
        self.queue.unobserve(self)
        if self._flush is not None:
            self._flush.cancel()
        self._ended = True
        waiting = [*self.waited_for.values(), *self._early]
        self.waited_for.clear()
        self._early.clear()
        return waiting

    # -- the queue's observer -------------------------------------------------------------------

    def enqueued(self, queue: Queue, message: Message) -> None:
        """A new message.  If it cannot be sent, this replica fails, and no producer."""
        if message.envelope.is_replicated:
            try:
                self._enqueued(message)
            except Exception as error:
                logger.exception("message %d of %r cannot be sent", message.number, queue.name)
                self._replica.feed_failed(self, f"message {message.number} cannot be sent: {error}")

    def _enqueued(self, message: Message) -> None:
        number, replica = message.number, self._replica
        self.unacknowledged.add(number)
        replica.lag += 1
        if replica.waiting:
            message.pending_acks += 1
            self.waited_for[number] = message
            replica.expect()
        if not self._begun:
            return  # a part of the difference
        if not self._outbox and self._data.free:
            self._send(message)
        else:
            self._append(number)
            self._data.schedule(self)

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """A message is not in the queue after all: the replica forgets the message and its id."""
        duplicate_id = message.envelope.duplicate_id
        if self._left(message) and duplicate_id is not None:
            self._correct_later(self._duplicates([(duplicate_id, NO_MESSAGE)]))
            self._pump()

    def dequeued(self, queue: Queue, message: Message) -> None:
        """A message has left; a replica that is waited for may learn it by the event of it."""
        by_event = queue.site_listener is not None and queue.site is SiteMode.ALL and self._replica.waiting
        self._left(message, by_event=by_event)

    def _left(self, message: Message, *, by_event: bool = False) -> bool:
        """Send that a message has left, unless the difference says so; whether it has to be known."""
        if self._ended or not self._begun or not message.envelope.is_replicated:
            return False
        duplicate_id = message.envelope.duplicate_id
        if duplicate_id is not None and message.number > self._sent_to:
            self._consumed[message.number] = duplicate_id
            self._replica.backlog.keep(duplicate_id)
        if not by_event:
            self._dequeued.append(message.number)
            self._later()
        return True

    def progress_changed(self, queue: Queue, completion: Message) -> None:
        """The queue's site progress has changed; a replica gets all of it before messages wait for it."""
        if self._replica.waiting:
            completion.pending_acks += 1
            self._replica.expect()
            self.waited_for[self.send_site_progress()] = completion

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        """Messages that have left were accepted: the replica gets who did, and the dequeues, as one event."""
        if waits := self._replica.waiting:
            completion.pending_acks += 1
            self._replica.expect()
        if not self._begun:
            if waits:
                self._early.append(completion)
            return  # a part of the difference
        if self._dequeued and numbers:
            confirmed = set(numbers)
            self._dequeued = [number for number in self._dequeued if number not in confirmed]
        self.collect_ids()
        for chunk in _chunks([(owner, number) for number in numbers]) if numbers else ((),):
            self._correct_later(wire.encode_confirmed(self.key, chunk))
        if waits:
            self.waited_for[-self._corrections] = completion
        self._pump()

    def send_site_progress(self) -> int:
        """Send the queue's site progress, behind what happened before; the number of that correction."""
        progress = self.queue.site_progress
        assert progress is not None, "only a queue with site progress sends it"
        if self._flush is not None:
            self._flush.cancel()
            self._flush_ids()
        self._correct_later(wire.encode_event(self.key, "marks", progress.plain()))
        self._pump()
        return -self._corrections

    def acquired(self, queue: Queue, message: Message) -> None:
        """A message was given to a consumer: a second delivery would be a redelivery."""
        if message.number <= self._sent_to and message.envelope.is_replicated:
            self._acquired.append(message.number)
            self._later()

    def annotated(self, queue: Queue, message: Message) -> None:
        """A consumer has added annotations; they follow a message that is not sent yet."""
        if message.number <= self._sent_to and message.envelope.is_replicated:
            self._annotated[message.number] = None
            self._later()

    def _later(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self._flush_ids)

    def _flush_ids(self) -> None:
        self._flush = None
        self.collect_ids()
        self._pump()

    def collect_ids(self) -> None:
        """Put the dequeues and acquisitions of this iteration into the outbox; its end sends them."""
        append = self._append if self._replica.waiting else self._correct_later
        for operation, ids in (("acquired", self._acquired), ("dequeued", self._dequeued)):
            for chunk in _chunks(ids):
                append(wire.encode_ids(self.key, operation, chunk))
            ids.clear()
        for event in self._annotations(self._annotated):
            append(event)
        self._annotated.clear()

    # -- the outbox -----------------------------------------------------------------------------

    def _append(self, item: Any) -> None:
        self._outbox.append(item)
        if self._is_backlog(item):
            self._replica.backlog.add(item)

    def _is_backlog(self, item: Any) -> bool:
        """Producers that wait for it send no more than their credit: such a message needs no other bound."""
        return not isinstance(item, int) or item not in self.waited_for

    def _take(self) -> Any:
        item = self._outbox.popleft()
        if self._difference:
            self._difference -= 1
        elif self._is_backlog(item):
            self._replica.backlog.remove(item)
        return item

    def _clear_outbox(self) -> None:
        while self._outbox:
            self._take()
        for duplicate_id in self._consumed.values():
            self._replica.backlog.release(duplicate_id)
        self._consumed.clear()

    # -- sending --------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether there is something to send."""
        return self._begun and bool(self._outbox)

    def _pump(self) -> None:
        if self.pending:
            self._data.schedule(self)
            self._data.pump()

    def send_some(self, most: int) -> None:
        """Send up to so many events, as long as the link takes them."""
        outbox, data = self._outbox, self._data
        while outbox and most > 0 and data.takes:
            most -= 1
            item = self._take()
            if isinstance(item, bytes):
                data.send(self, None, item)
            elif isinstance(item, tuple):
                correction, event = item
                data.send(self, correction, event if isinstance(event, bytes) else event.encode())
            elif (message := self.queue.message(item)) is not None:
                self._send(message)
            elif (duplicate_id := self._consumed.pop(item, None)) is not None:
                self._replica.backlog.release(duplicate_id)
                data.send(self, item, self._duplicates([(duplicate_id, item)]))
            else:
                self._acknowledged(item)
            self._pass_end_of_catch_up()

    def _pass_end_of_catch_up(self) -> None:
        if self._outbox and self._outbox[0] is _CAUGHT_UP:
            self._take()
            self._replica.feed_caught_up(self)

    def _send(self, message: Message) -> None:
        lifetime = 0 if message.expires_at is None else self.queue.expiry.lifetime_ms(message)
        count = message.failover_delivery_count
        if message.envelope.delay_ms is None:
            event = wire.encode_message(self._head, message.number, count, lifetime, message.data)
        else:
            copy = wire.ReplicatedMessage(message.number, count, 0, message.data, lifetime, self.key)
            event = wire.encode_delayed(copy, self.queue.delays.left_ms(message))
        if len(event) > self._data.largest:
            reason = f"message {message.number} has {len(event):,} bytes as an event, more than it takes"
            self._replica.feed_failed(self, reason)
            return
        self._sent_to = message.number
        self._data.send(self, message.number, event)
        if message.annotations:
            self.annotated(self.queue, message)

    def settled(self, number: int | None, outcome: Outcome | None) -> None:
        """The replica has the event durably, or refuses to."""
        if self._ended:
            return
        if outcome is not ACCEPTED and (outcome is None or not outcome.accepted):
            why = "" if outcome is None or not outcome.description else f": {outcome.description}"
            self._replica.feed_failed(self, f"it did not take event {number}{why}")
        elif number is not None:
            self._acknowledged(number)

    def _acknowledged(self, number: int) -> None:
        if number in self.unacknowledged:
            self.unacknowledged.discard(number)
            self._replica.lag -= 1
        message = self.waited_for.pop(number, None)
        self._replica.acknowledged(self, number, message)


class _Discard(NamedTuple):
    """What the replica has and should not; encoded when it is sent, for a backup may say that it has much."""

    queue: bytes
    spans: list[tuple[int, int]]

    def encode(self) -> bytes:
        """The event."""
        ids = (number for first, last in self.spans for number in range(first, last + 1))
        return wire.encode_ids(self.queue, "discard", ids)


def _pieces(pairs: Iterable[tuple[bytes, int]]) -> Iterator[list[tuple[bytes, int]]]:
    piece: list[tuple[bytes, int]] = []
    size = 0
    for pair in pairs:
        size += len(pair[0])
        if piece and (len(piece) == _IDS_PER_EVENT or size > _BYTES_PER_EVENT):
            yield piece
            piece, size = [], len(pair[0])
        piece.append(pair)
    if piece:
        yield piece


def _chunks(ids: list[T]) -> Iterable[list[T]]:
    return (ids[start : start + _IDS_PER_EVENT] for start in range(0, len(ids), _IDS_PER_EVENT))
