"""A disk that is full at any moment: committed messages survive, and the store opens, now or later."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from broker_stub.store import DiskUsage, open_store, writer
from tests.small_disk import SmallDisk

_SOURCES = Path(__file__).resolve().parents[3]

# Runs on the disk: fills it except for some bytes, opens the store, writes, and ends without closing it.
_SCRIPT = """
import asyncio, os, sys, uuid
from pathlib import Path
from broker_stub.store import QueueRecord, StoreFailedError, open_store

disk, reserve = Path(sys.argv[1]), 2 << 20
identity = uuid.UUID(int=16)
steps = [*range(0, 200_000, 8192), *range(200_000, 4 << 20, 600_000)]

def fill(leave):
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while (left := os.statvfs(disk).f_bavail * 4096 - leave) > 0 or not leave:
                file.write(bytes(max(1, min(65536, left))))
        except OSError:
            pass

async def committed(store, seconds=30):
    try:
        await asyncio.wait_for(store.when_committed(store.sequence), seconds)
    except (TimeoutError, StoreFailedError):
        return False
    return True

async def close(store):
    try:
        await store.close(clean=False)
    except StoreFailedError:
        pass

async def ids(store, key):
    return {row.id async for chunk in store.messages(key) for row in chunk}

async def main():
    directory = disk / "store"
    store = await open_store(directory, duplicates=10, reserve=reserve)
    store.put_queue(QueueRecord(identity=identity, name="q"))
    key = store.queue_key(identity)
    for number in range(1, 201):
        store.put_message(key, number, os.urandom(5000))
    assert await committed(store)
    await store.close()
    assert (directory / "reserve").stat().st_blocks * 512 >= reserve
    has, last, opened, refused, written, removed = set(range(1, 201)), 200, 0, 0, 0, 0
    for leave in steps:
        fill(leave)
        try:
            store = await open_store(directory, duplicates=10, reserve=reserve)
        except StoreFailedError as error:
            refused += 1
            assert str(directory) in str(error) and "make room" in str(error), error
        else:
            opened += 1
            victim = min(has)
            store.remove_messages(key, [victim])
            gone = await committed(store)
            removed += gone
            last += 1
            store.put_message(key, last, os.urandom(50_000))
            there = await committed(store, 0.3)
            written += there
            await close(store)
            has.discard(victim) if gone else None
            has.add(last) if there else None
        (disk / "filler").unlink()
        store = await open_store(directory, duplicates=10, reserve=reserve)
        assert not store.corruption, store.corruption
        found = await ids(store, key)
        unknown = {last, victim} if opened else set()
        assert found - unknown == has - unknown, (leave, found ^ has)
        has = found
        assert await committed(store)
        await store.close()
    fresh = [0, 0]
    for leave in steps:
        new = disk / f"new-{leave}"
        fill(leave)
        try:
            store = await open_store(new, duplicates=10, reserve=reserve)
        except StoreFailedError as error:
            fresh[0] += 1
            assert str(new) in str(error) and "make room" in str(error), error
        else:
            fresh[1] += 1
            await close(store)
        (disk / "filler").unlink()
        store = await open_store(new, duplicates=10, reserve=0)
        assert not store.corruption, store.corruption
        assert (await store.load()).generation == 0
        await store.close()
        for path in new.iterdir():
            path.unlink()
    print(len(steps), opened, refused, removed, written, *fresh)

asyncio.run(main())
"""


# Consumers add annotations to messages of 2 MiB each, while others accept messages.
_REWRITES = """
import asyncio, os, sys, uuid
from pathlib import Path
from broker_stub.store import QueueRecord, open_store

disk, size = Path(sys.argv[1]), 2 << 20

async def main():
    store = await open_store(disk / "store", duplicates=10, reserve=2 << 20)
    store.put_queue(QueueRecord(identity=uuid.UUID(int=16), name="q"))
    key = store.queue_key(uuid.UUID(int=16))
    for number in range(1, 4):
        store.put_message(key, number, bytes([number]) * size)
        await store.when_committed(store.sequence)
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    for number in (1, 2, 3):
        store.rewrite_message(key, number, b"new" * size, delivery_count=1, expires_at=None)
        store.count_delivery(key, [number])
    store.remove_messages(key, [3])
    await store.when_committed(store.sequence)
    print(*[f"{row.id} {row.data[:1].hex()}" async for chunk in store.messages(key) for row in chunk])
    (disk / "filler").unlink()
    store.rewrite_message(key, 2, b"new", delivery_count=1, expires_at=None)
    await store.close()
    store = await open_store(disk / "store", duplicates=10, reserve=0)
    print(*[f"{row.id} {row.data[:1].hex()}" async for chunk in store.messages(key) for row in chunk])
    await store.close()

asyncio.run(asyncio.wait_for(main(), 60))
"""


def ran(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Return a script's output on a disk of 24 MiB."""
    with SmallDisk(folder / "disk", "24m") as disk:
        return subprocess.run(
            [*disk.wrapper, sys.executable, "-c", script, str(folder / "disk")],
            env={"PYTHONPATH": str(_SOURCES)},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )


def test_what_is_written_again_on_a_full_disk_holds_up_nobody_who_accepts(tmp_path: Path) -> None:
    result = ran(_REWRITES, tmp_path)
    assert result.stdout.splitlines() == ["1 01 2 02", "1 01 2 6e"], result.stderr


async def test_who_asks_late_learns_what_was_measured_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MEASURE_IDLE", 3600.0)  # once, at the start
    store = await open_store(tmp_path, duplicates=10, reserve=0)
    for _ in range(2):
        measured: asyncio.Queue[DiskUsage] = asyncio.Queue()
        store.on_disk(measured.put_nowait)
        async with asyncio.timeout(30):
            usage = await measured.get()
        assert usage.space >= usage.free > 0
    await store.close()


@pytest.mark.slow
def test_the_disk_may_be_full_at_any_moment(tmp_path: Path) -> None:
    result = ran(_SCRIPT, tmp_path)
    assert result.returncode == 0, result.stderr
    steps, opened, refused, removed, written, fresh_refused, fresh_opened = map(int, result.stdout.split())
    assert (opened, refused, removed) == (steps, 0, steps), "with its reserve it is always opened and emptied"
    assert written > 0
    assert fresh_refused > 0
    assert fresh_refused + fresh_opened == steps
