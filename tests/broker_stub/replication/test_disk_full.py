"""A store that fails to write for another reason than a full disk: the member ends, and nothing is lost.

The limit on the size of files (``RLIMIT_FSIZE``) makes a write beyond it fail.
"""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from tests.broker_stub.replication.cluster import PATIENCE, Cluster, Member, bodies, send, stop_equal
from tests.broker_stub.replication.load import load

REFUSED = 1


def fill_the_disk(member: Member) -> None:
    """Limit the growth of every file of the member to a page."""
    files = [path for path in member.store.rglob("*") if path.name != "reserve"]
    size = max(path.stat().st_size for path in files) + 8192
    resource.prlimit(member.process.pid, resource.RLIMIT_FSIZE, (size, size))


async def end(member: Member) -> int:
    async with asyncio.timeout(PATIENCE):
        return await member.process.wait()


@pytest.mark.slow
async def test_a_backup_whose_disk_is_full_ends_and_its_primary_goes_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        fill_the_disk(b)
        await send(a, "orders", *("x" * 4096 for _ in range(100)))
        assert await end(b) == REFUSED
        assert "the store failed" in b.log
        assert (await a.status()).generation == 2
        await b.start()
        await b.until("ready")
        assert len((await stop_equal(a, b))["orders"]) == 100


async def test_a_primary_whose_disk_is_full_ends_and_its_successor_has_what_it_settled(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        async with load(cluster.url) as made:
            await made.goes_on()
            fill_the_disk(a)
            assert await end(a) == REFUSED
            await b.promote()
            await made.goes_on()
            await a.start()
            await a.until("ready")
        got = await bodies(b, "orders")
        assert made.settled <= set(got)
        assert got == sorted(set(got))
