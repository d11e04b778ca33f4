"""The local copy that a backup keeps: applies what the primary sends to queues and store.

Rules
-----
* Wiring goes by identity: the same name with another identity is another queue or exchange.
* What the whole wiring leaves out is deleted before what is in it is made: queues, then
  exchanges, then bindings.
* A queue whose messages are not replicated is empty: what it has is from when this was primary.
* What the primary discards is removed from memory and store alike, before what follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from broker_stub.address import Address
from broker_stub.amqp.message_format import inspect
from broker_stub.durability.persister import Persister, is_replicated
from broker_stub.election import generation as rules
from broker_stub.queueing.exchanges import Binding, Exchange, ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.replication import counts, wire
from broker_stub.sites.backup_state import BackupState
from broker_stub.sites.modes import SiteMode
from broker_stub.store import Store
from haclient import Endpoint

# Each takes 18 bytes, and an Attach is one frame of at most 64 KiB.
_MOST_RANGES = 2000


class BackupHost(Protocol):
    """The member, as its copy sees it."""

    state: rules.GenerationState

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write number and pending durably."""

    def found_primary(self, primary: Address | None, generation: int) -> None:
        """A primary is followed."""

    def caught_up(self, number: int, ready: tuple[str, ...]) -> None:
        """The primary handed over its generation."""

    def lost_primary(self) -> None:
        """No primary is followed any more."""


class Applier:
    """Applies the primary's events (``backup.Copy``)."""

    def __init__(self, host: BackupHost, addresses: Addresses, persister: Persister, store: Store) -> None:
        self._host = host
        self._addresses = addresses
        self._persister = persister
        self._store = store
        self._changes: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "queue": self._declare,
            "queue-deleted": self._delete,
            "exchange": self._declare_exchange,
            "exchange-deleted": self._delete_exchange,
            "binding": self._bind,
            "binding-deleted": self._unbind,
        }
        self._operations: dict[str, Callable[[Queue, wire.Event], int]] = {
            "discard": self._discard,
            "dequeued": self._discard,
            "acquired": self._count,
            "counts": self._set_counts,
            "duplicate": self._remember,
            "marks": lambda queue, event: self._backup_state.merge_progress(queue, event.arguments),
        }
        self._backup_state = BackupState(addresses, persister, self._insert)

    # -- generation -----------------------------------------------------------------------------

    def refusal_reason(self, generation: int) -> str | None:
        """Why this primary must not be followed."""
        refusal = rules.may_follow(self._host.state, generation)
        return None if refusal is None else str(refusal)

    async def begin_catch_up(self, primary: Endpoint | None, generation: int) -> None:
        """A primary is found: this member is not eligible until it gets a generation again."""
        await self._host.write_state(rules.erase(self._host.state))
        address = None if primary is None else Address(primary.host, primary.port, tls=primary.tls)
        self._host.found_primary(address, generation)

    async def note_pending(self, number: int, claim: str) -> None:
        """The primary is about to make a claim."""
        pending = rules.Pending(number, claim)
        await self._host.write_state(rules.note_pending(self._host.state, pending))

    async def take_generation(self, number: int, ready: tuple[str, ...]) -> None:
        """The primary hands its number over."""
        await self._host.write_state(rules.hand_over(self._host.state, number))
        self._host.caught_up(number, ready)

    async def lost_primary(self) -> None:
        """The session has ended."""
        self._host.lost_primary()

    # -- wiring ---------------------------------------------------------------------------------

    async def set_wiring(self, wiring: Mapping[str, Any]) -> None:
        """The whole wiring; what is not in it is deleted."""
        queues, exchanges = wiring.get("queues", ()), wiring.get("exchanges", ())
        bindings = wiring.get("bindings", ())
        self._delete_all_but(_identities(queues), _identities(exchanges), bindings)
        for change, entries in (
            (self._declare, queues),
            (self._declare_exchange, exchanges),
            (self._bind, bindings),
        ):
            for entry in entries:
                change(entry)
        await self.committed(self._store.sequence)

    async def change_wiring(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """One change of it."""
        change = self._changes.get(operation)
        if change is None:
            raise ValueError(f"the primary sent an unknown command {operation!r}")
        change(arguments)
        await self.committed(self._store.sequence)

    def _delete_all_but(
        self, queues: set[str], exchanges: set[str], bindings: Iterable[Mapping[str, Any]]
    ) -> None:
        addresses = self._addresses
        for queue in addresses:
            if queue.identity not in queues and not queue.temporary:
                addresses.delete(queue)
        for exchange in addresses.exchanges:
            if exchange.identity not in exchanges:
                addresses.delete_exchange(exchange)
        listed = {tuple(sorted(entry.items())) for entry in bindings}
        for binding in addresses.bindings:
            if tuple(sorted(binding_entry(binding).items())) not in listed and not binding.queue.temporary:
                addresses.unbind(binding)

    def _declare(self, entry: Mapping[str, Any]) -> None:
        identity = str(entry["identity"])
        queue = self._addresses.by_identity(identity)
        site = SiteMode(str(entry.get("site", SiteMode.NONE)))
        if queue is None:
            mode = Replicate(str(entry["replicate"]))
            self._addresses.declare(str(entry["name"]), replicate=mode, site=site, identity=identity)
            return
        self._addresses.set_site(queue, site)
        if not is_replicated(queue):
            queue.discard(queue.ids())

    def _delete(self, entry: Mapping[str, Any]) -> None:
        queue = self._addresses.by_identity(str(entry["identity"]))
        if queue is not None:
            self._addresses.delete(queue)

    def _declare_exchange(self, entry: Mapping[str, Any]) -> None:
        identity, options = str(entry["identity"]), entry.get("options", {})
        exchange = self._addresses.exchange_by_identity(identity)
        if exchange is None:
            kind, mode = ExchangeType(str(entry["type"])), Replicate(str(entry["replicate"]))
            self._addresses.declare_exchange(
                str(entry["name"]), kind, replicate=mode, identity=identity, options=options
            )
        elif exchange.options != options:
            self._addresses.change_exchange(exchange, options)

    def _delete_exchange(self, entry: Mapping[str, Any]) -> None:
        exchange = self._addresses.exchange_by_identity(str(entry["identity"]))
        if exchange is not None:
            self._addresses.delete_exchange(exchange)

    def _bind(self, entry: Mapping[str, Any]) -> None:
        exchange, queue = self._ends(entry)
        self._addresses.bind(exchange, queue, str(entry["key"]))

    def _unbind(self, entry: Mapping[str, Any]) -> None:
        self._addresses.unbind(Binding(*self._ends(entry), str(entry["key"])))

    def _ends(self, entry: Mapping[str, Any]) -> tuple[Exchange, Queue]:
        exchange = self._addresses.exchange_by_identity(str(entry["exchange"]))
        queue = self._addresses.by_identity(str(entry["queue"]))
        if exchange is None or queue is None:
            raise ValueError(f"the primary sent a binding of what it has not declared: {entry}")
        return exchange, queue

    def replicated_queues(self) -> tuple[Queue, ...]:
        """The queues whose messages come from the primary."""
        return tuple(queue for queue in self._addresses if is_replicated(queue))

    # -- messages -------------------------------------------------------------------------------

    def begin_queue(self, queue: Queue) -> list[tuple[int, int]]:
        """The ranges of ids that a queue keeps.

        The duplicate-detection ids are cleared, for the primary sends all of its own: an id of a
        message that is discarded would have the next copy of it dropped as a second one.  So is what
        lies behind more ranges than an Attach has room for.  A queue that was deleted meanwhile keeps
        nothing, and the primary refuses it.
        """
        if queue.deleted:
            return []
        self._backup_state.begin(queue)
        queue.duplicates.clear()
        self._persister.clear_duplicates(queue)
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
        if isinstance(event, wire.ReplicatedMessage):
            return (
                self._insert(queue, event)
                if queue.site_progress is None
                else self._backup_state.apply(queue, event)
            )
        operation = self._operations.get(event.operation)
        if operation is None:
            raise ValueError(f"the primary sent an unknown event {event.operation!r}")
        return operation(queue, event)

    def _insert(self, queue: Queue, event: wire.ReplicatedMessage) -> int:
        envelope = inspect(event.data)
        duplicate_id = envelope.duplicate_id
        if duplicate_id is not None and queue.duplicates.first_copy(duplicate_id) is not None:
            duplicate_id = None  # an id that is written twice takes two places in the store's window
        queue.insert(event.id, event.data, envelope, event.delivery_count, event.expires_at_ms)
        return self._persister.put(queue, event, duplicate_id)

    async def committed(self, sequence: int) -> None:
        """Wait until the store has committed up to there."""
        if self._store.committed < sequence:
            await self._store.when_committed(sequence)

    def _discard(self, queue: Queue, event: wire.Event) -> int:
        queue.discard(event.ids)
        return self._persister.flush()

    def _count(self, queue: Queue, event: wire.Event) -> int:
        counts.count(queue, event.ids)
        self._persister.counted(queue, event.ids)
        return self._persister.flush()

    def _set_counts(self, queue: Queue, event: wire.Event) -> int:
        of = event.arguments
        delivery_counts = dict(zip(of["ids"], of["counts"], strict=True))
        for message in counts.set_counts(queue, delivery_counts, first=of["first"], last=of["last"]):
            expiry = message.expires_at_ms or 0
            row = wire.ReplicatedMessage(
                message.number, message.failover_delivery_count, expiry, message.data
            )
            self._persister.put(queue, row, None)
        return self._store.sequence

    def _remember(self, queue: Queue, event: wire.Event) -> int:
        pairs = zip(event.arguments["ids"], event.arguments["of"], strict=True)
        new = [(key, number) for key, number in pairs if queue.duplicates.add(key, number)]
        return self._persister.put_duplicates(queue, new)


def _identities(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(entry["identity"]) for entry in entries}


# -- the wiring, as a replica is sent it ------------------------------------------------------------


def is_on_backups(node: Queue | Exchange) -> bool:
    """Whether the backups know of a queue or an exchange (a temporary queue is not replicated)."""
    return node.replicate is not Replicate.NONE


def binding_is_on_backups(binding: Binding) -> bool:
    """Whether the backups know of a binding: of those of which they know both ends."""
    return is_on_backups(binding.exchange) and is_on_backups(binding.queue)


def wiring_of(addresses: Addresses) -> dict[str, Any]:
    """All of it."""
    return {
        "queues": [queue_entry(queue) for queue in addresses if is_on_backups(queue)],
        "exchanges": [
            exchange_entry(exchange) for exchange in addresses.exchanges if is_on_backups(exchange)
        ],
        "bindings": [
            binding_entry(binding) for binding in addresses.bindings if binding_is_on_backups(binding)
        ],
    }


def queue_entry(queue: Queue) -> dict[str, str]:
    """One queue of it."""
    entry = {"identity": queue.identity, "name": queue.name, "replicate": str(queue.replicate)}
    return entry if queue.site is SiteMode.NONE else {**entry, "site": str(queue.site)}


def exchange_entry(exchange: Exchange) -> dict[str, Any]:
    """One exchange of it."""
    entry = {
        "identity": exchange.identity,
        "name": exchange.name,
        "type": str(exchange.type),
        "replicate": str(exchange.replicate),
    }
    return {**entry, "options": dict(exchange.options)} if exchange.options else entry


def binding_entry(binding: Binding) -> dict[str, str]:
    """One binding of it."""
    return {"exchange": binding.exchange.identity, "queue": binding.queue.identity, "key": binding.key}
