"""A backup applies what the primary sends to its queues and its store.

Rules
-----
* What the primary discards is removed from memory and store alike, before what follows it.
* What travels beside a message (site progress) is applied in the same transaction, by ``SiteState``.
* Delivery counts change by the primary's events alone: no consumer of this member has seen the messages.
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

# Each takes 16 bytes of a report (``wire.encode_have``): a queue with more holes is sent its last messages
# again.
_MOST_RANGES = 2000
# Of a message: AMQP 1.0 part 3, section 3.2.1 has 32 bits for it.
_MOST_DELIVERIES = 2**32 - 1

T = TypeVar("T")
U = TypeVar("U")


Insert = Callable[[Queue, wire.ReplicatedMessage], int]
"""Puts a message into a queue and into the store; the store's sequence of it."""


class SiteState(Protocol):
    """What replication does with the messages of queues that have site progress; ``broker`` registers it."""

    def begin(self, queue: Queue) -> None:
        """A queue is replicated from now on: clear what the primary sends anew."""

    def merge_progress(self, queue: Queue, plain: Mapping[str, Any]) -> int:
        """The primary sends the site progress of a queue; the store's sequence of it."""

    def apply(self, queue: Queue, message: wire.ReplicatedMessage) -> int:
        """Apply a message; the store's sequence of it."""


MakeSiteState = Callable[[Addresses, Persister, Insert], SiteState]


class BackupHost(Protocol):
    """What a member does for its backup side."""

    state: rules.GenerationState

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write generation and pending durably."""

    async def refusal_reason(self, primary: rules.PrimaryIdentity) -> str | None:
        """Why a primary must not be followed."""

    def found_primary(self, primary: Endpoint | None, generation: int) -> None:
        """A primary is followed."""

    def caught_up(self, generation: int, ready: tuple[str, ...]) -> None:
        """The primary handed over its generation."""

    def lost_primary(self) -> None:
        """No primary is followed any more."""


class Applier:
    """Applies the primary's events (``backup.ReplicationTarget``).

    :param site_state: makes what applies messages with site progress.
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
        """Queues of which memory may have what the store has not; they are emptied when they begin anew."""
        self._site_state = site_state(addresses, persister, self._insert)

    # -- generation -----------------------------------------------------------------------------

    async def refusal_reason(self, primary: rules.PrimaryIdentity) -> str | None:
        """Why this primary must not be followed."""
        return await self._host.refusal_reason(primary)

    async def begin_catch_up(self, endpoint: Endpoint | None, primary: rules.PrimaryIdentity) -> None:
        """A primary is found: this member is not eligible until it gets a generation again."""
        await self._host.write_state(rules.erase(self._host.state, primary.cluster))
        self._definitions.begin()
        address = None if endpoint is None else Endpoint(endpoint.host, endpoint.port, tls=endpoint.tls)
        self._host.found_primary(address, primary.generation)

    async def note_pending(self, generation: int, claim: str) -> None:
        """The primary is about to make a claim."""
        pending = rules.Pending(generation, claim)
        await self._host.write_state(rules.note_pending(self._host.state, pending))

    async def take_generation(self, record: rules.ArbiterRecord, ready: tuple[str, ...]) -> None:
        """The primary hands over its generation."""
        await self._host.write_state(rules.hand_over(self._host.state, record))
        self._host.caught_up(record.generation, ready)

    async def lost_primary(self) -> None:
        """The session has ended."""
        self._host.lost_primary()

    # -- definitions ----------------------------------------------------------------------------

    async def add_wiring(self, piece: Mapping[str, Any]) -> None:
        """A piece of the whole wiring."""
        self._definitions.add(piece)
        await self.committed(self._store.sequence)

    async def complete_wiring(self) -> None:
        """That was the whole wiring; what is not in it is deleted."""
        self._definitions.complete()
        await self.committed(self._store.sequence)

    async def change_wiring(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """One change of it."""
        self._definitions.change(operation, arguments)
        await self.committed(self._store.sequence)

    def replicated_queues(self) -> tuple[Queue, ...]:
        """The queues whose messages come from the primary."""
        return tuple(queue for queue in self._addresses if queue.is_replicated)

    def replicated_queue(self, identity: str) -> Queue | None:
        """The queue of that identity, if its messages come from the primary."""
        queue = self._addresses.by_identity(identity)
        return queue if queue is not None and queue.is_replicated else None

    # -- messages -------------------------------------------------------------------------------

    def begin_queue(self, queue: Queue) -> list[tuple[int, int]]:
        """The ranges of ids that a queue keeps.

        The duplicate-detection ids are cleared, for the primary sends all of its own: an id of a
        message that is discarded would have the next copy of it dropped as a second one.  So is what
        lies behind more ranges than a report has room for.  A queue that was deleted meanwhile keeps
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
        """Apply an event; the store's sequence of it.

        What was in flight when the queue was deleted is dropped.
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
            duplicate_id = None  # an id that is written twice takes two places in the store's window
        queue.insert(event.id, event.data, envelope, event.delivery_count, event.expires_at_ms)
        return self._persister.put(queue, event, duplicate_id)

    async def committed(self, sequence: int) -> int:
        """Wait until the store has committed up to there; the last one that it has."""
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
        """A message with a delay, which is due by this member's clock."""
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
        # The window comes behind the messages that were missing, whose ids are its newest ones.
        pairs = list(_pairs(event.arguments, ("ids", bytes), ("of", int)))
        queue.duplicates.renew(pairs)
        return self._persister.put_duplicates(queue, pairs)


def _pairs(
    arguments: Mapping[str, Any], first: tuple[str, type[T]], second: tuple[str, type[U]]
) -> Iterable[tuple[T, U]]:
    """Two columns of an event.

    :raises ValueError: when one is shorter, or has something of another type.
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
    """The primary gave these messages to a consumer: one more delivery."""
    for number in numbers:
        message = queue.message(number)
        if message is not None:
            message.set_count(message.failover_delivery_count + 1)


def set_counts(queue: Queue, counts: Mapping[int, int], *, first: int, last: int) -> list[Message]:
    """Take the counts of a span from the primary; the messages that are other ones now.

    What consumers have added to them is what the primary says next, if it says anything.

    :param counts: by number; 0 for a message of that span that is not in it.
    """
    if last - first < queue.depth:
        span: Sequence[int] = range(first, last + 1)
    else:
        # Not a look at each: a queue of a million gets as many events as that is times this span.
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
