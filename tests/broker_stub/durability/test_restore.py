"""A starting member restores its queues from the store, many at a time."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from proton import Message

from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.durability.restore import restore
from broker_stub.queueing.nodes import Addresses
from broker_stub.store import QueueRecord
from broker_stub.store.reading import CHUNK_MESSAGES
from broker_stub.store.sqlite import SqliteStore, open_store
from broker_stub.store.writer import Writer

QUEUES = 64
DATA = bytes(Message(body="x").encode())


async def filled(directory: Path) -> None:
    """A store whose first queue has more than one chunk, and an id for every second message."""
    store = await open_store(directory, duplicates=10)
    for number in range(QUEUES):
        identity = uuid.uuid4()
        store.put_queue(QueueRecord(identity=identity, name=f"q{number}", replicate="all", arguments={}))
        key = store.queue_key(identity)
        for position in range(1 if number else 2 * CHUNK_MESSAGES):
            duplicate_id = b"id" if number % 2 else None
            store.put_message(key, position + 1, DATA, duplicate_id=duplicate_id)
    await store.close()


async def restored(store: SqliteStore) -> Addresses:
    addresses = Addresses(lambda: 0.0)
    await restore(addresses, Persister(store, Guard()), store, await store.load())
    return addresses


async def test_every_queue_has_its_messages_and_the_ids_that_it_remembers(tmp_path: Path) -> None:
    await filled(tmp_path)
    store = await open_store(tmp_path, duplicates=10)
    addresses = await restored(store)
    await store.close()
    depths = {queue.name: queue.depth for queue in addresses}
    assert depths == {f"q{number}": 1 if number else 2 * CHUNK_MESSAGES for number in range(QUEUES)}
    remembered = {queue.name for queue in addresses if queue.duplicates.pairs()}
    assert remembered == {f"q{number}" for number in range(1, QUEUES, 2)}


async def test_a_queue_costs_less_than_one_hand_over_to_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path)
    store = await open_store(tmp_path, duplicates=10)
    batches = 0
    submit = Writer.submit

    def counted(self: Writer, batch: object) -> None:
        nonlocal batches
        batches += 1
        submit(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "submit", counted)
    await restored(store)
    await store.close()
    assert batches <= QUEUES // 4
