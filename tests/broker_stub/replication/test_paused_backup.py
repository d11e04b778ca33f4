"""A silent replica blocks the clients only for a bounded time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_stub.replication.cluster import Cluster, bodies, depth, send, stop_equal


async def test_a_silent_replica_is_dropped_and_comes_back_equal_when_it_wakes(tmp_path: Path) -> None:
    async with Cluster(tmp_path, backup_timeout=1.0) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *range(10))
        b.pause()
        await send(a, "orders", *range(10, 20))
        status = await a.status()
        assert status.generation == 2
        assert status.facts["replication"]["replicas"] == []
        assert "dropped the replica b: no acknowledgement for 1 s" in a.log
        await send(a, "orders", *range(20, 30))
        b.resume()
        await b.until(lambda status: status.role == "ready" and status.generation == 2)
        await send(a, "orders", *range(30, 40))
        assert len((await stop_equal(a, b))["orders"]) == 40


async def test_a_silent_replica_that_nothing_waits_for_stays(tmp_path: Path) -> None:
    async with Cluster(tmp_path, backup_timeout=10.0) as cluster:
        a, b = await cluster.pair()
        b.pause()
        assert [replica["phase"] for replica in (await a.status()).facts["replication"]["replicas"]] == [
            "ready"
        ]
        b.resume()
        await send(a, "orders", "one")
        assert (await a.status()).generation == 1


@pytest.mark.slow
async def test_one_of_three_that_is_silent_is_dropped_and_the_other_stays_eligible(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ("a", "b", "c"), backup_timeout=1.0) as cluster:
        a, b = await cluster.pair()
        c = cluster.members[2]
        await c.start()
        await c.until("ready")
        c.pause()
        await send(a, "orders", *range(10))
        await b.until(lambda status: status.generation == 2 and depth(status, "orders") == 10)
        await a.kill()
        await b.promote()
        assert await bodies(b, "orders") == list(range(10))
        c.resume()
        await c.until("ready")
