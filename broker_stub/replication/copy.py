"""The local copy that a backup keeps: applies what the primary sends to queues and store.

Rules
-----
* Wiring goes by identity: the same name with another identity is another queue.
* What the primary discards is removed from memory and store alike, before what follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from broker_stub import generation as rules
from broker_stub.address import Address
from broker_stub.addresses import Addresses
from broker_stub.keeper import Keeper, is_replicated
from broker_stub.messages import Replicate
from broker_stub.queues import Queue
from broker_stub.replication import wire
from broker_stub.sections import inspect
from broker_stub.store import Store
from haclient import Endpoint


class Follower(Protocol):
    """The member, as its copy sees it."""

    state: rules.GenerationState

    async def write_state(self, state: rules.GenerationState) -> None:
        """Write number and pending durably."""

    def found_primary(self, primary: Address | None, generation: int) -> None:
        """A primary is followed."""

    def caught_up(self, number: int, ready: tuple[str, ...]) -> None:
        """The primary handed its number over."""

    def lost_primary(self) -> None:
        """No primary is followed any more."""


class LocalCopy:
    """Carries the primary's events out (``backup.Copy``)."""

    def __init__(self, follower: Follower, addresses: Addresses, keeper: Keeper, store: Store) -> None:
        self._follower = follower
        self._addresses = addresses
        self._keeper = keeper
        self._store = store
        self._operations: dict[str, Callable[[Queue, wire.Event], int]] = {
            "discard": self._forget,
            "dequeued": self._forget,
            "acquired": self._count,
            "duplicate": self._remember,
        }

    # -- generation -----------------------------------------------------------------------------

    def objection(self, generation: int) -> str | None:
        """Why this primary must not be followed."""
        refusal = rules.may_follow(self._follower.state, generation)
        return None if refusal is None else str(refusal)

    async def begin_catch_up(self, primary: Endpoint | None, generation: int) -> None:
        """A primary is found: this member is no heir until it is told so again."""
        await self._follower.write_state(rules.erase(self._follower.state))
        address = None if primary is None else Address(primary.host, primary.port, tls=primary.tls)
        self._follower.found_primary(address, generation)

    async def note_pending(self, number: int, claim: str) -> None:
        """The primary is about to make a claim."""
        pending = rules.Pending(number, claim)
        await self._follower.write_state(rules.note_pending(self._follower.state, pending))

    async def take_number(self, number: int, ready: tuple[str, ...]) -> None:
        """The primary hands its number over."""
        await self._follower.write_state(rules.hand_over(self._follower.state, number))
        self._follower.caught_up(number, ready)

    async def lost_primary(self) -> None:
        """The session is over."""
        self._follower.lost_primary()

    # -- wiring ---------------------------------------------------------------------------------

    async def set_wiring(self, wiring: Mapping[str, Any]) -> None:
        """The whole wiring; what is not in it is deleted."""
        listed = {str(entry["identity"]): entry for entry in wiring.get("queues", ())}
        for queue in self._addresses:
            if queue.identity not in listed and not queue.temporary:
                self._addresses.delete(queue)
        for entry in listed.values():
            self._declare(entry)
        await self.committed(self._store.sequence)

    async def change_wiring(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """One change of it."""
        if operation == "queue":
            self._declare(arguments)
        elif operation == "queue-deleted":
            queue = self._addresses.by_identity(str(arguments["identity"]))
            if queue is not None:
                self._addresses.delete(queue)
        else:
            raise ValueError(f"the primary sent an order {operation!r}")
        await self.committed(self._store.sequence)

    def _declare(self, entry: Mapping[str, Any]) -> None:
        identity = str(entry["identity"])
        if self._addresses.by_identity(identity) is None:
            mode = Replicate(str(entry["replicate"]))
            self._addresses.declare(str(entry["name"]), replicate=mode, identity=identity)

    def replicated_queues(self) -> tuple[Queue, ...]:
        """The queues whose messages come from the primary."""
        return tuple(queue for queue in self._addresses if is_replicated(queue))

    # -- messages -------------------------------------------------------------------------------

    def apply(self, queue: Queue, event: wire.ReplicatedMessage | wire.Event) -> int:
        """Carry an event out; the store's sequence of it."""
        if isinstance(event, wire.ReplicatedMessage):
            envelope = inspect(event.data)
            queue.copy(event.id, event.data, envelope, event.delivery_count, event.expires_at_ms)
            return self._keeper.put(queue, event, envelope.duplicate_id)
        operation = self._operations.get(event.operation)
        if operation is None:
            raise ValueError(f"the primary sent an event {event.operation!r}")
        return operation(queue, event)

    async def committed(self, sequence: int) -> None:
        """Wait until the store has committed up to there."""
        if self._store.committed < sequence:
            await self._store.when_committed(sequence)

    def _forget(self, queue: Queue, event: wire.Event) -> int:
        queue.forget(event.ids)
        return self._keeper.flush()

    def _count(self, queue: Queue, event: wire.Event) -> int:
        queue.count(event.ids)
        self._keeper.counted(queue, event.ids)
        return self._keeper.flush()

    def _remember(self, queue: Queue, event: wire.Event) -> int:
        pairs = list(zip(event.arguments["ids"], event.arguments["of"], strict=True))
        for key, number in pairs:
            queue.remember(key, number)
        return self._keeper.put_duplicates(queue, pairs)


def wiring_of(addresses: Addresses) -> dict[str, Any]:
    """The wiring as a replica is sent it."""
    return {"queues": [queue_entry(queue) for queue in addresses if queue.replicate is not Replicate.NONE]}


def queue_entry(queue: Queue) -> dict[str, Any]:
    """One queue of it."""
    return {"identity": queue.identity, "name": queue.name, "replicate": str(queue.replicate)}
