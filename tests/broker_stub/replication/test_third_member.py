"""A third member joins a working pair, and outlives the other two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_stub.replication.cluster import Cluster, Member, depth, send, stop_equal, take
from tests.broker_stub.replication.load import load


async def numbers(member: Member) -> list[int]:
    return [int(message.body) for message in await take(member, "orders")]


async def test_it_becomes_ready_under_load_and_nothing_settled_is_lost_when_the_others_die(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, ("a", "b", "c"), backup_timeout=5.0) as cluster:
        a, b = await cluster.pair()
        c = cluster.members[2]
        async with load(cluster.url) as made:
            await made.goes_on()
            await c.start()
            await c.until("ready")
            await made.goes_on()
            await a.kill()
            await b.promote()
            await made.goes_on()
            await c.until("ready")
            await b.kill()
            await c.promote()
            await made.goes_on()
        got = await numbers(c)
        assert made.settled <= set(got)
        assert set(got) <= set(range(made.sent))
        assert got == sorted(got)


@pytest.mark.slow
async def test_all_three_are_equal_afterwards(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ("a", "b", "c"), backup_timeout=5.0) as cluster:
        a, b = await cluster.pair()
        c = cluster.members[2]
        async with load(cluster.url) as made:
            await made.goes_on()
            await c.start()
            await c.until("ready")
            await a.kill()
            await c.promote()
            await made.goes_on()
            await a.start()
            await a.until("ready")
            await b.until("ready")
            await made.goes_on()
        count = await c.depth("orders")
        for member in (a, b):
            await member.until(lambda status: depth(status, "orders") == count)
        content = await stop_equal(c, b, a)
        assert len(content["orders"]) >= len(made.settled)


@pytest.mark.slow
async def test_of_three_the_one_that_was_dropped_is_not_eligible_and_the_one_that_stayed_is(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, ("a", "b", "c"), backup_timeout=2.0) as cluster:
        a, b = await cluster.pair()
        c = cluster.members[2]
        await c.start()
        await c.until("ready")
        await c.stop()
        await send(a, "orders", 1)
        assert (await a.status()).generation == 2
        await b.until(lambda status: status.generation == 2)
        await a.kill()
        await c.start()
        await c.refused("generation 2 and this member has generation 1")
        assert (await b.promote()).generation == 3
        await c.until("ready")
        assert await numbers(b) == [1]
