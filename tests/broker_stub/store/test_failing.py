"""A full or broken disk: the store stops, and its earlier acknowledgements stay true."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.store import SqliteStore, StoreFailedError, open_store
from broker_stub.store.disk_space import LOG
from tests.broker_stub.store.contents import ORDERS, declare, messages


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "store-test", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True, timeout=10).returncode:
        pytest.skip("may not mount a file system")
    yield tmp_path
    # Lazily: a failed test may have left its store open, and the mount must not stay.
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True, timeout=10)


async def write_until_failure(store: SqliteStore) -> tuple[int, list[StoreFailedError]]:
    """Put messages until the store fails; return the committed number, and the reported error."""
    queue = declare(store)
    failures: list[StoreFailedError] = []
    committed: list[int] = []
    store.on_failed(failures.append)
    store.on_committed(committed.append)
    for first in range(1, 10_000, 10):
        sequences = [store.put_message(queue, first + place, os.urandom(2000)) for place in range(10)]
        outcomes = await asyncio.gather(*map(store.when_committed, sequences), return_exceptions=True)
        if any(outcomes):
            break
    assert {type(outcome) for outcome in outcomes} == {StoreFailedError}, "a batch fails as a whole"
    assert committed[-1] == store.committed
    return first - 1, failures


async def test_a_full_disk_stops_the_store_and_loses_nothing(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(500_000))
    store = await open_store(small_disk, duplicates=DEFAULT_WINDOW)
    reported, failures = await write_until_failure(store)
    assert reported >= 10
    assert len(failures) == 1
    assert "full" in str(failures[0])
    queue = store.queue_key(ORDERS)
    for operation in (
        lambda: store.put_message(queue, 1, b""),
        lambda: store.remove_messages(queue, [1]),
        lambda: store.write_generation(None),
    ):
        with pytest.raises(StoreFailedError, match="full"):
            operation()
    with pytest.raises(StoreFailedError, match="full"):
        await store.load()
    with pytest.raises(StoreFailedError, match="full"):
        await store.when_committed(store.sequence)
    late: list[StoreFailedError] = []
    store.on_failed(late.append)
    await asyncio.sleep(0)
    assert late == failures
    await store.close()

    filler.unlink()
    store = await open_store(small_disk, duplicates=DEFAULT_WINDOW)
    assert (store.corruption, (await store.load()).was_clean) == ("", False)
    found = [message.id for message in await messages(store, queue)]
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= reported
    await store.close()


def _written(file: io.RawIOBase) -> bool:
    try:
        return bool(file.write(bytes(4096)))
    except OSError:
        return False


async def test_a_disk_too_full_to_open_is_an_error_and_moves_nothing(small_disk: Path) -> None:
    store = await open_store(small_disk, duplicates=DEFAULT_WINDOW)
    await store.write_generation(4)
    await store.close()
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while _written(file):
            pass
    with pytest.raises(StoreFailedError, match="cannot be opened"):
        await open_store(small_disk, duplicates=DEFAULT_WINDOW)
    filler.unlink()
    store = await open_store(small_disk, duplicates=DEFAULT_WINDOW)
    assert (store.corruption, (await store.load()).generation) == ("", 4)
    await store.close()


LIMITED = """
import asyncio, resource, sys, uuid
from broker_stub.store import QueueRecord, StoreFailedError, open_store

async def main(directory):
    store = await open_store(directory, duplicates=10)
    store.put_queue(QueueRecord(identity=uuid.UUID(int=1), name="orders"))
    queue = store.queue_key(uuid.UUID(int=1))
    await store.when_committed(store.sequence)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    failed = []
    store.on_failed(failed.append)
    number = 0
    try:
        while True:
            await store.when_committed(store.put_message(queue, number + 1, bytes(1000)))
            number += 1
    except StoreFailedError as error:
        print(number, len(failed), type(error.__cause__).__name__, error)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_an_error_of_the_file_system_stops_the_store(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    reported, failures, kind, *words = process.stdout.split()
    assert (failures, kind) == ("1", "OperationalError"), words
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert store.corruption == ""
    found = await messages(store, declare(store))
    assert int(reported) <= len(found) <= int(reported) + 1
    assert [message.id for message in found] == list(range(1, len(found) + 1))
    await store.close()


async def test_a_commit_that_was_not_counted_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    await store.write_generation(1)

    def broken(commits: int) -> None:
        raise OSError("the commit count cannot be written")

    monkeypatch.setattr(store._writer._commit_count, "write", broken)
    with pytest.raises(StoreFailedError, match="count cannot be written"):
        await store.write_generation(2)
    assert store.committed == 1
    assert not (tmp_path / LOG).exists(), "SQLite moves it into the database at its close"
    await store.close()


async def test_a_clean_flag_that_cannot_be_written_is_an_error_of_the_close(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    await store.write_generation(1)
    await asyncio.to_thread(store._writer._connection.close)
    with pytest.raises(StoreFailedError):
        await store.close()
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert not (await store.load()).was_clean
    await store.close()
