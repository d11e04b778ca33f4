"""Altered headers of a store's files: they are refused as corrupted, or have the same meaning as before.

The headers belong to the database, its write-ahead log, the identity and the commit count. An input
alters some of them; ``store`` alters whole files. Here the store is checked in place and not set aside,
which takes most of the time in ``store``.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

from broker_stub.store import files as store_files
from broker_stub.store import opening, reading
from broker_stub.store.schema import connect
from broker_stub.store.start_progress import StartProgress
from tests.fuzz.target import Defect, Target
from tests.fuzz.targets.store import folder_in_memory, good_store

_DATABASE, _LOG = "store.db", "store.db-wal"
_SIZES = {_DATABASE: 100, _LOG: 32, "identity": 37, "committed": 36}
"""Source of the first two: sqlite.org/fileformat2.html, sections 1.3 and 4.1."""
_FILES = tuple(_SIZES)
_MOST_CHANGES = 4
_CUT = 0xFF


class StoreHeaders(Target):
    name = "store_headers"

    def __init__(self) -> None:
        self._holder = folder_in_memory()
        self._folder = Path(self._holder.name)
        asyncio.run(good_store(self._folder))
        paths = {name: self._folder / name for name in _FILES}
        self._good = {name: path.read_bytes() if path.exists() else b"" for name, path in paths.items()}
        self._open_files = {name: os.open(path, os.O_RDWR) for name, path in paths.items() if name != _LOG}
        self._content = self._open()

    def run(self, data: bytes) -> None:
        changed = self._changed(data)
        try:
            for name, content in changed.items():
                self._write(name, content)
            self._check()
        finally:
            for name in changed:
                self._write(name, self._good[name])

    def _write(self, name: str, content: bytes) -> None:
        if name == _LOG:  # SQLite deletes it whenever it closes the database
            path = self._folder / _LOG
            path.unlink(missing_ok=True)
            if content:
                path.write_bytes(content)
            return
        file, size = self._open_files[name], _SIZES[name]
        os.pwrite(file, content[:size], 0)
        if len(content) != len(self._good[name]):
            os.ftruncate(file, len(content))
        elif os.fstat(file).st_size != len(content):
            os.pwrite(file, content[size:], size)

    def _changed(self, data: bytes) -> dict[str, bytes]:
        """Return some files with altered headers. A change is a file, an offset, a size and that many
        bytes.
        """
        found: dict[str, bytearray] = {}
        position = 0
        for _ in range(_MOST_CHANGES):
            head = data[position : position + 3]
            if len(head) < 3:
                break
            name = _FILES[head[0] % len(_FILES)]
            content = found.setdefault(name, bytearray(self._good[name]))
            offset, size = head[1] % (_SIZES[name] + 1), head[2]
            position += 3
            if size == _CUT:
                del content[offset:]
                continue
            size %= _SIZES[name] - offset + 2
            new = data[position : position + size]
            content[offset : offset + len(new)] = new
            position += size
        return {name: bytes(content) for name, content in found.items()}

    def _check(self) -> None:
        try:
            content = self._open()
        except Exception as error:
            if not opening._corruption(error):
                raise
            return
        if content != self._content:
            raise Defect(f"opened as good, and has {content!r}")

    def _open(self) -> object:
        identity, reported = store_files.read_identity(self._folder)
        connection = connect(self._folder / _DATABASE)
        try:
            opening._verify(connection, identity, reported, StartProgress())
            return identity, _content(connection)
        finally:
            connection.close()

    def planted(self) -> AbstractContextManager[object]:
        """A version below zero is accepted."""
        original = opening._verify_schema

        def wrong(connection: sqlite3.Connection) -> None:
            if connection.execute("PRAGMA user_version").fetchone()[0] >= 0:
                original(connection)

        return mock.patch.object(opening, "_verify_schema", wrong)

    def close(self) -> None:
        for file in self._open_files.values():
            os.close(file)
        self._holder.cleanup()


def _content(connection: sqlite3.Connection) -> object:
    found = reading.snapshot(connection, was_clean=True)
    messages = [reading.chunk(connection, queue.key, 0) for queue in found.queues]
    return found, messages, connection.execute("PRAGMA user_version").fetchone()


TARGET = StoreHeaders
