"""The contents of a store in its next life."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.queueing.message import Replicate
from broker_stub.store import (
    QueueRecord,
    Store,
    StoredMessage,
    StoreFailedError,
    StoreLockedError,
    open_store,
)
from tests.broker_stub.store.contents import ORDERS, content, declare, fill, messages


@pytest.mark.parametrize("clean", [True, False])
async def test_everything_is_there_again_and_the_end_is_known(tmp_path: Path, clean: bool) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    fill(store)
    before, identity = await content(store), store.identity
    await store.close(clean=clean)
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert (await store.load()).was_clean is clean
    assert await content(store) == before
    assert (store.identity, store.corruption) == (identity, "")
    await store.close()


async def test_a_store_of_the_version_before_is_made_one_of_this_version(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    fill(store)
    queue = store.queue_key(ORDERS)
    store.clear_confirmed(queue)
    before = await content(store)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as database:
        database.execute("DROP TABLE confirmed")
        database.execute("PRAGMA user_version = 1")
    for last in range(2):
        store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
        assert store.corruption == ""
        if not last:
            assert await content(store) == before
        queue = store.queue_key(ORDERS)
        store.put_confirmed(queue, [(b"x" * 16, last + 1)], keep=100)
        assert await store.confirmed(queue) == [(b"x" * 16, each + 1) for each in range(last + 1)]
        await store.close()


async def test_a_store_is_dirty_from_the_moment_it_is_open(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "one", duplicates=DEFAULT_WINDOW)
    copy = tmp_path / "two"
    copy.mkdir()
    for part in (tmp_path / "one").iterdir():
        (copy / part.name).write_bytes(part.read_bytes())
    await store.close()
    crashed = await open_store(copy, duplicates=DEFAULT_WINDOW)
    assert not (await crashed.load()).was_clean
    assert crashed.corruption == ""
    await crashed.close()


async def test_keys_and_positions_go_on_where_they_were(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=2)
    queue = declare(store)
    store.put_duplicates(queue, [(b"a", 1), (b"b", 2)])
    await store.close()
    store = await open_store(tmp_path, duplicates=2)
    assert declare(store, uuid.UUID(int=9), "other") != store.queue_key(ORDERS)
    store.put_message(queue, 3, b"", duplicate_id=b"c")
    assert await store.duplicates(queue) == [(b"b", 2), (b"c", 3)]
    await store.close()


async def test_a_text_may_be_an_enum(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    store.put_queue(QueueRecord(identity=ORDERS, name="orders", replicate=Replicate.ALL))
    await store.close()
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert store.corruption == ""
    [queue] = (await store.load()).queues
    assert queue.record.replicate == "all"
    await store.close()


async def test_a_smaller_window_forgets_the_oldest(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    queue = declare(store)
    store.put_duplicates(queue, [(b"%d" % number, number) for number in range(10)])
    await store.close()
    store = await open_store(tmp_path, duplicates=2)
    assert await store.duplicates(queue) == [(b"8", 8), (b"9", 9)]
    await store.close()


async def test_a_delay_gathers_several_turns_into_one_commit(tmp_path: Path) -> None:
    store = await open_store(tmp_path, delay=0.05, duplicates=DEFAULT_WINDOW)
    reported: list[int] = []
    store.on_committed(reported.append)
    for name in "abc":
        store.put_replicas([name])
        await asyncio.sleep(0)
    await store.when_committed(1)
    assert reported == [3]
    await store.close()


async def test_a_second_store_in_the_directory_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    with pytest.raises(StoreLockedError, match=f"in use by process {os.getpid()}"):
        await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    code = (
        "import asyncio, sys; from broker_stub.store import open_store\n"
        "try: asyncio.run(open_store(sys.argv[1], duplicates=10))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True, timeout=30
    )
    assert f"StoreLockedError the store {tmp_path} is in use by process {os.getpid()}" in other.stdout
    await store.write_generation(3)
    await store.close()
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert (await store.load()).generation == 3
    await store.close()


async def test_a_cancelled_opening_leaves_the_directory_free(tmp_path: Path) -> None:
    opening = asyncio.ensure_future(open_store(tmp_path, duplicates=DEFAULT_WINDOW))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with asyncio.timeout(10):
        while True:
            try:
                store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
            except StoreLockedError:
                await asyncio.sleep(0.01)
            else:
                break
    assert store.corruption == ""
    await store.close()


async def test_a_directory_that_cannot_be_made_is_an_error_and_no_corruption(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailedError, match="cannot be opened"):
        await open_store(tmp_path / "file" / "store", duplicates=DEFAULT_WINDOW)


async def test_a_database_that_another_process_holds_is_an_error_and_no_corruption(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    await store.write_generation(3)
    await store.close()
    reader = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    reader.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(StoreFailedError, match="locked"):
            await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    finally:
        reader.close()
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert ((await store.load()).generation, store.corruption) == (3, "")
    await store.close()


async def test_a_deleted_queue_leaves_no_row_behind(tmp_path: Path) -> None:
    store: Store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    fill(store)
    for queue in (await store.load()).queues:
        store.delete_queue(queue.key)
    await store.close()
    database = sqlite3.connect(tmp_path / "store.db")
    left = {
        table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - fixed words
        for table in ("queues", "messages", "duplicates", "bindings", "counters")
    }
    database.close()
    assert left == {"queues": 0, "messages": 0, "duplicates": 0, "bindings": 0, "counters": 1}


async def test_large_and_many_messages_come_back(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    queue = declare(store)
    for number in range(1, 10_001):
        store.put_message(queue, number, number.to_bytes(4) * 5)
    store.put_message(queue, 10_001, b"\xff" * 5_000_000)
    store.put_message(queue, 10_002, b"\xfe" * 5_000_000)
    await store.close()
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    sizes = [len(chunk) async for chunk in store.messages(queue)]
    assert sizes == [1000] * 10 + [1, 1], "a chunk ends with a large message"
    found = await messages(store, queue)
    assert found[:2] == [StoredMessage(number, number.to_bytes(4) * 5) for number in (1, 2)]
    assert [message.id for message in found] == list(range(1, 10_003))
    await store.close()
