"""Many rewritten messages delay no other write, and are all written."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from broker_stub.store import open_store, writer
from broker_stub.store.batch import MOST_REWRITTEN, Batch
from tests.broker_stub.store.contents import declare, messages

MIB = 1 << 20
COUNT = 5 * MOST_REWRITTEN // MIB


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of rewritten messages for each commit that has begun."""
    sizes: list[int] = []
    commit = writer.commit

    def noted(connection: sqlite3.Connection, batch: Batch, commits: int, window: int) -> None:
        rows = [rewrite.row for rewrites in batch.rewrites.values() for rewrite in rewrites.values()]
        sizes.append(sum(len(data) for data, _, _ in rows))
        commit(connection, batch, commits, window)

    monkeypatch.setattr(writer, "commit", noted)
    return sizes


async def test_a_commit_waits_for_few_of_them(tmp_path: Path, rewritten: list[int]) -> None:
    """Later writes are committed before the last rewrite; a clean end writes them all."""
    async with asyncio.timeout(60):
        store = await open_store(tmp_path, duplicates=10)
        queue = declare(store)
        for number in range(1, COUNT + 1):
            store.put_message(queue, number, bytes(MIB))
        await store.when_committed(store.sequence)
        for number in range(1, COUNT + 1):
            store.rewrite_message(queue, number, bytes(MIB), prefix=b"A", delivery_count=1, expires_at=None)
        store.put_message(queue, COUNT + 1, b"of somebody else")
        await store.when_committed(store.sequence)
        assert sum(rewritten) < COUNT * MIB
        await store.close()
        assert max(rewritten) <= MOST_REWRITTEN + MIB
        assert sum(rewritten) == COUNT * (MIB + 1)
        store = await open_store(tmp_path, duplicates=10)
        *again, last = await messages(store, store.queue_key((await store.load()).queues[0].record.identity))
        assert {(message.data[:1], message.delivery_count) for message in again} == {(b"A", 1)}
        assert last.data == b"of somebody else"
        await store.close()


async def test_they_are_all_written_while_nothing_else_happens(tmp_path: Path, rewritten: list[int]) -> None:
    store = await open_store(tmp_path, duplicates=10)
    queue = declare(store)
    for number in range(1, COUNT + 1):
        store.put_message(queue, number, bytes(MIB))
    for number in range(1, COUNT + 1):
        store.rewrite_message(queue, number, bytes(MIB), delivery_count=1, expires_at=None)
    await store.when_committed(store.sequence)
    for number in range(1, COUNT + 1):
        store.rewrite_message(queue, number, bytes(MIB), delivery_count=2, expires_at=None)
    commits = asyncio.Event()
    store.on_committed(lambda _: commits.set())
    async with asyncio.timeout(60):
        while sum(rewritten) < COUNT * MIB:
            commits.clear()
            await commits.wait()
    assert {message.delivery_count for message in await messages(store, queue)} == {2}
    await store.close()


async def test_a_large_message_that_is_modified_often_is_written_a_few_times(
    tmp_path: Path, rewritten: list[int]
) -> None:
    """The number of outcomes while the disk writes does not matter."""
    store = await open_store(tmp_path, duplicates=10)
    queue = declare(store)
    store.put_message(queue, 1, bytes(MIB))
    await store.when_committed(store.sequence)
    for number in range(200):
        store.rewrite_message(
            queue, 1, bytes(MIB), prefix=b"%d" % number, delivery_count=number, expires_at=None
        )
        if not number % 50:
            await asyncio.sleep(0)
    await store.close()
    assert sum(rewritten) < 6 * MIB
    assert rewritten[-1] == MIB + len("199")
