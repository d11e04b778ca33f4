"""Whatever happens to the files: the store is unchanged, or reports the corruption."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from broker_stub import fsync
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.store import StoreFailedError, files, open_store, schema
from tests.broker_stub.store.contents import Content, content, declare, fill, scratch

FLIPS = 120
EMPTY = Content(None, None, (), {}, (), {}, {}, {})


@pytest.fixture
def memory() -> Iterator[Path]:
    with scratch() as path:
        yield path


async def make(directory: Path, kind: str) -> Content:
    """Make the store of a clean end, or of a crash (all in the log, or half of it)."""
    live = directory.with_name("live")
    store = await open_store(live, duplicates=DEFAULT_WINDOW)
    if kind == "half":
        fill(store, 40)
        await store.close()
        store = await open_store(live, duplicates=DEFAULT_WINDOW)
    fill(store)
    await store.when_committed(store.sequence)
    store.put_message(declare(store), 100, b"the last commit")
    await store.when_committed(store.sequence)
    expected = await content(store)
    if kind == "clean":
        await store.close()
    shutil.copytree(live, directory)
    await store.close()
    shutil.rmtree(live)
    return expected


def parts(directory: Path) -> dict[str, bytes]:
    """Return the files of a store.  SQLite makes an empty log by opening a database, which does not count."""
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}
    return {name: data for name, data in files.items() if data or name != "store.db-wal"}


async def is_whole_or_corrupted(directory: Path, expected: Content) -> bool:
    """Open a store whose files were changed; return whether it reports a corruption."""
    before = parts(directory)
    store = await open_store(directory, duplicates=DEFAULT_WINDOW)
    found = await content(store)
    await store.close()
    if not store.corruption:
        assert found == expected
        return False
    assert found == EMPTY
    (aside,) = directory.glob("damaged-*")
    assert parts(aside) == before, "what is damaged is kept as it was"
    again = await open_store(directory, duplicates=DEFAULT_WINDOW)
    assert (again.corruption, again.identity, (await again.load()).generation) == ("", store.identity, None)
    await again.close()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clean", "crashed", "half"])
async def test_flipped_bits_are_detected_or_harmless(memory: Path, kind: str) -> None:
    expected = await make(memory / "whole", kind)
    files = [name for name, data in parts(memory / "whole").items() if data]
    source = random.Random(f"flips {kind}")
    corrupted = 0
    for attempt in range(FLIPS):
        copy = memory / "copy"
        shutil.copytree(memory / "whole", copy)
        path = copy / source.choice(files)
        data = bytearray(path.read_bytes())
        for _ in range(source.choice((1, 1, 1, 20))):
            data[source.randrange(len(data))] ^= source.choice((1 << source.randrange(8), 0xFF))
        path.write_bytes(data)
        try:
            corrupted += await is_whole_or_corrupted(copy, expected)
        except BaseException as error:
            error.add_note(f"flip {attempt} of {kind}, in {path.name}")
            raise
        shutil.rmtree(copy)
    assert corrupted > FLIPS / 3


@pytest.mark.parametrize("kind", ["clean", "crashed", "half"])
async def test_a_truncated_file_is_detected_or_harmless(memory: Path, kind: str) -> None:
    expected = await make(memory / "whole", kind)
    cuts = [
        (name, size) for name, data in parts(memory / "whole").items() for size in range(0, len(data), 4096)
    ]
    assert len(cuts) > 10
    found: dict[str, list[bool]] = {}
    for name, size in cuts:
        copy = memory / "copy"
        shutil.copytree(memory / "whole", copy)
        os.truncate(copy / name, size)
        found.setdefault(name, []).append(await is_whole_or_corrupted(copy, expected))
        shutil.rmtree(copy)
    # A complete log allows any damage to the database, which is rewritten; no other damage is allowed.
    assert all(all(cuts) for name, cuts in found.items() if (kind, name) != ("crashed", "store.db"))


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("name", ["store.db", "identity", "committed", "store.db-wal"])
async def test_a_part_that_was_taken_away_is_missed(memory: Path, kind: str, name: str) -> None:
    expected = await make(memory / "whole", kind)
    (memory / "whole" / name).unlink(missing_ok=True)
    corrupted = await is_whole_or_corrupted(memory / "whole", expected)
    assert corrupted or (kind, name) == ("clean", "store.db-wal")


async def corruption_of(directory: Path) -> str:
    store = await open_store(directory, duplicates=DEFAULT_WINDOW)
    await store.close()
    assert (await reopened_number(directory)) is None
    return store.corruption


async def reopened_number(directory: Path) -> int | None:
    store = await open_store(directory, duplicates=DEFAULT_WINDOW)
    number = (await store.load()).generation
    await store.close()
    return number


def not_a_database(directory: Path) -> None:
    (directory / "store.db").write_bytes(b"Dear diary, " * 5000)


def empty_database(directory: Path) -> None:
    (directory / "store.db").write_bytes(b"")


def strange_tables(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db")) as database:
        database.execute("CREATE TABLE more (x)")


def future_version(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db")) as database:
        database.execute("PRAGMA user_version = 3")


def other_application(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db")) as database:
        database.execute("PRAGMA application_id = 1")


def changed_value(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        database.execute("UPDATE meta SET value = '99' WHERE name = 'number'")


def changed_message(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        database.execute("UPDATE messages SET delivery_count = 7 WHERE id = 2")


def changed_duplicate(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        database.execute("UPDATE duplicates SET message = 7 WHERE position = 3")


def orphaned_duplicate(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        database.execute(schema.put_rows("duplicates", 5, 1), schema.with_checksum(77, 1, b"x", 1))


def changed_confirmation(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        database.execute("UPDATE confirmed SET message = 7 WHERE position = 1")


def orphaned_confirmation(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        database.execute(schema.put_rows("confirmed", 5, 1), schema.with_checksum(77, 1, b"x", 1))


def miscounted_pages(directory: Path) -> None:
    with (directory / "store.db").open("r+b") as file:
        file.seek(36)  # the number of free pages: sqlite.org/fileformat.html, section 1.3
        file.write(b"\0\0\0\5")


def orphaned_message(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        row = (77, 1, b"x", 0, None)
        database.execute(schema.put_rows("messages", 6, 1), (*row, schema.message_checksum(*row)))


def orphaned_counter(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as database:
        database.execute(schema.PUT_COUNTER, schema.with_checksum(77, 1))


def garbage_identity(directory: Path) -> None:
    (directory / "identity").write_text("nobody\n")


def other_identity(directory: Path) -> None:
    (directory / "identity").write_text(f"{uuid.UUID(int=5)}\n")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (not_a_database, "not a database"),
        (empty_database, "the database is empty"),
        (strange_tables, "other tables"),
        (future_version, "user_version is 3, where a store of this version has 2"),
        (other_application, "application_id is 1"),
        (changed_value, "a row of table meta has a wrong checksum"),
        (changed_message, "message 2 of queue 1 has a wrong checksum"),
        (changed_duplicate, "a row of table duplicates has a wrong checksum"),
        (orphaned_duplicate, "row 1 of queue 77 in duplicates is not where it belongs"),
        (changed_confirmation, "a row of table confirmed has a wrong checksum"),
        (orphaned_confirmation, "row 1 of queue 77 in confirmed is not where it belongs"),
        (miscounted_pages, "SQLite's check of the database reports"),
        (orphaned_message, "message 1 of queue 77 is not where it belongs"),
        (orphaned_counter, "a message id of a queue that is not there"),
        (garbage_identity, "identity file holds no identity"),
        (other_identity, "belong to different stores"),
    ],
)
async def test_corruption_is_reported_in_words(
    memory: Path, harm: Callable[[Path], None], words: str
) -> None:
    await make(memory / "store", "clean")
    harm(memory / "store")
    corrupt = await corruption_of(memory / "store")
    assert words in corrupt
    assert "the files are in damaged-" in corrupt


async def test_an_older_copy_of_the_database_is_missing_commits(memory: Path) -> None:
    await make(memory / "store", "clean")
    old = (memory / "store" / "store.db").read_bytes()
    store = await open_store(memory / "store", duplicates=DEFAULT_WINDOW)
    await store.write_generation(8)
    await store.close()
    (memory / "store" / "store.db").write_bytes(old)
    assert "commits were reported, and the database knows of" in await corruption_of(memory / "store")


async def test_the_database_of_another_store_is_recognised(memory: Path) -> None:
    for name in ("one", "two"):
        store = await open_store(memory / name, duplicates=DEFAULT_WINDOW)
        await store.close()
    shutil.copy(memory / "two" / "store.db", memory / "one" / "store.db")
    assert "belongs to another store" in await corruption_of(memory / "one")


async def test_an_emptied_directory_is_fresh_unless_somebody_knows_better(memory: Path) -> None:
    first = await open_store(memory / "store", duplicates=DEFAULT_WINDOW)
    await first.write_generation(5)
    await first.close()
    shutil.rmtree(memory / "store")
    wiped = await open_store(memory / "store", expected_identity=first.identity, duplicates=DEFAULT_WINDOW)
    assert str(first.identity) in wiped.corruption
    assert (await wiped.load()).generation is None
    await wiped.close()
    same = await open_store(memory / "store", expected_identity=wiped.identity, duplicates=DEFAULT_WINDOW)
    assert same.corruption == ""
    await same.close()
    shutil.rmtree(memory / "store")
    fresh = await open_store(memory / "store", duplicates=DEFAULT_WINDOW)
    assert (fresh.corruption, (await fresh.load()).generation) == ("", 0)
    await fresh.close()


async def test_a_store_that_is_not_the_expected_one_is_set_aside(memory: Path) -> None:
    await make(memory / "store", "clean")
    store = await open_store(memory / "store", expected_identity=uuid.UUID(int=5), duplicates=DEFAULT_WINDOW)
    assert "should be here" in store.corruption
    assert (await store.load()).generation is None
    await store.close()


async def test_corruption_twice_within_a_second_is_kept_twice(memory: Path) -> None:
    for _ in range(2):
        store = await open_store(memory, clock=lambda: 0.0, duplicates=DEFAULT_WINDOW)
        await store.close()
        not_a_database(memory)
    store = await open_store(memory, clock=lambda: 0.0, duplicates=DEFAULT_WINDOW)
    await store.close()
    aside = sorted(path.name for path in memory.glob("damaged-*"))
    assert aside == ["damaged-19700101T000000Z", "damaged-19700101T000000Z-2"]


async def test_a_crash_after_setting_aside_does_not_make_the_store_fresh(memory: Path) -> None:
    await make(memory / "store", "clean")
    not_a_database(memory / "store")
    await corruption_of(memory / "store")
    for part in ("store.db", "identity", "committed"):
        (memory / "store" / part).unlink()
    assert await corruption_of(memory / "store") == "a former store was set aside as corrupted"


@pytest.mark.parametrize(
    ("module", "step"), [(files, "write_identity"), (fsync, "sync_directory"), (files, "finish_new")]
)
async def test_a_crash_while_a_store_is_made_leaves_a_fresh_one(
    memory: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, step, crash)
        with pytest.raises(StoreFailedError, match="crash"):
            await open_store(memory, duplicates=DEFAULT_WINDOW)
    store = await open_store(memory, duplicates=DEFAULT_WINDOW)
    assert (store.corruption, (await store.load()).generation) == ("", 0)
    await store.close()


def crash(*arguments: object) -> None:
    raise OSError("crash")


async def test_corruption_that_shows_while_running_stops_the_store(memory: Path) -> None:
    store = await open_store(memory, duplicates=DEFAULT_WINDOW)
    queue = declare(store)
    for number in range(1, 4):
        store.put_message(queue, number, b"x")
    await store.close()
    store = await open_store(memory, duplicates=DEFAULT_WINDOW)
    reported: list[StoreFailedError] = []
    store.on_failed(reported.append)
    await asyncio.to_thread(store._writer._connection.execute, "UPDATE messages SET data = 'y' WHERE id = 2")
    with pytest.raises(StoreFailedError, match="store failed"):
        _ = [chunk async for chunk in store.messages(queue)]
    assert len(reported) == 1
    await store.close()
    assert "cannot be read" in await corruption_of(memory)
