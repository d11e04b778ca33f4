"""The database: its tables, how a connection is set up, and the checksum on each row.

Rules
-----
* SQLite keeps no checksum of its pages: a flipped bit in a value is a valid value.  So every row
  ends with a checksum over its key and its values, and a row whose checksum is wrong is corruption.
* A message's checksum is its CRC plus the delivery count: counting a delivery adds one to both
  columns, without reading the row.
* ``confirmed`` is of version 2: what was accepted and confirmed last, as ``duplicates`` has what was sent.  A
  store of version 1 is given the table when it is opened; a member of that version then takes it for
  corrupted, and sets it aside.
* The site progress of a queue is a row of ``meta``, which only a queue with site progress has.
* ``counters`` holds the highest message id put into each queue, and under ``COMMITS`` how many
  commits the store has seen.  They share a table so that a commit touches one page for both.

Sources: sqlite.org/wal.html, /withoutrowid.html, /pragma.html (``locking_mode``, ``synchronous``).
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from broker_stub.store.errors import StoreCorruptedError

# Kept in the header of the database file: that this is a store, and of which version.
APPLICATION_ID = 0x68615374
SCHEMA_VERSION, FORMER_VERSION = 2, 1

COMMITS = 0

FORMER_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT, checksum INTEGER) WITHOUT ROWID",
    "CREATE TABLE counters (queue INTEGER PRIMARY KEY, value INTEGER, checksum INTEGER)",
    """CREATE TABLE queues (queue INTEGER PRIMARY KEY, identity BLOB, name TEXT, replicate TEXT,
    durable INTEGER, arguments TEXT, checksum INTEGER)""",
    """CREATE TABLE exchanges (identity BLOB PRIMARY KEY, name TEXT, type TEXT, arguments TEXT,
    checksum INTEGER) WITHOUT ROWID""",
    """CREATE TABLE bindings (exchange BLOB, queue BLOB, key TEXT, arguments TEXT, checksum INTEGER,
    PRIMARY KEY (exchange, queue, key)) WITHOUT ROWID""",
    """CREATE TABLE messages (queue INTEGER, id INTEGER, data BLOB, delivery_count INTEGER,
    expires_at INTEGER, checksum INTEGER, PRIMARY KEY (queue, id)) WITHOUT ROWID""",
    """CREATE TABLE duplicates (queue INTEGER, position INTEGER, id BLOB, message INTEGER,
    checksum INTEGER, PRIMARY KEY (queue, position)) WITHOUT ROWID""",
)
_CONFIRMED = """CREATE TABLE confirmed (queue INTEGER, position INTEGER, id BLOB, message INTEGER,
    checksum INTEGER, PRIMARY KEY (queue, position)) WITHOUT ROWID"""
TABLES = (*FORMER_TABLES, _CONFIRMED)

# A row of a WITHOUT ROWID table stays in its page up to about a quarter of it: 2,030 bytes here.
# A longer one takes a page of its own; with 4,096 a message of 1 KB would.
PAGE_SIZE = 8192
# 16 MB of write-ahead log between two checkpoints: each of them costs two fsyncs in the middle of a commit.
CHECKPOINT_PAGES = 2000

_SETTINGS = (
    # No -shm file, no lock calls for each transaction; the lock file has made sure that it is ours.
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}",
    # What a burst has grown is given back at the next checkpoint.
    f"PRAGMA journal_size_limit = {2 * CHECKPOINT_PAGES * PAGE_SIZE}",
    # Debian builds SQLite to overwrite what is deleted with zeros: twice the writing.
    "PRAGMA secure_delete = OFF",
    # What a flipped bit may have put into the schema is not run.
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
)

# For a store whose deleted content shall be gone.
SECURE_DELETE = "PRAGMA secure_delete = ON"


def connect(path: Path) -> sqlite3.Connection:
    """A connection that may be handed from thread to thread, with explicit transactions."""
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        for setting in _SETTINGS:
            connection.execute(setting).close()
    except BaseException:
        connection.close()
        raise
    return connection


def create(connection: sqlite3.Connection, meta: dict[str, str]) -> None:
    """Make the tables in an empty file."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for table in TABLES:
        connection.execute(table)
    for name, value in meta.items():
        connection.execute(PUT_META, with_checksum(name, value))
    connection.execute(PUT_COUNTER, with_checksum(COMMITS, 0))
    connection.execute("COMMIT")


def upgrade(connection: sqlite3.Connection) -> None:
    """Make a store of the former version one of this version."""
    if connection.execute("PRAGMA user_version").fetchone() == (FORMER_VERSION,):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_CONFIRMED)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")


def progress_name(queue: int) -> str:
    """The name in ``meta`` of a queue's site progress."""
    return f"marks:{queue}"


PUT_META = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
PUT_COUNTER = "INSERT OR REPLACE INTO counters VALUES (?, ?, ?)"
PUT_QUEUE = "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?, ?, ?, ?)"
PUT_EXCHANGE = "INSERT OR REPLACE INTO exchanges VALUES (?, ?, ?, ?, ?)"
PUT_BINDING = "INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?)"
TRIM_DUPLICATES = "DELETE FROM duplicates WHERE queue = ? AND position <= ?"
TRIM_CONFIRMED = "DELETE FROM confirmed WHERE queue = ? AND position <= ?"
REMOVE_MESSAGES = "DELETE FROM messages WHERE queue = ? AND id IN (SELECT value FROM json_each(?))"
COUNT_DELIVERY = (
    "UPDATE messages SET delivery_count = delivery_count + 1, checksum = checksum + 1"
    " WHERE queue = ? AND id IN (SELECT value FROM json_each(?))"
)


@cache
def put_rows(table: str, columns: int, count: int) -> str:
    """The statement that puts several rows."""
    row = f"({', '.join('?' * columns)})"
    return f"INSERT OR REPLACE INTO {table} VALUES {', '.join([row] * count)}"  # noqa: S608 - our own words


def with_checksum(*values: Any) -> tuple[Any, ...]:
    """A row with its checksum, which is that of plain text where a text is an enum's: it is read as such."""
    plain = tuple([str(value) if isinstance(value, str) else value for value in values])
    return (*plain, crc32(repr(plain).encode()))


def duplicate_checksum(queue: int, position: int, duplicate_id: bytes, message: int) -> int:
    """The checksum of a duplicate-detection id: that of ``with_checksum``, for less work."""
    return crc32(repr((queue, position, duplicate_id, message)).encode())


def without_checksum(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a row.

    :raises StoreDamagedError: when they are not those that were written.
    """
    *values, checksum = row
    if crc32(repr(tuple(values)).encode()) != checksum:
        raise StoreCorruptedError(f"a row of table {table} has a wrong checksum")
    return tuple(values)


_LOW = 0xFFFFFFFF
# Any odd numbers do: they keep a queue's key apart from an id, and "never" from every time.
_QUEUE_FACTOR = 0x9E3779B1
_NEVER = 0x5BD1E995


def message_checksum(
    queue: int, message_id: int, data: bytes, delivery_count: int, expires_at: int | None
) -> int:
    """The checksum of a message.

    For given data CRC-32 differs whenever the seed does, and for a given seed whenever one run of
    up to 32 bits of the data does.
    """
    seed = message_id ^ message_id >> 32 ^ queue * _QUEUE_FACTOR
    seed ^= _NEVER if expires_at is None else expires_at ^ expires_at >> 32
    return crc32(data, seed & _LOW) + delivery_count


def check_message(checksum: int, *message: Any) -> None:
    """Make sure that a message is what was written.

    :raises StoreDamagedError: when it is not; ``TypeError`` when a value is of another type.
    """
    if message_checksum(*message) != checksum:
        raise StoreCorruptedError(f"message {message[1]} of queue {message[0]} has a wrong checksum")
