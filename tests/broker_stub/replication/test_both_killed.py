"""All members are dead, and return in any order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions, MemberState
from tests.broker_stub.replication.cluster import Cluster, bodies, send, stop_equal


@pytest.mark.slow
@pytest.mark.parametrize("last_to_serve_first", [True, False])
async def test_the_one_that_was_last_to_serve_comes_back_and_the_other_refuses_and_catches_up(
    tmp_path: Path, last_to_serve_first: bool
) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "in both")
        await a.kill()
        await b.promote()
        await send(b, "orders", "in b only")
        await b.kill()
        for member in (b, a) if last_to_serve_first else (a, b):
            await member.start()
        await a.refused("generation 2 and this member has generation 1")
        assert (await b.promote()).generation == 3
        await a.until("ready")
        content = await stop_equal(b, a)
        assert len(content["orders"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
async def test_after_the_same_moment_of_death_either_comes_back_with_everything(
    tmp_path: Path, first: int
) -> None:
    # The old primary waits this long for its replica before it settles again.
    async with Cluster(tmp_path, backup_timeout=2.0) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *range(100))
        await asyncio.gather(a.kill(), b.kill())
        successor = cluster.members[first]
        await successor.start()
        await successor.promote()
        assert await bodies(successor, "orders") == list(range(100))


@pytest.mark.slow
async def test_the_manager_finds_the_right_one(tmp_path: Path) -> None:
    async with LocalCluster(LocalClusterOptions(restart=False, store=tmp_path, probe_timeout=10)) as pair:
        first = await pair.kill_primary()
        await pair.wait_until(lambda pair: pair.generation == 2)
        second = await pair.kill_primary()
        await pair.wait_until(lambda _: second.state is MemberState.DEAD)
        pair.restart(first)
        await pair.wait_until(
            lambda pair: any(event.kind == "failed" and event.member == first.name for event in pair.events)
        )
        assert pair.primary is None
        pair.restart(second)
        await pair.wait_ready()
        assert pair.primary is second
