"""The contents of a store, in a form that can be compared."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_stub.election.generation import Pending
from broker_stub.store import BindingRecord, ExchangeRecord, QueueRecord, Snapshot, Store, StoredMessage

ORDERS = uuid.UUID(int=1)
BILLS = uuid.UUID(int=2)
TOPICS = uuid.UUID(int=3)


@dataclass(frozen=True)
class Content:
    """Everything except whether the last end was clean."""

    number: int | None
    pending: Pending | None
    replicas: tuple[str, ...]
    queues: dict[str, tuple[QueueRecord, int]]
    wiring: tuple[Any, ...]
    messages: dict[str, list[StoredMessage]]
    duplicates: dict[str, list[tuple[bytes, int]]]
    confirmed: dict[str, list[tuple[bytes, int]]]


async def messages(store: Store, queue: int) -> list[StoredMessage]:
    return [message async for chunk in store.messages(queue) for message in chunk]


async def content(store: Store) -> Content:
    snapshot: Snapshot = await store.load()
    return Content(
        snapshot.generation,
        snapshot.pending,
        snapshot.replicas,
        {str(queue.record.identity): (queue.record, queue.last_id) for queue in snapshot.queues},
        (*snapshot.exchanges, *snapshot.bindings),
        {str(queue.record.identity): await messages(store, queue.key) for queue in snapshot.queues},
        {str(queue.record.identity): await store.duplicates(queue.key) for queue in snapshot.queues},
        {str(queue.record.identity): await store.confirmed(queue.key) for queue in snapshot.queues},
    )


def declare(store: Store, identity: uuid.UUID = ORDERS, name: str = "orders") -> int:
    """Declare a queue; return its key."""
    store.put_queue(QueueRecord(identity=identity, name=name))
    return store.queue_key(identity)


def fill(store: Store, count: int = 30) -> None:
    """Write one item of each kind, and some messages of very different sizes."""
    store.put_replicas(["b", "c"])
    store.write_generation(7)
    store.write_pending(Pending(8, "claim-1"))
    orders, bills = declare(store), declare(store, BILLS, "bills")
    exchange = ExchangeRecord(identity=TOPICS, name="topics", type="topic", arguments={"a": [1, None]})
    store.put_exchange(exchange)
    store.put_binding(BindingRecord(exchange=TOPICS, queue=BILLS, key="eu.#"))
    for number in range(1, count + 1):
        data = bytes([number]) * (number * 40 if number % 10 else 9000)
        expires_at = None if number % 3 else 1_700_000_000_000 + number
        store.put_message(orders, number, data, expires_at=expires_at, duplicate_id=b"id-%d" % number)
        store.put_message(bills, number << 40, b"bill %d" % number, delivery_count=number % 2)
    store.remove_messages(orders, range(1, count, 7))
    store.put_confirmed(orders, [(bytes([number]) * 16, number) for number in range(1, count, 7)], keep=100)
    store.count_delivery(orders, range(1, count, 5))


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory, if the system has one: hundreds of stores, and no test of fsync."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)
