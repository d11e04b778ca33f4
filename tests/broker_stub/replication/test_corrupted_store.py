"""A member with a damaged or lost store: it reports that, is not eligible, and returns by catching up."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_stub.replication.cluster import Cluster, Member, bodies, send, stop_equal

Corrupt = Callable[[Path], None]


def database(store: Path) -> Path:
    """Return the file with the tables: the largest SQLite file."""
    return max(store.glob("*.db"), key=lambda path: path.stat().st_size)


def flip_a_bit(store: Path) -> None:
    path = database(store)
    data = bytearray(path.read_bytes())
    position = data.rindex(b"message 99")
    data[position] ^= 1
    path.write_bytes(data)


def truncate(store: Path) -> None:
    path = database(store)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def delete_the_database(store: Path) -> None:
    for path in store.glob("*.db*"):
        path.unlink()


def wipe(store: Path) -> None:
    shutil.rmtree(store)


damages = pytest.mark.parametrize("corrupt", [flip_a_bit, truncate, delete_the_database])


async def with_a_corrupted_backup(cluster: Cluster, corrupt: Corrupt) -> tuple[Member, Member]:
    """Make a pair with a hundred messages; the backup returns with the rest of its store."""
    a, b = await cluster.pair()
    await send(a, "orders", *(f"message {number}" for number in range(100)))
    await b.stop()
    corrupt(b.store)
    return a, b


@pytest.mark.slow
@damages
async def test_a_corrupted_store_is_reported_and_its_member_is_not_eligible(
    tmp_path: Path, corrupt: Corrupt
) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *(f"message {number}" for number in range(100)))
        await a.stop()
        await b.until("connecting")
        await b.stop()
        corrupt(b.store)
        await b.start()
        status = await b.status()
        assert status.facts["replication"]["damage"]
        assert status.facts["replication"]["damage"] in b.log
        await b.refused("this member has no generation")
        await a.start()
        await a.promote()
        await b.until("ready")
        assert len((await stop_equal(a, b))["orders"]) == 100


@pytest.mark.slow
@pytest.mark.parametrize("corrupt", [flip_a_bit, truncate, delete_the_database, wipe])
async def test_it_catches_up_from_nothing_and_can_be_promoted_then(tmp_path: Path, corrupt: Corrupt) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await with_a_corrupted_backup(cluster, corrupt)
        await send(a, "orders", "after")
        await b.start()
        await b.until("ready")
        await a.kill()
        await b.promote()
        assert await bodies(b, "orders") == [*(f"message {number}" for number in range(100)), "after"]


@pytest.mark.slow
async def test_a_member_with_a_wiped_store_is_not_eligible(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await with_a_corrupted_backup(cluster, wipe)
        await a.kill()
        await b.start()
        await b.refused("the arbiter is at generation 2 and this member has generation 0")


async def test_a_primary_whose_store_is_corrupted_follows_its_successor(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *(f"message {number}" for number in range(100)))
        await a.stop()
        flip_a_bit(a.store)
        await a.start()
        await a.refused("this member has no generation")
        await b.promote()
        await a.until("ready")
        assert len((await stop_equal(b, a))["orders"]) == 100
