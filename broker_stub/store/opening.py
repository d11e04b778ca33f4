"""Opens a directory as a trusted store, or replaces it by an empty one and gives the reason.

Fresh or wiped
--------------
* A directory without any part of a store and without ``damaged-...`` is *fresh*: generation 0.  A completely
  emptied directory looks the same, which is harmless.  The arbiter's generation is 0 only until the very
  first promotion, so generation 0 is current only where nothing was ever acknowledged.
* If the caller expects a store there, it gives ``expected_identity``; the empty directory is then *wiped*.
* A directory with only some parts of a store is *corrupted*.
* A corrupted or wiped store is replaced by an empty one with an erased generation (``None``), which only
  catching up can set again.  This holds even after a crash in the middle of the replacement: a directory with
  a store that was set aside is never fresh.

Checks, in this order
---------------------
The files beside the database, and that they belong to one store; the database's header and schema;
SQLite's ``quick_check`` (every page is where it belongs); the checksum of every row, the order of the
keys, and that each message's queue exists; that no reported commit is missing (``commit_count``).

An error that is not the store's fault (no permission, disk full, busy) is raised, and no file is moved.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from broker_stub import fsync
from broker_stub.store import files, reading
from broker_stub.store.commit_count import CommitCount
from broker_stub.store.commit_progress import CommitProgress
from broker_stub.store.disk_space import LOG, DiskSpace, is_full
from broker_stub.store.errors import StoreCorruptedError, StoreFailedError
from broker_stub.store.interface import FIRST_GENERATION
from broker_stub.store.schema import (
    APPLICATION_ID,
    COMMITS,
    FORMER_TABLES,
    FORMER_VERSION,
    PUT_META,
    SCHEMA_VERSION,
    SECURE_DELETE,
    TABLES,
    connect,
    create,
    upgrade,
    with_checksum,
)
from broker_stub.store.start_progress import StartProgress
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.store")

# Primary result codes with a cause other than the content of the files: sqlite.org/rescode.html.
_NOT_CORRUPTION = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
_PRIMARY_CODE = 0xFF
# I/O errors on reading count as corruption; a file that cannot be written may still be intact.
_UNREADABLE_CODES = frozenset(
    {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
)
_UNREADABLE = (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError)


@dataclass(slots=True)
class QueueState:
    """The state of a queue that the loop needs to number new entries.

    :param position: the position of the last duplicate-detection id.
    :param confirmed: the position of the last confirmed message.
    """

    key: int
    identity: uuid.UUID
    last_id: int = 0
    position: int = 0
    confirmed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A store whose files are open and marked dirty."""

    connection: sqlite3.Connection
    commit_count: CommitCount
    commit_progress: CommitProgress
    lock: int
    identity: uuid.UUID
    commits: int
    was_clean: bool
    corruption: str
    queues: dict[uuid.UUID, QueueState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Opening:
    """The parameters of ``open_files``, and the lock of the directory."""

    directory: Path
    lock: int
    expected_identity: uuid.UUID | None
    clock: Callable[[], float]
    progress: StartProgress
    disk: DiskSpace | None


def open_files(
    directory: Path,
    *,
    expected_identity: uuid.UUID | None,
    clock: Callable[[], float],
    secure_delete: bool = False,
    progress: StartProgress | None = None,
    disk: DiskSpace | None = None,
) -> Opened:
    """Open the store of a directory, or an empty one in its place.

    :param secure_delete: overwrite deleted data.
    :param progress: counts the progress of reading.
    :param disk: when it is full, its reserve is released for the store.
    :raises StoreLockedError: when it is open elsewhere.
    :raises StoreFailedError: when the directory or the disk cannot be used.
    """
    try:
        files.make_directory(directory)
        lock = files.lock(directory)
    except OSError as error:
        raise StoreFailedError(
            f"the store {directory} cannot be opened: {_advice(directory, error)}"
        ) from error
    try:
        opened = _open_locked(
            _Opening(directory, lock, expected_identity, clock, progress or StartProgress(), disk)
        )
        if disk is not None:
            disk.limit_log(opened.connection)
        if secure_delete:
            opened.connection.execute(SECURE_DELETE).close()
        return opened
    except BaseException as error:
        files.unlock(lock)
        if isinstance(error, (sqlite3.Error, OSError)):
            raise StoreFailedError(
                f"the store {directory} cannot be opened: {_advice(directory, error)}"
            ) from error
        raise


def _advice(directory: Path, error: Exception) -> str:
    """Return the message for an operator."""
    return DiskSpace(directory, 0).describe(error) if is_full(error) else str(error)


def _open_locked(opening: _Opening) -> Opened:
    directory = opening.directory
    files.remove_unfinished(directory)
    corruption, fresh = "", False
    if files.present(directory):
        try:
            return _open_found(opening)
        except StoreCorruptedError as error:
            corruption = str(error)
    elif files.was_set_aside(directory):
        corruption = "a former store was set aside as corrupted"
    elif opening.expected_identity is not None:
        corruption = f"the directory is empty, but store {opening.expected_identity} should be here"
    else:
        fresh = True
    _create(directory, FIRST_GENERATION if fresh else None)
    identity, commits = files.read_identity(directory)
    connection = connect(directory / files.DATABASE)
    try:
        return _take(
            directory, opening.lock, connection, identity, commits, corruption=corruption, is_new=True
        )
    except BaseException:
        connection.close()
        raise


def _create(directory: Path, generation: int | None) -> None:
    identity = uuid.uuid4()
    meta = {
        "identity": str(identity),
        "clean": True,
        "number": generation,
        "pending": None,
        "replicas": [],
        "cluster": "",
    }
    files.make_database(directory)
    connection = connect(directory / files.NEW_DATABASE)
    try:
        create(connection, {name: json.dumps(value) for name, value in meta.items()})
    finally:
        connection.close()
    files.write_identity(directory, identity)
    fsync.sync_directory(directory)
    files.finish_new(directory)


def _open_found(opening: _Opening) -> Opened:
    """Open the store in the directory.

    :raises StoreCorruptedError: when it cannot be trusted; its files have been set aside.
    """
    directory, disk = opening.directory, opening.disk
    connection: sqlite3.Connection | None = None
    try:
        identity, reported = files.read_identity(directory)
        _expect(identity, opening.expected_identity)
        connection = connect(directory / files.DATABASE)
        opening.progress.follow(connection)
        commits = _verify(connection, identity, reported, opening.progress)
        connection.set_progress_handler(None, 0)
        take = partial(_take, directory, opening.lock, connection, identity, commits)
        return take() if disk is None else _take_freeing_space(take, connection, disk)
    except BaseException as error:
        corruption = _corruption(error)
        if corruption:
            # Before the connection is closed: once its files have moved, it neither writes nor deletes them.
            target = files.set_aside(directory, opening.clock)
            corruption = f"{corruption}; the files are in {target.name}"
        if connection is not None:
            connection.close()
        if corruption:
            raise StoreCorruptedError(corruption) from error
        raise


def _take_freeing_space(
    take: Callable[[], Opened], connection: sqlite3.Connection, disk: DiskSpace
) -> Opened:
    """Complete opening; on a full disk, release the space of the log, and then the reserve."""

    def truncate() -> bool:
        return disk.truncate_log(connection)

    for gave in (truncate, disk.release):
        try:
            return take()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            if gave():
                logger.warning("%s: the store continues on its reserved space", disk.describe(error))
    return take()


def _expect(identity: uuid.UUID, expected: uuid.UUID | None) -> None:
    if expected not in (None, identity):
        raise StoreCorruptedError(f"this is store {identity}, but store {expected} should be here")


def _corruption(error: BaseException) -> str:
    """Return the fault of the files; empty if the error has another cause."""
    if isinstance(error, StoreCorruptedError):
        return str(error)
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code not in _UNREADABLE_CODES and code & _PRIMARY_CODE in _NOT_CORRUPTION:
        return ""
    return f"the database cannot be read: {error}" if isinstance(error, _UNREADABLE) else ""


def _verify(
    connection: sqlite3.Connection, identity: uuid.UUID, reported: int, progress: StartProgress
) -> int:
    """Make all checks that the module's docstring lists; return the number of commits."""
    version = _verify_schema(connection)
    verdict = connection.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != [("ok",)]:
        raise StoreCorruptedError(
            f"SQLite's check of the database reports: {verdict[0][0] if verdict else 'nothing'}"
        )
    found = reading.snapshot(connection, was_clean=True)
    if reading.meta(connection)["identity"] != str(identity):
        raise StoreCorruptedError("the database belongs to another store than the identity file")
    keys = {queue.key for queue in found.queues}
    counters = reading.counters(connection)
    if not counters.keys() - {COMMITS} <= keys:
        raise StoreCorruptedError("there is a message id of a queue that is not there")
    reading.check_all_messages(connection, keys, progress)
    reading.check_window(connection, "duplicates", keys)
    if version == SCHEMA_VERSION:
        reading.check_window(connection, "confirmed", keys)
    if counters[COMMITS] < reported:
        raise StoreCorruptedError(
            f"{reported} commits were reported, and the database knows of {counters[COMMITS]}"
        )
    return counters[COMMITS]


def _verify_schema(connection: sqlite3.Connection) -> int:
    """Check that the database has this version or the one before; return the version."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = FORMER_TABLES if version == FORMER_VERSION else TABLES
    wanted = {
        "application_id": APPLICATION_ID,
        "user_version": FORMER_VERSION if version == FORMER_VERSION else SCHEMA_VERSION,
        "journal_mode": "wal",
    }
    for pragma, value in wanted.items():
        found = connection.execute(f"PRAGMA {pragma}").fetchone()
        if found != (value,):
            raise StoreCorruptedError(
                f"{pragma} is {found and found[0]}, where a store of this version has {value}"
            )
    schema = sorted(sql for (sql,) in connection.execute("SELECT coalesce(sql, '') FROM sqlite_schema"))
    if schema != sorted(tables):
        raise StoreCorruptedError("the database has other tables than a store of this version")
    return version


def _take(
    directory: Path,
    lock: int,
    connection: sqlite3.Connection,
    identity: uuid.UUID,
    commits: int,
    *,
    corruption: str = "",
    is_new: bool = False,
) -> Opened:
    """Upgrade the store to this version, mark it dirty, and return it."""
    upgrade(connection)
    snapshot = reading.snapshot(connection, was_clean=True)
    was_clean = is_new or reading.meta(connection)["clean"] is True
    positions = reading.last_positions(connection, "duplicates")
    confirmed = reading.last_positions(connection, "confirmed")
    connection.execute(PUT_META, with_checksum("clean", json.dumps(obj=False)))
    commit_count = CommitCount(directory / files.COMMIT_COUNT, identity)
    commit_count.write(commits)
    return Opened(
        connection=connection,
        commit_count=commit_count,
        commit_progress=CommitProgress(directory / name for name in (files.DATABASE, LOG)),
        lock=lock,
        identity=identity,
        commits=commits,
        was_clean=was_clean,
        corruption=corruption,
        queues={
            queue.record.identity: QueueState(
                queue.key,
                queue.record.identity,
                queue.last_id,
                positions.get(queue.key, 0),
                confirmed.get(queue.key, 0),
            )
            for queue in snapshot.queues
        },
    )
