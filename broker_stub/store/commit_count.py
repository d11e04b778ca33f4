"""The number of reported commits, in a file beside the database, to detect lost commits.

SQLite reads a write-ahead log up to the first frame with a wrong checksum, and cannot know whether later
frames were ever committed.  So a corrupted or truncated log looks like a shorter history, not like an error.
The writer therefore records the number of commits after each commit, in place, in a separate file.  If the
database has fewer commits than this count, commits were lost.

The file is not synced for each commit.  It survives the death of the process.  After the death of the machine
it may be older than the database; then a commit that the disk confirmed and lost can go unnoticed.
"""

from __future__ import annotations

import os
import struct
import uuid
from pathlib import Path
from zlib import crc32

from broker_stub.store.errors import StoreCorruptedError

# Magic, identity of the store, commits; then the CRC of these.  Everything fits in one disk sector.
_CONTENT = struct.Struct(">8s16sQ")
_CHECKSUM = struct.Struct(">I")
_MAGIC = b"hamark01"


def encode(identity: uuid.UUID, commits: int) -> bytes:
    """Return the content of the file."""
    content = _CONTENT.pack(_MAGIC, identity.bytes, commits)
    return content + _CHECKSUM.pack(crc32(content))


def decode(data: bytes) -> tuple[uuid.UUID, int]:
    """Return identity and commits.

    :raises StoreCorruptedError: when size, magic or checksum is wrong.
    """
    if len(data) != _CONTENT.size + _CHECKSUM.size:
        raise StoreCorruptedError(f"the commit count has {len(data)} bytes")
    magic, identity, commits = _CONTENT.unpack_from(data)
    if magic != _MAGIC or _CHECKSUM.unpack_from(data, _CONTENT.size)[0] != crc32(data[: _CONTENT.size]):
        raise StoreCorruptedError("the commit count has a wrong checksum")
    return uuid.UUID(bytes=identity), commits


class CommitCount:
    """The open file of the commit count."""

    def __init__(self, path: Path, identity: uuid.UUID) -> None:
        self._identity = identity
        self._file = os.open(path, os.O_WRONLY)

    def write(self, commits: int) -> None:
        """Record the number of durable commits."""
        os.pwrite(self._file, encode(self._identity, commits), 0)

    def close(self, *, sync: bool) -> None:
        """Close the file."""
        try:
            if sync:
                os.fsync(self._file)
        finally:
            os.close(self._file)
