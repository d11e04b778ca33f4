"""Messages that a consumer held when its primary died, and expired ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from haclient import aio
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, depth, send, stop_equal, take


async def test_acquired_and_unsettled_messages_come_again_with_the_delivery_count_up(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *range(5))
        async with asyncio.timeout(PATIENCE), aio.connect(cluster.url) as connection:
            receiver = await connection.create_receiver("orders", credit=3)
            held = [await receiver.receive() for _ in range(3)]
            assert [delivery.message.delivery_count for delivery in held] == [0, 0, 0]
            await held[1].accept()
            await b.until(lambda status: depth(status, "orders") == 4)
            await a.kill()
            await b.promote()
            again = [await receiver.receive() for _ in range(2)]
            assert [delivery.message.body for delivery in again] == [0, 2]
            assert [delivery.message.delivery_count for delivery in again] == [1, 1]
        await send(b, "orders", "new")
        assert [m.delivery_count for m in await take(b, "orders") if m.body == "new"] == [0]


@pytest.mark.slow
async def test_the_count_goes_on_over_several_failovers_and_restarts(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        primary, other = await cluster.pair()
        await send(primary, "orders", "held")
        for count in range(4):
            await send(primary, "orders", "accepted")
            async with aio.connect(primary.url) as connection:
                receiver = await connection.create_receiver("orders", credit=2)
                held, marker = [await receiver.receive(timeout=PATIENCE) for _ in range(2)]
                assert (held.message.body, held.message.delivery_count) == ("held", count)
                await marker.accept()
                # Acquisitions are sent before the dequeues of the same iteration.
                await other.until(lambda status: depth(status, "orders") == 1)
                await primary.kill()
            await other.promote()
            await primary.start()
            await primary.until("ready")
            primary, other = other, primary
        content = await stop_equal(primary, other)
        assert [count for _, _, count in content["orders"]] == [4]


@pytest.mark.slow
async def test_a_backup_that_comes_while_a_message_is_acquired_counts_that_delivery(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "held", "released")
        await b.stop()
        async with aio.connect(a.url) as connection:
            receiver = await connection.create_receiver("orders", credit=2)
            for _ in range(2):
                await receiver.receive(timeout=PATIENCE)
            await receiver.close()
            receiver = await connection.create_receiver("orders", credit=2)
            held, _ = [await receiver.receive(timeout=PATIENCE) for _ in range(2)]
            assert held.message.body == "held"
            await b.start()
            await b.until("ready")
            await a.kill()
        await b.promote()
        assert [message.delivery_count for message in await take(b, "orders")] == [2, 2]


@pytest.mark.slow
async def test_expired_messages_are_not_delivered_after_a_failover(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "old", ttl=2.0)
        await send(a, "orders", "young", ttl=3600.0)
        await send(a, "orders", "for ever")
        await send(a, "acquired", "old", ttl=2.0)
        async with aio.connect(a.url) as connection:
            receiver = await connection.create_receiver("acquired", credit=1)
            await receiver.receive(timeout=PATIENCE)
            await a.kill()
        await b.promote()
        await b.until(lambda status: (depth(status, "orders"), depth(status, "acquired")) == (2, 0))
        assert [(m.body, m.ttl > 0) for m in await take(b, "orders")] == [
            ("young", True),
            ("for ever", False),
        ]


async def test_a_backup_that_catches_up_does_not_get_what_has_expired(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await b.stop()
        await send(a, "orders", "old", ttl=0.5)
        await send(a, "orders", "for ever")
        await a.until(lambda status: depth(status, "orders") == 1)
        await b.start()
        await b.until("ready")
        assert await b.depth("orders") == 1
