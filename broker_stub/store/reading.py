"""Reads the database into the types of ``interface``.  Runs on the thread of the connection.

Rule: every row is checked against its checksum; a wrong one raises ``StoreCorruptedError``.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator
from typing import Any

from broker_stub.election.generation_steps import Pending
from broker_stub.store.errors import StoreCorruptedError
from broker_stub.store.interface import (
    BindingRecord,
    ExchangeRecord,
    QueueRecord,
    Snapshot,
    StoredMessage,
    StoredQueue,
)
from broker_stub.store.schema import check_message, progress_name, without_checksum
from broker_stub.store.start_progress import StartProgress

# A chunk ends at either limit: small messages reach the number first, large ones the size.
CHUNK_MESSAGES = 1000
CHUNK_BYTES = 4 * 1024 * 1024

_CHUNK = (
    "SELECT id, data, delivery_count, expires_at, checksum FROM messages"
    " WHERE queue = ? AND id > ? ORDER BY id LIMIT ?"
)


def rows(connection: sqlite3.Connection, table: str, order: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, without their checksums."""
    for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608 - our own words
        yield without_checksum(table, row)


def meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the decoded facts about the store itself."""
    return {name: json.loads(value) for name, value in rows(connection, "meta", "name")}


def counters(connection: sqlite3.Connection) -> dict[int, int]:
    """Return the last message id of each queue, and the number of commits."""
    return {queue: value for queue, value in rows(connection, "counters", "queue")}  # noqa: C416 - checks arity


def snapshot(connection: sqlite3.Connection, *, was_clean: bool) -> Snapshot:
    """Return everything except messages and duplicate-detection ids."""
    facts, last_ids = meta(connection), counters(connection)
    pending = facts["pending"]
    return Snapshot(
        was_clean=was_clean,
        generation=facts["number"],
        pending=None if pending is None else Pending(*pending),
        # A version without clusters wrote an empty cluster and no claim.
        claim=facts.get("claim", ""),
        cluster=facts["cluster"],
        replicas=tuple(name for name, _address in facts["replicas"]),
        queues=tuple(
            StoredQueue(key, record, last_ids.get(key, 0), facts.get(progress_name(key), {}))
            for key, record in _queues(connection).items()
        ),
        exchanges=tuple(_exchanges(connection)),
        bindings=tuple(_bindings(connection)),
    )


def _queues(connection: sqlite3.Connection) -> dict[int, QueueRecord]:
    return {
        key: QueueRecord(
            identity=uuid.UUID(bytes=identity),
            name=name,
            replicate=replicate,
            arguments=json.loads(arguments),
        )
        for key, identity, name, replicate, _durable, arguments in rows(connection, "queues", "queue")
    }


def _exchanges(connection: sqlite3.Connection) -> Iterator[ExchangeRecord]:
    for identity, name, kind, arguments in rows(connection, "exchanges", "name, identity"):
        yield ExchangeRecord(
            identity=uuid.UUID(bytes=identity), name=name, type=kind, arguments=json.loads(arguments)
        )


def _bindings(connection: sqlite3.Connection) -> Iterator[BindingRecord]:
    for exchange, queue, key, _arguments in rows(connection, "bindings", "exchange, queue, key"):
        yield BindingRecord(exchange=uuid.UUID(bytes=exchange), queue=uuid.UUID(bytes=queue), key=key)


def chunk(connection: sqlite3.Connection, queue: int, after: int) -> tuple[list[StoredMessage], bool]:
    """Return the next messages of a queue behind an id, and True if there may be more."""
    messages: list[StoredMessage] = []
    size, more = 0, False
    cursor = connection.execute(_CHUNK, (queue, after, CHUNK_MESSAGES))
    try:
        for number, data, delivery_count, expires_at, checksum in cursor:
            check_message(checksum, queue, number, data, delivery_count, expires_at)
            messages.append(StoredMessage(number, data, delivery_count, expires_at))
            size += len(data)
            more = size >= CHUNK_BYTES or len(messages) == CHUNK_MESSAGES
            if more:
                break
    finally:
        cursor.close()
    return messages, more


def window(connection: sqlite3.Connection, table: str, queue: int) -> list[tuple[bytes, int]]:
    """Return the entries in a window, oldest first, as pairs of id or owner, and message.

    :param table: ``duplicates`` or ``confirmed``.
    """
    statement = f"SELECT * FROM {table} WHERE queue = ? ORDER BY position"  # noqa: S608 - our own words
    found = [without_checksum(table, row) for row in connection.execute(statement, (queue,))]
    return [(remembered, message) for _, _, remembered, message in found]


def last_positions(connection: sqlite3.Connection, table: str) -> dict[int, int]:
    """Return the last position in each window; for ``table`` see ``window``."""
    return dict(connection.execute(f"SELECT queue, max(position) FROM {table} GROUP BY queue"))  # noqa: S608


def check_all_messages(connection: sqlite3.Connection, queues: set[int], progress: StartProgress) -> None:
    """Check every message: its checksum, its queue, and the order of the keys.

    :raises StoreCorruptedError: at the first wrong one.
    """
    before = (0, 0)
    for queue, number, data, delivery_count, expires_at, checksum in connection.execute(
        "SELECT queue, id, data, delivery_count, expires_at, checksum FROM messages"
    ):
        check_message(checksum, queue, number, data, delivery_count, expires_at)
        if (queue, number) <= before or queue not in queues:
            raise StoreCorruptedError(f"message {number} of queue {queue} is not where it belongs")
        before = (queue, number)
        progress.checked += 1


def check_window(connection: sqlite3.Connection, table: str, queues: set[int]) -> None:
    """Check every entry in a window: its checksum, its queue, and the order of the keys.

    :param table: see ``window``.
    :raises StoreCorruptedError: at the first wrong one.
    """
    before = (0, 0)
    for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our own words
        queue, position, _, _ = without_checksum(table, row)
        if (queue, position) <= before or queue not in queues:
            raise StoreCorruptedError(f"row {position} of queue {queue} in {table} is not where it belongs")
        before = (queue, position)
