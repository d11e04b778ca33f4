"""The database: its tables, the settings of a connection, and the checksum of each row.

Rules
-----
* SQLite has no checksums of its pages: a value with a flipped bit is still a valid value.  So every row ends
  with a checksum over its key and values, and a wrong checksum means corruption.
* A message's checksum is its CRC plus the delivery count.  So counting a delivery adds one to both columns,
  without reading the row.
* ``confirmed`` is new in version 2: the last accepted and confirmed messages, as ``duplicates`` has the last
  sent ones.  A store of version 1 gets the table when it is opened.  After that, a member of version 1 treats
  the store as corrupted and sets it aside.
* A queue with site progress has it in a row of ``meta``.
* ``counters`` holds the highest message id put into each queue and, under ``COMMITS``, the number of commits.
  They share a table so that a commit touches one page for both.

Sources: sqlite.org/wal.html, /withoutrowid.html, /pragma.html (``locking_mode``, ``synchronous``).
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from broker_stub.store.errors import StoreCorruptedError

# In the header of the database file: they identify a store and its version.
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

# A row of a WITHOUT ROWID table stays in its page up to about a quarter of the page: 2,030 bytes here.
# A longer row takes a separate page; with pages of 4,096 bytes a message of 1 KB would.
PAGE_SIZE = 8192
# 16 MB of write-ahead log between two checkpoints; a checkpoint costs two fsyncs in the middle of a commit.
CHECKPOINT_PAGES = 2000

_SETTINGS = (
    # No -shm file, and no lock calls for each transaction; the lock file already excludes other processes.
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}",
    # A log that has grown in a burst shrinks again at the next checkpoint.
    f"PRAGMA journal_size_limit = {2 * CHECKPOINT_PAGES * PAGE_SIZE}",
    # Debian's SQLite overwrites deleted data with zeros by default: twice the writing.
    "PRAGMA secure_delete = OFF",
    # Code that a flipped bit may have put into the schema is not run.
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
)

# For a store that must not keep deleted content.
SECURE_DELETE = "PRAGMA secure_delete = ON"


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection with explicit transactions, which may be passed between threads."""
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
    """Upgrade a store of the former version to this one."""
    if connection.execute("PRAGMA user_version").fetchone() == (FORMER_VERSION,):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_CONFIRMED)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")


def progress_name(queue: int) -> str:
    """Return the name in ``meta`` of a queue's site progress."""
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
    """Return the statement that puts several rows."""
    row = f"({', '.join('?' * columns)})"
    return f"INSERT OR REPLACE INTO {table} VALUES {', '.join([row] * count)}"  # noqa: S608 - our own words


def with_checksum(*values: Any) -> tuple[Any, ...]:
    """Return a row with its checksum.

    Enum members are replaced by plain text first, because they are read back as plain text.
    """
    plain = tuple([str(value) if isinstance(value, str) else value for value in values])
    return (*plain, crc32(repr(plain).encode()))


def duplicate_checksum(queue: int, position: int, duplicate_id: bytes, message: int) -> int:
    """Return the same checksum of a duplicate-detection id as ``with_checksum``, but faster."""
    return crc32(repr((queue, position, duplicate_id, message)).encode())


def without_checksum(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a row.

    :raises StoreCorruptedError: when the checksum is wrong.
    """
    *values, checksum = row
    if crc32(repr(tuple(values)).encode()) != checksum:
        raise StoreCorruptedError(f"a row of table {table} has a wrong checksum")
    return tuple(values)


_LOW = 0xFFFFFFFF
# Arbitrary odd numbers: they distinguish a queue's key from an id, and "never" from every time.
_QUEUE_FACTOR = 0x9E3779B1
_NEVER = 0x5BD1E995


def message_checksum(
    queue: int, message_id: int, data: bytes, delivery_count: int, expires_at: int | None
) -> int:
    """Return the checksum of a message.

    For the same data, CRC-32 differs if the seed does.  For the same seed, it differs if the data differ in
    one run of up to 32 bits.
    """
    seed = message_id ^ message_id >> 32 ^ queue * _QUEUE_FACTOR
    seed ^= _NEVER if expires_at is None else expires_at ^ expires_at >> 32
    return crc32(data, seed & _LOW) + delivery_count


def check_message(checksum: int, *message: Any) -> None:
    """Check a message against its checksum.

    :raises StoreCorruptedError: when the checksum is wrong.
    :raises TypeError: when a value has another type.
    """
    if message_checksum(*message) != checksum:
        raise StoreCorruptedError(f"message {message[1]} of queue {message[0]} has a wrong checksum")
