"""A primary with a store, a backup and events for another site, in one process and without connections."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

from broker_stub.connections.credit import CreditWindow
from broker_stub.connections.incoming_links import AnonymousIncomingLink, IncomingLink
from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.durability.restore import restore
from broker_stub.election.generation import GenerationState
from broker_stub.queueing.exchanges import ExchangeType, Route
from broker_stub.queueing.intake import Intake
from broker_stub.queueing.message import Message
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode
from broker_stub.replication import wire
from broker_stub.replication.apply import Applier
from broker_stub.replication.replica import Phase, Replica
from broker_stub.sites.backup_state import BackupState
from broker_stub.sites.outbound import Outbound
from broker_stub.store import MemoryStore
from haclient.outcome import ACCEPTED, Outcome

NOW_MS = 1_700_000_000_000
Contents = dict[str, tuple[list[int], list[int]]]
"""By queue: the numbers of its messages, and the numbers of its duplicate-detection ids."""


class Client:
    """A link without a connection, on which a client sends; it records the outcomes."""

    closed_here = False

    def __init__(self) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._unsettled: set[int] = set()
        self._last = 0

    def send(self, link: IncomingLink | AnonymousIncomingLink, data: bytes) -> int:
        """Send a message; return the number of its delivery."""
        self._last += 1
        self._unsettled.add(self._last)
        link.delivered(self, self._last, data)  # type: ignore[arg-type]
        return self._last

    def settle(self, delivery: int, outcome: Outcome = ACCEPTED) -> bool:
        if delivery not in self._unsettled:
            return False
        self._unsettled.discard(delivery)
        self.outcomes[delivery] = outcome
        return True

    def change_credit(self, change: int) -> None: ...


class BackupLink:
    """The data link to a backup: it keeps events until the backup applies them."""

    owner: Any = None

    def __init__(self) -> None:
        self.endpoint = SimpleNamespace(remote_max_message_size=0)
        self.credit = 1_000_000
        self.sent: list[tuple[bytes, Any]] = []

    def send(self, data: bytes, token: Any) -> None:
        self.credit -= 1
        self.sent.append((data, token))


class Backup:
    """A backup with a store, without a connection."""

    state = GenerationState()

    def __init__(self, queues: list[Queue]) -> None:
        self.store = MemoryStore(duplicates=100)
        persister = Persister(self.store, Guard())
        self.addresses = Addresses(lambda: 0.0, now_ms=lambda: NOW_MS)
        self.addresses.watcher = persister
        host: Any = self
        self.applier = Applier(host, self.addresses, persister, self.store, BackupState)
        for queue in queues:
            self.declare(queue)

    def declare(self, queue: Queue) -> None:
        if self.addresses.find_queue(queue.name) is None:
            self.addresses.declare(queue.name, identity=queue.identity, site=queue.site)


class Primary:
    """A primary: queue, store, events for another site, and a replica that its producers wait for."""

    congested = False

    def __init__(self) -> None:
        self.guard = Guard()
        self.store = MemoryStore(duplicates=100)
        self.persister = Persister(self.store, self.guard)
        self.addresses = Addresses(lambda: 0.0, now_ms=lambda: NOW_MS)
        self.addresses.watcher = self.persister
        self.outbound = Outbound(self.addresses, lambda: NOW_MS, self.persister.put_site_progress)
        self.queue = self.addresses.declare("q", site=SiteMode.ALL)
        self.outbound.begin(self.queue)
        self.log = self.addresses.queue(REPLICATION_QUEUE)
        self.exchange = self.addresses.declare_exchange("x", ExchangeType.FANOUT)
        self.addresses.bind(self.exchange, self.queue, "")
        self.addresses.bind(self.exchange, self.addresses.declare("other"), "")
        self.backup = Backup(list(self.addresses))
        self.join()
        self.client = Client()
        self.client_id = "client"

    def target(self, address: str | None) -> Queue:
        return self.addresses.queue(address or "q")

    # -- calls of a replica on its owner and its connection ------------------------------------------

    def sent(self, size: int) -> None: ...

    def close(self, why: str) -> None: ...

    def acknowledged(self, message: Message) -> None:
        self.guard.acknowledged(message)

    def replica_failed(self, replica: Replica, _reason: str) -> None:
        for message in replica.drop():
            self.guard.acknowledged(message)

    def link_closed(self, _link: object) -> None: ...

    # -- the replica -------------------------------------------------------------------------------

    def join(self) -> None:
        """Let the backup join (again); producers wait for it at once."""
        owner: Any = self
        self.link, self.replica = BackupLink(), Replica("b", owner, owner)
        self.replica.data.attach(self.link)  # type: ignore[arg-type]
        for queue in self.addresses:
            self.replica.add(queue)
        for queue in self.addresses:
            copy = self.backup.addresses.queue(queue.name)
            self.replica.begin_queue(wire.key(queue.identity), self.backup.applier.begin_queue(copy))
        self.replica.phase = Phase.READY

    async def quiet(self) -> None:
        """Deliver everything in transit."""
        for _ in range(20):
            for data, token in self.link.sent:
                event = wire.decode(data)
                copy = self.backup.applier.replicated_queue(str(uuid.UUID(bytes=event.queue)))
                assert copy is not None
                await self.backup.applier.committed(self.backup.applier.apply(copy, event))
                if self.replica.phase is not Phase.DROPPED:
                    self.link.owner.settled(self.link, token, ACCEPTED)
            self.link.sent.clear()
            await asyncio.sleep(0)


def to_queue(primary: Primary) -> IncomingLink:
    client: Any = primary.client
    return IncomingLink(client, primary, primary.queue, CreditWindow(100, 10**6), Intake())


def to_exchange(primary: Primary) -> IncomingLink:
    client: Any = primary.client
    return IncomingLink(client, primary, Route(primary.exchange), CreditWindow(100, 10**6), Intake())


def to_anywhere(primary: Primary) -> AnonymousIncomingLink:
    client: Any = primary.client
    return AnonymousIncomingLink(client, primary, primary.target, CreditWindow(100, 10**6), Intake())


def contents(addresses: Addresses) -> Contents:
    """Return the contents of a member."""
    return {
        queue.name: (queue.ids(), [number for _, number in queue.duplicates.pairs()]) for queue in addresses
    }


async def contents_after_restart(store: MemoryStore) -> Contents:
    """Return the contents of a member that starts with this store."""
    addresses = Addresses(lambda: 0.0, now_ms=lambda: NOW_MS)
    await restore(addresses, Persister(store, Guard()), store, await store.load())
    return contents(addresses)
