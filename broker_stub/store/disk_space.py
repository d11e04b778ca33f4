"""Free space on a store's disk, and the reserve that allows emptying a store on a full disk.

Theory of operation
-------------------
Removing a message also needs disk space, for the write-ahead log.  So a store keeps a preallocated file,
``reserve``.  When the disk is full, the log is moved into the database and truncated.  If that is not enough,
``reserve`` is removed: with its space the store can be opened, and messages can leave.  The file is made
again when there is enough space.

Rules
-----
* If a full disk refuses a transaction, it is retried later, and nothing is reported before: SQLite rolls the
  transaction back and leaves the log as it was.  This applies to ``SQLITE_FULL`` only; an error of a write
  that was accepted, or of fsync, makes the store fail (``writer``).
* The space of the reserve is never counted as free, whether the file exists or not.
* Space that SQLite has freed inside the database counts for messages, as long as there is some for the log.
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
    """The space on the disk of a store, in bytes.

    :param space: for messages: ``free``, and space freed inside the database.
    :param free: on the file system, without the reserve.
    :param refused: why the disk refused the last commit, empty if it did not.
    """

    space: int
    free: int
    refused: str = ""


class DiskSpace:
    """The disk of a store's directory.

    :param reserve: bytes to reserve for emptying the store on a full disk; 0 for none.
    """

    def __init__(self, directory: Path, reserve: int) -> None:
        self.directory = directory
        self._path = directory / RESERVE
        self._reserve = reserve

    def limit_log(self, connection: sqlite3.Connection) -> None:
        """Make SQLite checkpoint early, so that half of the reserve suffices for it on a full disk."""
        pages = max(1, min(CHECKPOINT_PAGES, self._reserve // 2 // PAGE_SIZE))
        if self._reserve:
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}").close()
            connection.execute(f"PRAGMA journal_size_limit = {2 * pages * PAGE_SIZE}").close()

    def measure(self, connection: sqlite3.Connection, refused: str = "") -> DiskUsage:
        """Return the usage now; make the reserve again if there is space for it."""
        free = self.free
        if self._reserve and not self._path.exists():
            if not refused and free >= 3 * self._reserve:
                self._make()
            free -= self._reserve
        free = max(0, free)
        # The space of the log counts too: it is overwritten after each checkpoint.
        space = free + _reusable(connection) if free + self._log_size() >= self._reserve else free
        return DiskUsage(space, free, refused)

    @property
    def free(self) -> int:
        """Bytes that this user may still write."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def truncate_log(self, connection: sqlite3.Connection) -> bool:
        """Free the space of the log on a full disk; return True if there was any.

        Moving the log into the database needs no space for removals, and at most the log's size for new
        messages.
        """
        before = self._log_size()
        with contextlib.suppress(sqlite3.Error):  # the disk is still full
            truncate_log(connection)
        return self._log_size() < before

    def _log_size(self) -> int:
        try:
            return (self.directory / LOG).stat().st_size
        except OSError:
            return 0

    def release(self) -> bool:
        """Remove the reserve to free its space; return False if there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def describe(self, error: Exception) -> str:
        """Return the message for an operator when the disk is full."""
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
        except OSError:  # another process took the space; a partial reserve is useless
            with contextlib.suppress(OSError):
                self._path.unlink()


def truncate_log(connection: sqlite3.Connection) -> None:
    """Move the content of the write-ahead log into the database, and truncate the log."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def is_full(error: Exception) -> bool:
    """Return True if the error says that the disk is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def _reusable(connection: sqlite3.Connection) -> int:
    """Return the bytes that the database has freed inside its file."""
    pages: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return pages * PAGE_SIZE
