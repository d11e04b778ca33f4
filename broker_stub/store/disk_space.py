"""How much room the disk of a store has, and the reserve that a full one is emptied with.

Theory of operation
-------------------
To remove a message takes room, too: for the write-ahead log.  So a store keeps a file with nothing in it,
``reserve``.  When the disk takes no more, the log is moved into the database and emptied; when that is not
enough, ``reserve`` is removed: with its room the store can be opened, and messages can leave.  It is made
again when there is room.

Rules
-----
* What a full disk refuses is written later, and nothing is reported before: SQLite rolls the transaction
  back, and the log is as it was.  That is for ``SQLITE_FULL`` only; an error of a write that was taken, or of
  fsync, is the end (``writer``).
* The room of the reserve is never counted as free, whether the file is there or not.
* What SQLite has freed in the database is room for messages, as long as there is some for the log.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from broker_stub import permissions
from broker_stub.store.schema import CHECKPOINT_PAGES, PAGE_SIZE

RESERVE, LOG = "reserve", "store.db-wal"
_PRIMARY_CODE = 0xFF


class DiskUsage(NamedTuple):
    """What the disk of a store has, in bytes.

    :param space: for messages; ``free`` and what the database has freed.
    :param free: on the file system, without the reserve.
    :param refused: why the disk refused the last commit, empty when it took it.
    """

    space: int
    free: int
    refused: str = ""


class DiskSpace:
    """The disk of a store's directory.

    :param reserve: bytes to keep for the day when the disk is full; 0 for none.
    """

    def __init__(self, directory: Path, reserve: int) -> None:
        self.directory = directory
        self._path = directory / RESERVE
        self._reserve = reserve

    def limit_log(self, connection: sqlite3.Connection) -> None:
        """Have the log moved into the database early: half of the reserve must do for that on a full disk."""
        pages = max(1, min(CHECKPOINT_PAGES, self._reserve // 2 // PAGE_SIZE))
        if self._reserve:
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}").close()
            connection.execute(f"PRAGMA journal_size_limit = {2 * pages * PAGE_SIZE}").close()

    def measure(self, connection: sqlite3.Connection, refused: str = "") -> DiskUsage:
        """How much there is now; make the reserve again when there is room for it."""
        free = self.free
        if self._reserve and not self._path.exists():
            if not refused and free >= 3 * self._reserve:
                self._make()
            free -= self._reserve
        free = max(0, free)
        # What the log has already is written again after each checkpoint.
        space = free + _reusable(connection) if free + self._log_size() >= self._reserve else free
        return DiskUsage(space, free, refused)

    @property
    def free(self) -> int:
        """Bytes that this user may still write."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def truncate_log(self, connection: sqlite3.Connection) -> bool:
        """Give a store on a full disk the room of its log; whether there was any.

        Emptying the log takes no room for messages that leave, and for new ones no more than that of the log.
        """
        before = self._log_size()
        with contextlib.suppress(sqlite3.Error):  # as full as before
            truncate_log(connection)
        return self._log_size() < before

    def _log_size(self) -> int:
        try:
            return (self.directory / LOG).stat().st_size
        except OSError:
            return 0

    def release(self) -> bool:
        """Give the reserve to the store; whether there was one."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def describe(self, error: Exception) -> str:
        """What an operator reads when the disk is full."""
        return (
            f"{error}: the disk of {self.directory} is full ({self.free} bytes are left):"
            " make room on that file system"
        )

    def _make(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, permissions.FILE_MODE)
            try:
                os.posix_fallocate(descriptor, 0, self._reserve)
            finally:
                os.close(descriptor)
        except OSError:  # somebody else took the room: half a reserve is none
            with contextlib.suppress(OSError):
                self._path.unlink()


def truncate_log(connection: sqlite3.Connection) -> None:
    """Move what is in the write-ahead log into the database, and leave the log empty."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def is_full(error: Exception) -> bool:
    """Whether it says that the disk is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def _reusable(connection: sqlite3.Connection) -> int:
    """Bytes that the database has freed and not given back."""
    pages: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return pages * PAGE_SIZE
