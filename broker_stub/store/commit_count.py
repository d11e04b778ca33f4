"""How many commits were reported, in a file beside the database: lost commits show.

SQLite reads a write-ahead log up to the first frame whose checksum is wrong, and cannot know
whether what follows was ever committed.  A corrupted or truncated log is thus a shorter history, and
no error.  So the writer records after each commit how many there have been, in place, in a file of
its own.  A database that has fewer than this count has lost commits.

The file is not synced for each commit.  It survives the death of the process; after the death of
the machine it may be older than the database, and then it shows nothing: what a disk lost then,
although it had confirmed it, can go unnoticed.
"""

from __future__ import annotations

import os
import struct
import uuid
from pathlib import Path
from zlib import crc32

from broker_stub.store.errors import StoreCorruptedError

# Magic, identity of the store, commits; behind them the CRC of these.  One disk sector holds it all.
_CONTENT = struct.Struct(">8s16sQ")
_CHECKSUM = struct.Struct(">I")
_MAGIC = b"hamark01"


def encode(identity: uuid.UUID, commits: int) -> bytes:
    """The content of the file."""
    content = _CONTENT.pack(_MAGIC, identity.bytes, commits)
    return content + _CHECKSUM.pack(crc32(content))


def decode(data: bytes) -> tuple[uuid.UUID, int]:
    """Identity and commits.

    :raises StoreDamagedError: when it is not what was written.
    """
    if len(data) != _CONTENT.size + _CHECKSUM.size:
        raise StoreCorruptedError(f"the commit count has {len(data)} bytes")
    magic, identity, commits = _CONTENT.unpack_from(data)
    if magic != _MAGIC or _CHECKSUM.unpack_from(data, _CONTENT.size)[0] != crc32(data[: _CONTENT.size]):
        raise StoreCorruptedError("the commit count has a wrong checksum")
    return uuid.UUID(bytes=identity), commits


class CommitCount:
    """The open file."""

    def __init__(self, path: Path, identity: uuid.UUID) -> None:
        self._identity = identity
        self._file = os.open(path, os.O_WRONLY)

    def write(self, commits: int) -> None:
        """Note that this many commits are durable."""
        os.pwrite(self._file, encode(self._identity, commits), 0)

    def close(self, *, sync: bool) -> None:
        """End."""
        try:
            if sync:
                os.fsync(self._file)
        finally:
            os.close(self._file)
