"""The directory of a store: its files, its lock, and the directories for corrupted stores.

Files
-----
``store.db``, ``store.db-wal``  the database; its write-ahead log (gone after a clean close)
``identity``                    the store's UUID, as text
``committed``                   the number of reported commits: see ``commit_count``
``lock``                        held (flock) while the store is open; its content is the holder's pid
``store.db.new``                a database that is being made
``reserve``                     space for emptying the store when the disk is full: see ``disk_space``
``damaged-<time>/``             a corrupted store, unchanged

Rules
-----
* A store exists from the moment ``store.db.new`` is renamed to ``store.db``.  The other files exist by then,
  so if one is missing later, it was removed.
* Nothing corrupted is deleted or changed.
* Only their owner can read directories and files (``permissions``).
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from broker_stub import fsync, permissions
from broker_stub.store import commit_count
from broker_stub.store.disk_space import RESERVE, is_full
from broker_stub.store.errors import StoreCorruptedError, StoreLockedError

DATABASE, NEW_DATABASE = "store.db", "store.db.new"
IDENTITY, COMMIT_COUNT, LOCK = "identity", "committed", "lock"
_PARTS = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", IDENTITY, COMMIT_COUNT)
_DAMAGED = "damaged-"


def make_directory(directory: Path) -> None:
    """Make the directory of a store, or make an existing one and its files private.

    :raises OSError: when it cannot be made, or when others may write to it.
    """
    permissions.make_directory(directory, _is_own)
    for path in (*(directory / name for name in (*_PARTS, LOCK)), *directory.glob(f"{_DAMAGED}*")):
        permissions.restrict_path(path)


def _is_own(name: str) -> bool:
    return name in (*_PARTS, LOCK, RESERVE) or name.startswith((NEW_DATABASE, _DAMAGED))


def make_database(directory: Path) -> None:
    """Make an empty file for a new database: SQLite keeps its mode, also for the write-ahead log."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    os.close(os.open(directory / NEW_DATABASE, flags, permissions.FILE_MODE))


def lock(directory: Path) -> int:
    """Lock the directory for this store; return the file descriptor that holds the lock.

    :raises StoreLockedError: when another store has it.
    """
    holder = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_holder(holder)
    except BlockingIOError as error:
        content = os.pread(holder, 32, 0).decode(errors="replace").strip()
        os.close(holder)
        raise StoreLockedError(directory, content) from error
    except BaseException:
        os.close(holder)
        raise
    return holder


def _write_holder(holder: int) -> None:
    """Write the process id to the lock file; on a full disk the lock is held without it."""
    try:
        os.ftruncate(holder, 0)
        os.pwrite(holder, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        if not is_full(error):
            raise


def unlock(holder: int) -> None:
    """Release the lock."""
    os.close(holder)


def present(directory: Path) -> list[str]:
    """Return the parts of a store that exist."""
    return [name for name in _PARTS if (directory / name).exists()]


def was_set_aside(directory: Path) -> bool:
    """Return True if a corrupted store was set aside here."""
    return any(directory.glob(f"{_DAMAGED}*"))


def remove_unfinished(directory: Path) -> None:
    """Remove a store whose creation did not finish; it has no content."""
    if (directory / NEW_DATABASE).exists() and not (directory / DATABASE).exists():
        for name in (IDENTITY, COMMIT_COUNT, f"{NEW_DATABASE}-wal", f"{NEW_DATABASE}-journal", NEW_DATABASE):
            (directory / name).unlink(missing_ok=True)


def set_aside(directory: Path, clock: Callable[[], float] = time.time) -> Path:
    """Move every part of the store, unchanged, to a new directory; return that directory."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock()))
    target, attempt = directory / f"{_DAMAGED}{stamp}", 1
    while target.exists():
        attempt += 1
        target = directory / f"{_DAMAGED}{stamp}-{attempt}"
    target.mkdir(mode=permissions.DIRECTORY_MODE)
    fsync.sync_directory(directory)
    for name in present(directory):
        (directory / name).rename(target / name)
    fsync.sync_directory(target)
    fsync.sync_directory(directory)
    return target


def read_identity(directory: Path) -> tuple[uuid.UUID, int]:
    """Return the identity in the files beside the database, and the number of reported commits.

    :raises StoreCorruptedError: when a file is missing or unreadable, or their identities differ.
    """
    for name in (DATABASE, IDENTITY, COMMIT_COUNT):
        if not (directory / name).exists():
            raise StoreCorruptedError(f"the file {name} is missing")
    if not (directory / DATABASE).stat().st_size:
        # SQLite would treat it as new, and delete the log beside it.
        raise StoreCorruptedError("the database is empty")
    try:
        identity = uuid.UUID((directory / IDENTITY).read_text("ascii").strip())
    except ValueError as error:
        raise StoreCorruptedError("the identity file holds no identity") from error
    counted, commits = commit_count.decode((directory / COMMIT_COUNT).read_bytes())
    if counted != identity:
        raise StoreCorruptedError("the identity file and the commit count belong to different stores")
    return identity, commits


def write_identity(directory: Path, identity: uuid.UUID) -> None:
    """Make the files that contain the identity."""
    fsync.write(directory / IDENTITY, f"{identity}\n".encode())
    fsync.write(directory / COMMIT_COUNT, commit_count.encode(identity, 0))


def finish_new(directory: Path) -> None:
    """Rename the new database, which completes the store."""
    (directory / NEW_DATABASE).rename(directory / DATABASE)
    fsync.sync_directory(directory)
