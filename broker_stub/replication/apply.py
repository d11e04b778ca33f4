"""Applies the primary's events to a backup's queues and store.

Rules
-----
* A message that the primary discards is removed from memory and store before the next event is applied.
* Site progress that travels with a message is applied in the same transaction, by ``SiteState``.
* Only the primary's events change delivery counts, because no consumer of a backup has seen the messages.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.persister import Persister
from broker_stub.election import generation as rules
from broker_stub.queueing.annotations import checked
from broker_stub.queueing.dispatch.delayed import with_delivery_time
from broker_stub.queueing.message import Message
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.replication.definitions import Definitions
from broker_stub.store import Store
from haclient.cluster_url.endpoint import Endpoint

# Id ranges reported for one queue, at most. Each takes 16 bytes of a report (``wire.encode_have``). If a
# queue has more gaps, the primary resends its last messages.
_MOST_RANGES = 2000
# Largest delivery count of a message: 32 bits (AMQP 1.0 part 3, section 3.2.1).
_MOST_DELIVERIES = 2**32 - 1

T = TypeVar("T")
U = TypeVar("U")


Insert = Callable[[Queue, wire.ReplicatedMessage], int]
"""Put a message into a queue and the store; return the store's sequence number."""


class SiteState(Protocol):
    """Replicated state of queues that have site progress; ``broker`` registers the implementation."""

    def begin(self, queue: Queue) -> None:
        """Start replicating a queue: clear the state that the primary will resend."""

    def merge_progress(self, queue: Queue, plain: Mapping[str, Any]) -> int:
        """Merge the primary's site progress of a queue; return the store's sequence number."""

    def apply(self, queue: Queue, message: wire.ReplicatedMessage) -> int:
        """Apply a message; return the store's sequence number."""


MakeSiteState = Callable[[Addresses, Persister, Insert], SiteState]


class BackupHost(Protocol):
    """The member, as seen by its backup side."""

    state: rules.GenerationState

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write the generation and the pending claim durably."""

    async def refusal_reason(self, primary: rules.PrimaryIdentity) -> str | None:
        """Return the reason to refuse this primary, or ``None``."""

    def found_primary(self, primary: Endpoint | None, generation: int) -> None:
        """Note that this member now follows a primary."""

    def caught_up(self, generation: int, ready: tuple[str, ...]) -> None:
        """Note that the primary handed over its generation."""

    def lost_primary(self) -> None:
        """Note that this member no longer follows a primary."""


class Applier:
    """Applies the primary's events (``backup.ReplicationTarget``).

    :param site_state: makes the handler of messages with site progress.
    """

    def __init__(
        self,
        host: BackupHost,
        addresses: Addresses,
        persister: Persister,
        store: Store,
        site_state: MakeSiteState,
    ) -> None:
        self._host = host
        self._addresses = addresses
        self._persister = persister
        self._store = store
        self._definitions = Definitions(addresses)
        self._operations: dict[str, Callable[[Queue, wire.Event], int]] = {
            "discard": self._discard,
            "dequeued": self._discard,
            "acquired": self._count,
            "annotated": self._annotate,
            "counts": self._set_counts,
            "duplicate": self._remember,
            wire.CONFIRMED: self._confirm,
            "lifetimes": self._correct_lifetimes,
            "delayed": self._insert_delayed,
            "delays": self._correct_delays,
            "marks": self._merge_progress,
        }
        self._broken: set[str] = set()
        """Queues whose memory may hold messages that the store lacks; they are emptied before replication
        restarts.
        """
        self._site_state = site_state(addresses, persister, self._insert)

    # -- generation -----------------------------------------------------------------------------

    async def refusal_reason(self, primary: rules.PrimaryIdentity) -> str | None:
        """Return the reason to refuse this primary, or ``None``."""
        return await self._host.refusal_reason(primary)

    async def begin_catch_up(self, endpoint: Endpoint | None, primary: rules.PrimaryIdentity) -> None:
        """Begin to follow a primary: this member is not eligible until it receives a generation again."""
        await self._host.write_state(rules.erase(self._host.state, primary.cluster))
        self._definitions.begin()
        address = None if endpoint is None else Endpoint(endpoint.host, endpoint.port, tls=endpoint.tls)
        self._host.found_primary(address, primary.generation)

    async def note_pending(self, generation: int, claim: str) -> None:
        """Note durably that the primary is about to make a claim."""
        pending = rules.Pending(generation, claim)
        await self._host.write_state(rules.note_pending(self._host.state, pending))

    async def take_generation(self, record: rules.ArbiterRecord, ready: tuple[str, ...]) -> None:
        """Accept the generation that the primary hands over."""
        await self._host.write_state(rules.hand_over(self._host.state, record))
        self._host.caught_up(record.generation, ready)

    async def lost_primary(self) -> None:
        """Report that the session has ended."""
        self._host.lost_primary()

    # -- definitions ----------------------------------------------------------------------------

    async def add_wiring(self, piece: Mapping[str, Any]) -> None:
        """Apply one piece of the complete wiring, and wait until the store has committed it.

        :raises ValueError: if the piece is invalid.
        :raises AddressRefusedError: if this member cannot have a queue, exchange or binding of the piece.
        :raises StoreFailedError: if the store fails.
        """
        self._definitions.add(piece)
        await self.committed(self._store.sequence)

    async def complete_wiring(self) -> None:
        """Delete the queues, exchanges and bindings that no piece listed, and wait until this is committed.

        Temporary queues stay, because no primary lists them.

        :raises StoreFailedError: if the store fails.
        """
        self._definitions.complete()
        await self.committed(self._store.sequence)

    async def change_wiring(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Apply one change to the wiring, and wait until the store has committed it.

        :param operation: an operation of ``definitions``: it declares, deletes, binds or unbinds.
        :raises ValueError: if the operation is unknown, or its arguments are invalid.
        :raises AddressRefusedError: if this member cannot have the queue, exchange or binding.
        :raises StoreFailedError: if the store fails.
        """
        self._definitions.change(operation, arguments)
        await self.committed(self._store.sequence)

    def replicated_queues(self) -> tuple[Queue, ...]:
        """Return the queues whose messages the primary replicates."""
        return tuple(queue for queue in self._addresses if queue.is_replicated)

    def replicated_queue(self, identity: str) -> Queue | None:
        """Return the queue with this identity, if the primary replicates its messages."""
        queue = self._addresses.by_identity(identity)
        return queue if queue is not None and queue.is_replicated else None

    # -- messages -------------------------------------------------------------------------------

    def begin_queue(self, queue: Queue) -> list[tuple[int, int]]:
        """Prepare a queue for replication; return the ranges of message ids that it keeps.

        Duplicate-detection ids are cleared, since the primary resends all of its own. If the id of a
        discarded message stayed, the next copy of that message would be dropped as a duplicate. Messages
        beyond the most ranges that a report can hold are discarded too. A queue deleted in the meantime keeps
        nothing, and the primary ends it.
        """
        if queue.deleted:
            return []
        if queue.identity in self._broken:
            self._broken.discard(queue.identity)
            queue.discard(queue.ids())
        self._site_state.begin(queue)
        queue.duplicates.clear()
        self._persister.clear_duplicates(queue)
        queue.confirmations.clear()
        self._persister.clear_confirmed(queue)
        spans = wire.ranges(queue.ids())
        for first, last in spans[_MOST_RANGES:]:
            queue.discard(range(first, last + 1))
        self._persister.flush()
        return spans[:_MOST_RANGES]

    def apply(self, queue: Queue, event: wire.ReplicatedMessage | wire.Event) -> int:
        """Apply an event; return the store's sequence number.

        Events in flight when the queue was deleted are dropped.  After an error the next ``begin_queue``
        discards all messages of the queue, because its memory and the store may differ.

        :raises ValueError: if the event is unknown or invalid.
        :raises StoreFailedError: if the store has failed.
        """
        if queue.deleted:
            return self._store.sequence
        try:
            return self._apply(queue, event)
        except Exception:
            self._broken.add(queue.identity)
            raise

    def _apply(self, queue: Queue, event: wire.ReplicatedMessage | wire.Event) -> int:
        if isinstance(event, wire.ReplicatedMessage):
            return (
                self._insert(queue, event)
                if queue.site_progress is None
                else self._site_state.apply(queue, event)
            )
        operation = self._operations.get(event.operation)
        if operation is None:
            raise ValueError(f"the primary sent an unknown event {event.operation!r}")
        return operation(queue, event)

    def _insert(self, queue: Queue, event: wire.ReplicatedMessage) -> int:
        if event.lifetime_ms:
            event = event._replace(expires_at_ms=self._addresses.now_ms() + event.lifetime_ms)
        envelope = inspect(event.data)
        duplicate_id = envelope.duplicate_id
        if duplicate_id is not None and queue.duplicates.first_copy(duplicate_id) is not None:
            duplicate_id = None  # a second write of the id would take a second place in the store's window
        queue.insert(event.id, event.data, envelope, event.delivery_count, event.expires_at_ms)
        return self._persister.put(queue, event, duplicate_id)

    async def committed(self, sequence: int) -> int:
        """Wait until the store has committed up to ``sequence``; return its last committed sequence.

        :raises StoreFailedError: if the store fails before.
        """
        if self._store.committed < sequence:
            await self._store.when_committed(sequence)
        return self._store.committed

    def _discard(self, queue: Queue, event: wire.Event) -> int:
        queue.discard(event.ids)
        return self._persister.flush()

    def _count(self, queue: Queue, event: wire.Event) -> int:
        count(queue, event.ids)
        self._persister.counted(queue, event.ids)
        return self._persister.flush()

    def _set_counts(self, queue: Queue, event: wire.Event) -> int:
        of = event.arguments
        counts = dict(_pairs(of, ("ids", int), ("counts", int)))
        if any(count > _MOST_DELIVERIES for count in counts.values()):
            raise ValueError("the primary sent a delivery count that no message has")
        first, last = wire.argument(of, "first", int), wire.argument(of, "last", int)
        return self._persister.rewrite(queue, set_counts(queue, counts, first=first, last=last))

    def _annotate(self, queue: Queue, event: wire.Event) -> int:
        pairs = _pairs(event.arguments, ("ids", int), ("annotations", bytes))
        annotated = [queue.annotate(number, checked(annotations)) for number, annotations in pairs]
        for message in filter(None, annotated):
            self._persister.annotated(queue, message)
        return self._persister.flush()

    def _correct_lifetimes(self, queue: Queue, event: wire.Event) -> int:
        pairs = _pairs(event.arguments, ("ids", int), ("left", int))
        left = ((number, min(lifetime, wire.MAX_LIFETIME)) for number, lifetime in pairs)
        return self._persister.rewrite(queue, queue.correct_lifetimes(left))

    def _insert_delayed(self, queue: Queue, event: wire.Event) -> int:
        """Insert a message with a delay; its delivery time is computed from this member's clock."""
        of = event.arguments
        due_ms = self._addresses.now_ms() + min(wire.number(of, "delay"), wire.MAX_LIFETIME)
        message = wire.ReplicatedMessage(
            wire.number(of, "id"),
            min(wire.number(of, "count"), _MOST_DELIVERIES),
            0,
            with_delivery_time(wire.argument(of, "data", bytes), due_ms),
            min(wire.number(of, "lifetime"), wire.MAX_LIFETIME),
        )
        return self._apply(queue, message)

    def _correct_delays(self, queue: Queue, event: wire.Event) -> int:
        pairs = _pairs(event.arguments, ("ids", int), ("left", int))
        return self._persister.rewrite(queue, queue.delays.correct(pairs))

    def _merge_progress(self, queue: Queue, event: wire.Event) -> int:
        plain = event.arguments
        applied = wire.argument(plain, "applied", dict) if "applied" in plain else {}
        for of, names in ((plain, plain.keys() & {"issued", "evented"}), (applied, applied)):
            for name in names:
                wire.number(of, name)
        return self._site_state.merge_progress(queue, plain)

    def _confirm(self, queue: Queue, event: wire.Event) -> int:
        pairs = wire.decode_confirmed(event)
        for owner, number in pairs:
            queue.confirmations.add(owner, number)
        queue.discard(number for _, number in pairs)
        self._persister.flush()
        return self._persister.put_confirmed(queue, pairs)

    def _remember(self, queue: Queue, event: wire.Event) -> int:
        # The duplicate-detection window arrives after the missing messages, whose ids are its newest.
        pairs = list(_pairs(event.arguments, ("ids", bytes), ("of", int)))
        queue.duplicates.renew(pairs)
        return self._persister.put_duplicates(queue, pairs)


def _pairs(
    arguments: Mapping[str, Any], first: tuple[str, type[T]], second: tuple[str, type[U]]
) -> Iterable[tuple[T, U]]:
    """Return two columns of an event as pairs.

    :raises ValueError: if the columns differ in length or hold another type.
    """
    return list(zip(_column(arguments, *first), _column(arguments, *second), strict=True))


def _column(arguments: Mapping[str, Any], name: str, kind: type[T]) -> list[T]:
    column = wire.argument(arguments, name, list)
    if not all(isinstance(item, kind) for item in column):
        raise ValueError(f"the primary sent {name!r} that are not all {kind.__name__}")
    if kind is int and column and not 0 <= min(column) <= max(column) <= wire.MAX_NUMBER:
        raise ValueError(f"the primary sent {name!r} that no store can hold")
    return column


# -- delivery counts --------------------------------------------------------------------------------


def count(queue: Queue, numbers: Iterable[int]) -> None:
    """Add one delivery to each of these messages: the primary gave them to a consumer.

    This changes memory alone; the caller stores the counts.  Unknown numbers are skipped.
    """
    for number in numbers:
        message = queue.message(number)
        if message is not None:
            message.set_count(message.failover_delivery_count + 1)


def set_counts(queue: Queue, counts: Mapping[int, int], *, first: int, last: int) -> list[Message]:
    """Set the primary's delivery counts in a span of ids; return the messages that changed.

    Annotations added by consumers are cleared: the primary sends the current ones next, if there are any.
    This changes memory alone; the caller stores the messages.

    :param counts: delivery count by message number; messages of the span that are missing here have 0.
    """
    if last - first < queue.depth:
        span: Sequence[int] = range(first, last + 1)
    else:
        # Do not visit each id of the span: a queue of a million messages receives an event per span.
        ids = queue.ids()
        span = ids[bisect.bisect_left(ids, first) : bisect.bisect_right(ids, last)]
    present = [message for number in span if (message := queue.message(number)) is not None]
    changed = [
        message
        for message in present
        if message.annotations or message.failover_delivery_count != counts.get(message.number, 0)
    ]
    for message in changed:
        message.set_count(counts.get(message.number, 0))
        queue.annotate(message.number, b"")
    return changed
