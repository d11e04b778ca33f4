"""A member of a pair that is identical in every input and in the recordings."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from broker_stub.broker import Broker, BrokerOptions
from broker_stub.election.arbiter.urls import MemoryArbiter
from broker_stub.election.generation import ArbiterRecord
from broker_stub.member.member import ClusterOptions, ClusterSetup
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import QueueLimits
from broker_stub.replication.backup import CAPABILITY
from broker_stub.store import MemoryStore, QueueRecord
from haclient import aio

CLUSTER = "00000000-0000-4000-8000-000000000001"
ORDERS = "00000000-0000-4000-8000-00000000000a"
_EXCHANGE = "00000000-0000-4000-8000-00000000000b"
RECORD = ArbiterRecord(1, "claim", CLUSTER)
MESSAGES = 3
MESSAGE = b"\x00\x53\x77\xa1\x04text"
"""A body with one text, and no other section."""


class Arbiter(MemoryArbiter):
    """An arbiter that already holds a record."""

    def __init__(self) -> None:
        super().__init__()
        self._record = RECORD

    @property
    def record(self) -> ArbiterRecord:
        """Return the current record."""
        return self._record


class Nowhere:
    """A factory of connections that finds no primary."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None

    async def close(self) -> None: ...


def factory_to(url: str) -> aio.ConnectionFactory:
    """Return the factory with which a backup searches for its primary."""
    return aio.ConnectionFactory(
        url, desired_capabilities=(CAPABILITY,), startup_deadline=None, backoff_max=1.0, telemetry=""
    )


async def in_sync_store() -> MemoryStore:
    """Return the store of a member that was in sync in the generation of ``RECORD``."""
    store = MemoryStore(duplicates=10)
    store.write_generation(RECORD.generation)
    await store.write_cluster(RECORD.cluster, RECORD.claim)
    return store


def fill(store: MemoryStore) -> None:
    """Give a store the queue of ``lead``, with its messages."""
    identity = uuid.UUID(ORDERS)
    store.put_queue(QueueRecord(identity=identity, name="orders", replicate="all"))
    key = store.queue_key(identity)
    for number in range(1, MESSAGES + 1):
        store.put_message(key, number, MESSAGE)


def member(name: str, store: MemoryStore, arbiter: Arbiter, factory: Any) -> Broker:
    """Return a member that has not started."""
    return Broker(
        BrokerOptions(
            name=name, limits=QueueLimits(messages=50, size=100_000), max_frame_size=1024, heartbeat=0.0
        ),
        ClusterSetup(
            options=ClusterOptions(name=name),
            store=store,
            arbiter=arbiter,
            factory=lambda _members, _broker_url: factory,
        ),
    )


async def lead(broker: Broker) -> Queue:
    """Promote a started member; return its queue with three messages."""
    assert broker.member is not None
    await broker.member.promote()
    queue = broker.addresses.declare("orders", identity=ORDERS)
    exchange = broker.addresses.declare_exchange("topics", ExchangeType.TOPIC, identity=_EXCHANGE)
    broker.addresses.bind(exchange, queue, "a.#")
    for _ in range(MESSAGES):
        queue.enqueue(MESSAGE, ignore, None)
    return queue


def ignore(_token: object) -> None:
    """Ignore a completion."""
