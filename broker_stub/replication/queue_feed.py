"""Sends the content of one queue, and all later changes to it, to one replica.

Theory of operation
-------------------
The outbox holds everything that the replica must still be sent, in order: message ids, encoded events, and
one ``_CAUGHT_UP``. When the replica reports the ids it has, the outbox becomes the difference between report
and queue, followed by ``_CAUGHT_UP``. Later changes are appended, so one loop serves catching up and live
replication. Changes between the creation of the feed and the report are part of the difference. All feeds of
a replica share one link and take turns on it (``data_link``).

Rules
-----
* A message that is not to be replicated (``Envelope.is_replicated``) is ignored.
* The replica has a message if it settled it, if it reported it, or if the message left the queue unsent. For
  an unsent message it is sent the duplicate-detection id, to recognise a second copy after a failover.
* A replica keeps its messages up to the first one that it lacks. Everything after that is resent, so resent
  messages always follow the kept ones.
* Dequeues and acquisitions of one iteration of the event loop form one event.
* While no message waits for the replica, dequeues and acquisitions are corrections too: a replica must have
  every completed dequeue before it is ready, or the message is delivered again.
* Corrections of the replica's content (discards, duplicate-detection ids, counts) must be acknowledged before
  it is ready. An eligible member has no message that was discarded.
* Duplicate-detection ids follow the messages. If a message has left the primary's window, but not its queue,
  its id is among the first to leave the replica's window.
* Site progress follows the messages too: progress must not reach a waited-for replica before its cause.
* Delivery counts of kept messages are resent: the replica may have missed some, or counted its own. So are
  consumers' annotations, remaining lifetimes and remaining delays, since the replica's clock may differ.
* A feed that cannot send a message fails its replica; producers and other replicas continue.
* A message that is sent late is followed by the annotations that consumers have added.

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
# Bytes of duplicate-detection ids in one event: ids of version 0.1.0 may have any length.
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
        """The key of the queue in its events."""
        self.scheduled = False
        self.waited_for: dict[int, Message] = {}
        """Messages that cannot complete before this replica acknowledges them."""
        self.unacknowledged: set[int] = set()
        """Numbers of all unacknowledged events, waited for or not; corrections have negative numbers."""
        self._replica = replica
        self._data = replica.data
        self._head = wire.message_head(key)
        self._begun = False
        self._ended = False
        self._outbox: deque[Any] = deque()
        self._difference = 0
        """Number of leading outbox items that belong to the difference; the others are later changes."""
        self._consumed: dict[int, bytes] = {}
        """Duplicate-detection ids of messages that left the queue before they were sent."""
        self._dequeued: list[int] = []
        self._acquired: list[int] = []
        self._annotated: dict[int, None] = {}
        self._flush: asyncio.Handle | None = None
        self._sent_to = 0
        self._corrections = 0
        self._early: list[Message] = []
        """Completions that wait for a confirmation which the replica receives as part of the difference."""

    def begin(self, have: Iterable[tuple[int, int]]) -> None:
        """Fill the outbox with the difference between the queue and the ids that the replica reports."""
        self._begun = True
        self._clear_outbox()
        self._dequeued.clear()
        self._acquired.clear()
        self._annotated.clear()
        ids = [number for number in self.queue.ids() if self._is_replicated(number)]
        kept, surplus = wire.compare(have, ids)
        kept_to = ids[kept - 1] if kept else 0
        gone = self.unacknowledged.difference(ids)
        # Visiting each kept id would take a second for a million.
        for number in [each for each in self.unacknowledged if 0 < each <= kept_to or each in gone]:
            self._acknowledged(number)
        for spans in wire.in_pieces(surplus, _IDS_PER_EVENT):
            self._correct(_Discard(self.key, spans))
        for event in self._corrections_of(ids[:kept]):
            self._correct(event)
        progress = self.queue.site_progress
        if progress is not None:
            # The existence of site progress is sent first, because each message carries its own part of it.
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
        """Count an event as unacknowledged, whether or not it is sent yet."""
        if number not in self.unacknowledged:
            self.unacknowledged.add(number)
            self._replica.lag += 1

    def _correct(self, event: bytes | _Discard) -> None:
        """Queue a correction of the replica's content; it is unacknowledged like a message until settled."""
        self._corrections += 1
        self._expect(-self._corrections)
        self._outbox.append((-self._corrections, event))

    def _correct_later(self, event: bytes) -> None:
        """Queue a correction after the difference, where the outbox is bounded."""
        self._correct(event)
        self._replica.backlog.add(self._outbox[-1])

    def _corrections_of(self, kept: list[int]) -> Iterator[bytes]:
        """Yield corrections of all properties in which the kept messages may differ from the queue."""
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
        """Release all waiting messages of a deleted queue; return whether the replica had reported ids."""
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
        """Stop observing the queue for a dropped replica; return the messages that wait for it."""
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
        """Send a new message. If that fails, the replica fails, not the producer."""
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
            return  # part of the difference
        if not self._outbox and self._data.free:
            self._send(message)
        else:
            self._append(number)
            self._data.schedule(self)

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """Make the replica forget a withdrawn message and its duplicate-detection id."""
        duplicate_id = message.envelope.duplicate_id
        if self._left(message) and duplicate_id is not None:
            self._correct_later(self._duplicates([(duplicate_id, NO_MESSAGE)]))
            self._pump()

    def dequeued(self, queue: Queue, message: Message) -> None:
        """Send the removal of a message, unless the replica learns it from the site event."""
        by_event = queue.site_listener is not None and queue.site is SiteMode.ALL and self._replica.waiting
        self._left(message, by_event=by_event)

    def _left(self, message: Message, *, by_event: bool = False) -> bool:
        """Queue the removal of a message; return false if the replica need not know it."""
        if self._ended or not self._begun or not message.envelope.is_replicated:
            return False
        duplicate_id = message.envelope.duplicate_id
        if duplicate_id is not None and message.number > self._sent_to:
            self._consumed[message.number] = duplicate_id
            self._replica.backlog.keep(duplicate_id)
        if not by_event:
            self._dequeued.append(message.number)
            self._schedule_flush()
        return True

    def progress_changed(self, queue: Queue, completion: Message) -> None:
        """Send the queue's changed site progress; a replica gets all of it before messages wait for it."""
        if self._replica.waiting:
            completion.pending_acks += 1
            self._replica.expect()
            self.waited_for[self.send_site_progress()] = completion

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        """Send the owner that accepted the removed messages, together with the dequeues, as one event."""
        if waits := self._replica.waiting:
            completion.pending_acks += 1
            self._replica.expect()
        if not self._begun:
            if waits:
                self._early.append(completion)
            return  # part of the difference
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
        """Send the queue's site progress after all earlier changes; return the number of the correction."""
        progress = self.queue.site_progress
        assert progress is not None, "only a queue with site progress sends it"
        if self._flush is not None:
            self._flush.cancel()
            self._flush_ids()
        self._correct_later(wire.encode_event(self.key, "marks", progress.plain()))
        self._pump()
        return -self._corrections

    def acquired(self, queue: Queue, message: Message) -> None:
        """Send that a message was given to a consumer: its next delivery would be a redelivery."""
        if message.number <= self._sent_to and message.envelope.is_replicated:
            self._acquired.append(message.number)
            self._schedule_flush()

    def annotated(self, queue: Queue, message: Message) -> None:
        """Send annotations added by a consumer; if the message is unsent, they follow it."""
        if message.number <= self._sent_to and message.envelope.is_replicated:
            self._annotated[message.number] = None
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self._flush_ids)

    def _flush_ids(self) -> None:
        self._flush = None
        self.collect_ids()
        self._pump()

    def collect_ids(self) -> None:
        """Put the dequeues and acquisitions of this loop iteration into the outbox without sending them."""
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
        """Return false for a message that producers wait for: their credit bounds such messages."""
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
        """Return whether this feed has events to send."""
        return self._begun and bool(self._outbox)

    def _pump(self) -> None:
        if self.pending:
            self._data.schedule(self)
            self._data.pump()

    def send_some(self, most: int) -> None:
        """Send up to ``most`` events while the link accepts them."""
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
        """Acknowledge an event that the replica has stored, or fail if it refused the event."""
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
    """Ids that the replica must discard; encoded only when sent, because a backup may report very many."""

    queue: bytes
    spans: list[tuple[int, int]]

    def encode(self) -> bytes:
        """Return the encoded event."""
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
