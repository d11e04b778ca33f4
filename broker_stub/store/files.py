"""The directory of a store: which files there are, who holds it, and how corrupted ones are kept.

Files
-----
``store.db``, ``store.db-wal``  the database and its write-ahead log (gone after a clean close)
``identity``                    the store's UUID, as text
``committed``                   how many commits were reported: see ``commit_count``
``lock``                        held (flock) while the store is open; its content is the holder's pid
``store.db.new``                a database that is being made
``reserve``                     room for emptying the store when the disk is full: see ``disk_space``
``damaged-<time>/``             what was found corrupted, unchanged

Rules
-----
* A store exists from the moment ``store.db.new`` becomes ``store.db``.  The other files are there
  by then, so that whichever of them is missing later was taken away.
* Nothing corrupted is deleted or changed.
* Directories and files are their owner's alone (``permissions``).
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
    """Make the directory of a store, or make sure that it is private, with what is in it.

    :raises OSError: when it cannot be made, or when others may write to it.
    """
    permissions.make_directory(directory, _is_own)
    for path in (*(directory / name for name in (*_PARTS, LOCK)), *directory.glob(f"{_DAMAGED}*")):
        permissions.restrict_path(path)


def _is_own(name: str) -> bool:
    return name in (*_PARTS, LOCK, RESERVE) or name.startswith((NEW_DATABASE, _DAMAGED))


def make_database(directory: Path) -> None:
    """An empty file for a new database: SQLite keeps its mode, for the write-ahead log too."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    os.close(os.open(directory / NEW_DATABASE, flags, permissions.FILE_MODE))


def lock(directory: Path) -> int:
    """Take the directory for this store; the file descriptor holds it.

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
    """Say who holds it; it is held without that, too, where the disk is full."""
    try:
        os.ftruncate(holder, 0)
        os.pwrite(holder, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        if not is_full(error):
            raise


def unlock(holder: int) -> None:
    """Give the directory back."""
    os.close(holder)


def present(directory: Path) -> list[str]:
    """Which parts of a store there are."""
    return [name for name in _PARTS if (directory / name).exists()]


def was_set_aside(directory: Path) -> bool:
    """Whether a corrupted store was set aside here."""
    return any(directory.glob(f"{_DAMAGED}*"))


def remove_unfinished(directory: Path) -> None:
    """Remove a store that never came into being: nothing was ever put into it."""
    if (directory / NEW_DATABASE).exists() and not (directory / DATABASE).exists():
        for name in (IDENTITY, COMMIT_COUNT, f"{NEW_DATABASE}-wal", f"{NEW_DATABASE}-journal", NEW_DATABASE):
            (directory / name).unlink(missing_ok=True)


def set_aside(directory: Path, clock: Callable[[], float] = time.time) -> Path:
    """Move every part of the store away, as it is; where to."""
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
    """The identity in the files beside the database, and how many commits were reported.

    :raises StoreDamagedError: when one is missing, no longer readable, or they differ.
    """
    for name in (DATABASE, IDENTITY, COMMIT_COUNT):
        if not (directory / name).exists():
            raise StoreCorruptedError(f"the file {name} is missing")
    if not (directory / DATABASE).stat().st_size:
        # SQLite would take it for a new one, and delete the log that is beside it.
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
    """Make the files that hold the identity."""
    fsync.write(directory / IDENTITY, f"{identity}\n".encode())
    fsync.write(directory / COMMIT_COUNT, commit_count.encode(identity, 0))


def finish_new(directory: Path) -> None:
    """The new database becomes the store."""
    (directory / NEW_DATABASE).rename(directory / DATABASE)
    fsync.sync_directory(directory)
