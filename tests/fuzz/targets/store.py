"""Altered files of a store: the store opens as before, or is set aside unchanged, with a reason.

An input alters the files of one good store: a file, a position and new bytes, or a new end. A position
counts all bytes, or only non-zero ones, since most of a page is empty.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

from broker_stub.election.generation_steps import Pending
from broker_stub.store import QueueRecord, open_store, opening, reading
from broker_stub.store import files as store_files
from broker_stub.store.errors import StoreFailedError
from tests.fuzz.target import Defect, Target

_FILES = ("store.db", "store.db-wal", "identity", "committed")
_MOST_CHANGES = 4
_OF_USED = 0x80
_IN_MEMORY = Path("/dev/shm")


class StoreFiles(Target):
    name = "store"

    def __init__(self) -> None:
        self._holder = folder_in_memory()
        self._folder = Path(self._holder.name)
        asyncio.run(good_store(self._folder / "good"))
        self._good = {
            path.name: path.read_bytes() for path in (self._folder / "good").iterdir() if path.is_file()
        }
        self._used = {
            name: [at for at, value in enumerate(content) if value] for name, content in self._good.items()
        }
        self._content = self._open(self._folder / "good")[1]

    def run(self, data: bytes) -> None:
        directory = self._folder / "changed"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        changed = self._changed(data)
        for name, content in changed.items():
            (directory / name).touch(0o600)
            (directory / name).write_bytes(content)
        try:
            corruption, content = self._open(directory)
        except StoreFailedError:
            self._check_unchanged(directory, changed)
            return
        if not corruption and content != self._content:
            raise Defect(f"opened as good, and has {content!r}")
        if corruption:
            self._check_set_aside(directory, changed)

    def _changed(self, data: bytes) -> dict[str, bytes]:
        found = {name: bytearray(self._good.get(name, b"")) for name in _FILES}
        position = 0
        for _ in range(_MOST_CHANGES):
            head = data[position : position + 5]
            if len(head) < 5:
                break
            name = _FILES[head[0] % len(_FILES)]
            content, used = found[name], self._used.get(name)
            offset, size = int.from_bytes(head[1:4]), head[4]
            offset = used[offset % len(used)] if head[0] >= _OF_USED and used else offset % (len(content) + 1)
            position += 5
            if size == 0xFF:
                del content[offset:]
            else:
                content[offset : offset + size] = data[position : position + size]
                position += size
        return {name: bytes(content) for name, content in found.items() if content or name in self._good}

    @staticmethod
    def _open(directory: Path) -> tuple[str, object]:
        opened = opening.open_files(directory, expected_identity=None, clock=lambda: 0.0)
        try:
            found = reading.snapshot(opened.connection, was_clean=True)
            messages = [reading.chunk(opened.connection, queue.key, 0) for queue in found.queues]
            ids = [reading.window(opened.connection, "duplicates", queue.key) for queue in found.queues]
            return opened.corruption, (found, messages, ids)
        finally:
            opened.connection.close()
            opened.commit_progress.close()
            opened.commit_count.close(sync=False)
            store_files.unlock(opened.lock)

    def _check_unchanged(self, directory: Path, changed: dict[str, bytes]) -> None:
        if any(not (directory / name).exists() for name in changed):
            raise Defect("a store that could not be opened lacks a file")

    def _check_set_aside(self, directory: Path, changed: dict[str, bytes]) -> None:
        folders = list(directory.glob("damaged-*"))
        if len(folders) != 1:
            raise Defect(f"set aside in {folders}")
        for name in ("store.db", "identity", "committed"):
            kept = folders[0] / name
            if changed[name] and (not kept.exists() or kept.read_bytes() != changed[name]):
                raise Defect(f"{name} was not kept as it was")

    def planted(self) -> AbstractContextManager[object]:
        """A message's checksum is not verified."""
        return mock.patch.object(reading, "check_message")

    def close(self) -> None:
        self._holder.cleanup()


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder in which a sync is free, if the system has one."""
    return tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)


async def good_store(directory: Path) -> None:
    """Make a store with queues and messages."""
    store = await open_store(directory, duplicates=10)
    for name in ("orders", "events"):
        identity = uuid.uuid4()
        store.put_queue(QueueRecord(identity=identity, name=name, replicate="all"))
        key = store.queue_key(identity)
        for number in range(1, 4):
            store.put_message(key, number, b"message %d" % number, duplicate_id=b"id %d" % number)
        store.count_delivery(key, [2])
    await store.write_generation(3)
    await store.write_pending(Pending(4, "claim"))
    await store.close()


TARGET = StoreFiles
