"""The store contents of a stopped member, for comparing members.

A store is read from a copy: reading changes nothing, and a member may be restarted on it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from broker_stub.election.generation import Pending
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.store import ExchangeRecord, QueueRecord, Snapshot, Store, open_store

Row = tuple[int, bytes, int]
"""Of a message: id, encoded message, delivery count."""


class Wiring(NamedTuple):
    """The wiring without its ids: by name, or as a set."""

    queues: dict[str, QueueRecord]
    exchanges: dict[str, ExchangeRecord]
    bindings: set[tuple[str, str, str]]


class Generation(NamedTuple):
    """The facts that decide a promotion."""

    generation: int | None
    pending: Pending | None


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    """Open a copy of the store of a directory.

    :raises AssertionError: if the store is damaged.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "store"
        shutil.copytree(path, copy)
        store = await open_store(copy, duplicates=DEFAULT_WINDOW)
        try:
            assert not store.corruption, f"{path}: {store.corruption}"
            yield store
        finally:
            await store.close()


async def contents(path: Path) -> dict[str, list[Row]]:
    """Return the messages of every queue, by the queue's name."""
    async with opened(path) as store:
        snapshot = await store.load()
        return {queue.record.name: await _rows(store, queue.key) for queue in snapshot.queues}


async def wiring(path: Path) -> Wiring:
    """Return queues, exchanges and bindings."""
    snapshot = await _load(path)
    return Wiring(
        {queue.record.name: queue.record for queue in snapshot.queues},
        {exchange.name: exchange for exchange in snapshot.exchanges},
        {(str(binding.exchange), str(binding.queue), binding.key) for binding in snapshot.bindings},
    )


async def generation(path: Path) -> Generation:
    """Return the member's generation and pending claim."""
    snapshot = await _load(path)
    return Generation(snapshot.generation, snapshot.pending)


async def _load(path: Path) -> Snapshot:
    async with opened(path) as store:
        return await store.load()


async def _rows(store: Store, key: int) -> list[Row]:
    chunks = store.messages(key)
    return [(row.id, row.data, row.delivery_count) async for chunk in chunks for row in chunk]
