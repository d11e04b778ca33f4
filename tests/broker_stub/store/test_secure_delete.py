"""With secure delete, no file of the store has deleted data."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.store import QueueRecord, SqliteStore, open_store, writer
from tests.broker_stub.clients import until

_KEPT, _GONE = b"this one stays here", b"this one was settled"
# Rows in their page, rows with pages of their own, and both sides of the border between them.
_SIZES = (64, 1900, 2000, 2030, 2100, 8192, 40_000)


def content(directory: Path) -> bytes:
    """Return all bytes of all files of the store; the directory has no others."""
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def body(kind: bytes, number: int, size: int) -> bytes:
    mark = b"<%s %d>" % (kind, number)
    return mark * (size // len(mark) + 1)


async def fill(store: SqliteStore, sizes: tuple[int, ...], count: int) -> tuple[int, list[int], list[int]]:
    """Fill a queue with messages to keep and to delete, in random order; return its key, and both."""
    draw = random.Random(16)
    record = QueueRecord(identity=uuid.uuid4(), name="orders")
    store.put_queue(record)
    key, kept, gone = store.queue_key(record.identity), list[int](), list[int]()
    for number in range(1, count + 1):
        kind, into = (_KEPT, kept) if draw.random() < 0.3 else (_GONE, gone)
        into.append(number)
        store.put_message(key, number, body(kind, number, draw.choice(sizes)))
        if number % 50 == 0:
            await store.when_committed(store.sequence)
    await store.when_committed(store.sequence)
    draw.shuffle(gone)
    return key, kept, gone


@pytest.mark.parametrize("sizes", [*((size,) for size in _SIZES), _SIZES], ids=str)
async def test_what_is_deleted_is_overwritten_and_the_log_is_emptied(
    tmp_path: Path, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TRUNCATE_INTERVAL", 0.05)
    store = await open_store(tmp_path / "store", duplicates=DEFAULT_WINDOW, secure_delete=True)
    key, kept, gone = await fill(store, sizes, 300)
    for start in range(0, len(gone), 7):
        store.remove_messages(key, gone[start : start + 7])
        await store.when_committed(store.sequence)
    log = tmp_path / "store" / "store.db-wal"
    await until(lambda: log.stat().st_size == 0 and _GONE not in content(tmp_path / "store"))
    assert content(tmp_path / "store").count(_KEPT) >= len(kept)
    await store.close()
    assert _GONE not in content(tmp_path / "store")
    again = await open_store(tmp_path / "store", duplicates=DEFAULT_WINDOW)
    assert not again.corruption
    assert [row.id async for chunk in again.messages(key) for row in chunk] == kept
    await again.close()


async def test_a_store_that_was_not_told_so_leaves_it_there(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store", duplicates=DEFAULT_WINDOW)
    key, _, gone = await fill(store, (40_000,), 50)
    store.remove_messages(key, gone)
    await store.when_committed(store.sequence)
    await store.close()
    assert _GONE in content(tmp_path / "store")
