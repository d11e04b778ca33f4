"""A long commit, tick by tick: it has progress while its thread computes or the disk takes pieces."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.replication.commit_watch import TICKS, CommitWatch
from broker_stub.store import MemoryStore, SqliteStore, StoreFailedError, commit_progress, open_store
from broker_stub.store.commit_progress import PIECE, CommitProgress
from tests.broker_stub.store.contents import declare, messages

LARGE = bytes(PIECE)


class Disk:
    """Stops a commit in the middle of a statement: before each step of SQLite."""

    def __init__(self) -> None:
        self._steps = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._works = False

    def step(self) -> int:
        """Take a step; called on the writer's thread."""
        if not self._works:
            self._stopped.release()
            self._steps.acquire()
            end = time.thread_time() + 0.005
            while time.thread_time() < end:
                pass
        return 0

    async def stopped(self) -> None:
        """Wait until the writer is stopped."""
        await asyncio.to_thread(self._stopped.acquire, timeout=30)

    async def go_on(self) -> None:
        """Take one step, of some milliseconds."""
        self._steps.release()
        await self.stopped()

    def work(self) -> None:
        self._works = True
        self._steps.release()


@asynccontextmanager
async def stopped(path: Path) -> AsyncIterator[tuple[SqliteStore, Disk]]:
    """A store in the middle of the commit of a large message."""
    store = await open_store(path, duplicates=DEFAULT_WINDOW)
    queue = declare(store)
    await store.when_committed(store.sequence)
    disk = Disk()
    store._writer._connection.set_progress_handler(disk.step, 1)
    committed = store.when_committed(store.put_message(queue, 1, LARGE))
    try:
        await disk.stopped()
        yield store, disk
    finally:
        disk.work()
        await committed
        assert [message.data for message in await messages(store, queue)] == [LARGE]
        await store.close()


async def test_a_store_does_not_hang_while_its_commit_goes_on_however_long(tmp_path: Path) -> None:
    async with stopped(tmp_path) as (store, disk):
        watch = CommitWatch(store)
        for _ in range(3 * TICKS):
            await disk.go_on()
            assert not watch.tick()
            assert watch.commit_goes_on
        assert store.committed < store.sequence


async def test_a_disk_that_hangs_in_the_middle_of_a_commit_is_found(tmp_path: Path) -> None:
    async with stopped(tmp_path) as (store, disk):
        watch = CommitWatch(store)
        for _ in range(TICKS):
            await disk.go_on()
            watch.tick()
        looks = next(number for number in itertools.count(1) if watch.tick())
        assert looks <= 2 * TICKS  # ticks that see the last pieces of earlier writes
        assert not watch.commit_goes_on


async def test_a_store_whose_commits_end_is_not_asked_how_far_they_are(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    watch = CommitWatch(store)
    for generation in range(5):
        await store.write_generation(generation)
        assert not watch.tick()
    assert store._commit_progress._thread is None
    await store.close()


async def test_a_store_in_memory_has_no_commit_that_takes_long() -> None:
    assert MemoryStore(duplicates=10).commit_progress() == 0


async def test_a_commit_that_a_full_disk_refused_does_not_go_on_by_being_tried_again(tmp_path: Path) -> None:
    async with stopped(tmp_path) as (store, disk):
        store.commit_progress()
        store._commit_progress.stuck = True
        before = store.commit_progress()
        for _ in range(5):
            await disk.go_on()
        await pieces_done(store._commit_progress)
        before = store.commit_progress()
        await disk.go_on()
        assert store.commit_progress() == before


async def pieces_done(progress: CommitProgress) -> None:
    async with asyncio.timeout(10):
        while progress._asked.is_set():  # noqa: ASYNC110 - another thread
            await asyncio.sleep(0)


async def test_looks_leave_the_lock_of_the_database_alone(tmp_path: Path) -> None:
    """Closing any descriptor of it would drop the lock, and a second program could write."""
    async with stopped(tmp_path) as (store, _):
        store.commit_progress()
        await pieces_done(store._commit_progress)
        write = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('DELETE FROM messages')"
        program = [sys.executable, "-c", write, str(tmp_path / "store.db")]
        found = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, timeout=30)
        assert "database is locked" in found.stderr


# -- pieces -----------------------------------------------------------------------------------------


class Writes:
    """The disk under a file: each piece waits for ``take``."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []
        self.error: OSError | None = None
        self._asked, self._taken = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, _file: int, start: int, size: int) -> None:
        self.given.append((start, size))
        self._asked.release()
        assert self._taken.acquire(timeout=30)
        if self.error is not None:
            raise self.error

    def asked(self) -> None:
        assert self._asked.acquire(timeout=30)

    def take(self, count: int = 1) -> None:
        self._taken.release(count)


@contextmanager
def pieces(tmp_path: Path, count: int) -> Iterator[tuple[CommitProgress, Writes, Path]]:
    """Write a file in pieces since it was opened; no thread computes."""
    path = tmp_path / "file"
    path.touch()
    disk = Writes()
    progress = CommitProgress([path], disk)
    path.write_bytes(bytes(count * PIECE))
    try:
        yield progress, disk, path
    finally:
        disk.take(100)
        progress.close()


def test_each_piece_that_the_disk_takes_is_progress_and_one_that_it_does_not_take_is_none(
    tmp_path: Path,
) -> None:
    with pieces(tmp_path, 3) as (progress, disk, _):
        last = progress.tick()
        for number in range(3):
            disk.asked()
            assert progress.tick() == last == number
            assert progress.tick() == last
            disk.take()
            while progress.tick() == last:
                pass
            last = progress.tick()
        assert disk.given == [(0, PIECE), (PIECE, PIECE), (2 * PIECE, PIECE)]


def test_a_file_is_gone_through_once_for_each_change(tmp_path: Path) -> None:
    with pieces(tmp_path, 2) as (progress, disk, path):
        disk.take(100)
        while progress.tick() < 2:
            pass
        assert [progress.tick() for _ in range(100)] == [2] * 100
        path.write_bytes(bytes(PIECE + 1))
        while progress.tick() < 4:
            pass
        assert [progress.tick() for _ in range(100)] == [4] * 100


def test_an_error_of_a_piece_is_kept_for_the_writer(tmp_path: Path) -> None:
    with pieces(tmp_path, 2) as (progress, disk, _):
        progress.check()
        disk.error = OSError(errno.EIO, "lost")
        disk.take(100)
        progress.tick()
        disk.asked()
        assert progress._thread is not None
        progress._thread.join(30)
        with pytest.raises(OSError, match="lost"):
            progress.check()
        assert (progress.tick(), len(disk.given)) == (0, 1)


async def test_a_store_whose_disk_lost_a_piece_ends_and_reports_no_commit(tmp_path: Path) -> None:
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    queue = declare(store)
    await store.when_committed(store.sequence)
    before = store.committed
    store._commit_progress._error = OSError(errno.EIO, "the disk lost what was written")
    with pytest.raises(StoreFailedError, match="the disk lost what was written"):
        await store.when_committed(store.put_message(queue, 1, b"x"))
    assert store.committed == before
    await store.close()


def test_closing_ends_the_thread_and_gives_back_the_descriptors(tmp_path: Path) -> None:
    with pieces(tmp_path, 3) as (progress, disk, _):
        progress.tick()
        disk.asked()
        files = list(progress._files)
        disk.take(1)
        progress.close()
        progress.close()
    assert progress._thread is not None
    assert not progress._thread.is_alive()
    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)


@pytest.mark.parametrize("supported", [True, False])
def test_a_piece_is_handed_to_the_disk_with_what_the_kernel_has(
    tmp_path: Path, supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not supported:
        monkeypatch.setattr(commit_progress, "_SYNC_FILE_RANGE", commit_progress._unsupported)
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(PIECE))
        file.flush()
        commit_progress.write_back(file.fileno(), 0, PIECE)
        commit_progress.write_back(file.fileno(), 10 * PIECE, PIECE)  # behind its end
    with pytest.raises(OSError, match="Bad file descriptor"):
        commit_progress.write_back(1_000_000, 0, PIECE)
