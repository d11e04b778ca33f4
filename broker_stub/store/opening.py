"""From a directory to a store that can be trusted, or to an empty one and the reason.

Fresh or wiped
--------------
* A directory with no part of a store and no ``damaged-...`` beside it is *fresh*: number 0.  A
  directory that was emptied completely looks the same, and that is harmless: the arbiter's number
  is 0 only until the very first promotion, so number 0 is current only where nothing was ever
  acknowledged.  Who knows the identity of the store that should be there says so
  (``expected_identity``), and gets *wiped*.
* A directory with only some parts of a store is *damaged*.
* A damaged or wiped store is replaced by an empty one whose number is erased (``None``): only
  catching up gives it a number again.  That holds after a crash in the middle of it, too: where
  something was set aside, nothing is fresh.

What is checked, in this order
------------------------------
The files beside the database and that they are of one store; the database's header and schema;
SQLite's ``quick_check`` (every page is where it belongs); the seal on every row, the order of the
keys and that each message's queue is there; that no reported commit is missing (``mark``).

An error that is not the store's fault (no permission, disk full, busy) is raised and moves nothing.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from broker_stub import fsync
from broker_stub.store import files, reading
from broker_stub.store.commit_count import CommitMark
from broker_stub.store.errors import StoreDamagedError, StoreFailedError
from broker_stub.store.interface import FIRST_NUMBER
from broker_stub.store.schema import (
    APPLICATION_ID,
    COMMITS,
    PUT_META,
    SCHEMA_VERSION,
    TABLES,
    connect,
    create,
    sealed,
)

# Primary result codes that tell of the surroundings and not of the files: sqlite.org/rescode.html.
_NOT_DAMAGE = frozenset(
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
# Of the I/O errors, those of reading: a file that cannot be written may still be whole.
_UNREADABLE_CODES = frozenset(
    {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
)
_UNREADABLE = (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError)


@dataclass(slots=True)
class QueueState:
    """What the loop must know of a queue to number what comes in.

    :param position: of the last duplicate-detection id.
    """

    key: int
    identity: uuid.UUID
    last_id: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A store whose files are open and marked dirty."""

    connection: sqlite3.Connection
    mark: CommitMark
    lock: int
    identity: uuid.UUID
    commits: int
    was_clean: bool
    damage: str
    queues: dict[uuid.UUID, QueueState] = field(default_factory=dict)


def open_files(directory: Path, *, expected_identity: uuid.UUID | None, clock: Callable[[], float]) -> Opened:
    """Open the store of a directory, or an empty one in its place.

    :raises StoreLockedError: when it is open elsewhere.
    :raises StoreFailedError: when the surroundings don't allow it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = files.lock(directory)
    except OSError as error:
        raise StoreFailedError(f"the store {directory} cannot be opened: {error}") from error
    try:
        return _open_locked(directory, lock, expected_identity, clock)
    except BaseException as error:
        files.unlock(lock)
        if isinstance(error, (sqlite3.Error, OSError)):
            raise StoreFailedError(f"the store {directory} cannot be opened: {error}") from error
        raise


def _open_locked(
    directory: Path, lock: int, expected_identity: uuid.UUID | None, clock: Callable[[], float]
) -> Opened:
    files.forget_unfinished(directory)
    damage, fresh = "", False
    if files.present(directory):
        try:
            return _open_found(directory, lock, expected_identity, clock)
        except StoreDamagedError as error:
            damage = str(error)
    elif files.was_set_aside(directory):
        damage = "there was a store, and it was set aside as damaged"
    elif expected_identity is not None:
        damage = f"the directory is empty, but store {expected_identity} should be here"
    else:
        fresh = True
    _create(directory, FIRST_NUMBER if fresh else None)
    identity, commits = files.read_identity(directory)
    connection = connect(directory / files.DATABASE)
    try:
        return _take(directory, lock, connection, identity, commits, damage=damage, is_new=True)
    except BaseException:
        connection.close()
        raise


def _create(directory: Path, number: int | None) -> None:
    identity = uuid.uuid4()
    meta = {
        "identity": str(identity),
        "clean": True,
        "number": number,
        "pending": None,
        "replicas": [],
        "cluster": "",
    }
    connection = connect(directory / files.NEW_DATABASE)
    try:
        create(connection, {name: json.dumps(value) for name, value in meta.items()})
    finally:
        connection.close()
    files.write_identity(directory, identity)
    fsync.sync_directory(directory)
    files.finish_new(directory)


def _open_found(
    directory: Path, lock: int, expected_identity: uuid.UUID | None, clock: Callable[[], float]
) -> Opened:
    """Open what is there.

    :raises StoreDamagedError: when it cannot be trusted; it has been set aside then.
    """
    connection: sqlite3.Connection | None = None
    try:
        identity, reported = files.read_identity(directory)
        _expect(identity, expected_identity)
        connection = connect(directory / files.DATABASE)
        commits = _verify(connection, identity, reported)
        return _take(directory, lock, connection, identity, commits)
    except BaseException as error:
        damage = _damage(error)
        if damage:
            # Before the connection is closed: one whose files have moved neither writes nor deletes them.
            place = files.set_aside(directory, clock)
            damage = f"{damage}; the files are in {place.name}"
        if connection is not None:
            connection.close()
        if damage:
            raise StoreDamagedError(damage) from error
        raise


def _expect(identity: uuid.UUID, expected: uuid.UUID | None) -> None:
    if expected not in (None, identity):
        raise StoreDamagedError(f"this is store {identity}, but store {expected} should be here")


def _damage(error: BaseException) -> str:
    """What is wrong with the files, empty when it is not them."""
    if isinstance(error, StoreDamagedError):
        return str(error)
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code not in _UNREADABLE_CODES and code & _PRIMARY_CODE in _NOT_DAMAGE:
        return ""
    return f"the database cannot be read: {error}" if isinstance(error, _UNREADABLE) else ""


def _verify(connection: sqlite3.Connection, identity: uuid.UUID, reported: int) -> int:
    """Check all that the module's head tells; how many commits there are."""
    _verify_schema(connection)
    verdict = connection.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != [("ok",)]:
        raise StoreDamagedError(
            f"SQLite's check of the database says: {verdict[0][0] if verdict else 'nothing'}"
        )
    found = reading.snapshot(connection, was_clean=True)
    if reading.meta(connection)["identity"] != str(identity):
        raise StoreDamagedError("the database belongs to another store than the identity file")
    keys = {queue.key for queue in found.queues}
    counters = reading.counters(connection)
    if not counters.keys() - {COMMITS} <= keys:
        raise StoreDamagedError("there is a message id of a queue that is not there")
    reading.check_all_messages(connection, keys)
    reading.check_all_duplicates(connection, keys)
    if counters[COMMITS] < reported:
        raise StoreDamagedError(
            f"{reported} commits were reported, and the database knows of {counters[COMMITS]}"
        )
    return counters[COMMITS]


def _verify_schema(connection: sqlite3.Connection) -> None:
    wanted = {"application_id": APPLICATION_ID, "user_version": SCHEMA_VERSION, "journal_mode": "wal"}
    for pragma, value in wanted.items():
        found = connection.execute(f"PRAGMA {pragma}").fetchone()
        if found != (value,):
            raise StoreDamagedError(
                f"{pragma} is {found and found[0]}, where a store of this version has {value}"
            )
    schema = sorted(sql for (sql,) in connection.execute("SELECT coalesce(sql, '') FROM sqlite_schema"))
    if schema != sorted(TABLES):
        raise StoreDamagedError("the database has other tables than a store of this version")


def _take(
    directory: Path,
    lock: int,
    connection: sqlite3.Connection,
    identity: uuid.UUID,
    commits: int,
    *,
    damage: str = "",
    is_new: bool = False,
) -> Opened:
    """Mark the store dirty, and hand it over."""
    snapshot = reading.snapshot(connection, was_clean=True)
    was_clean = is_new or reading.meta(connection)["clean"] is True
    positions = reading.last_positions(connection)
    connection.execute(PUT_META, sealed("clean", json.dumps(obj=False)))
    mark = CommitMark(directory / files.MARK, identity)
    mark.write(commits)
    return Opened(
        connection=connection,
        mark=mark,
        lock=lock,
        identity=identity,
        commits=commits,
        was_clean=was_clean,
        damage=damage,
        queues={
            queue.record.identity: QueueState(
                queue.key, queue.record.identity, queue.last_id, positions.get(queue.key, 0)
            )
            for queue in snapshot.queues
        },
    )
