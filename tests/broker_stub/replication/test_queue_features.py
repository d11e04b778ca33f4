"""What a queue does with its messages, it does after a failover as before."""

from __future__ import annotations

from pathlib import Path

from haclient import aio
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, send, take


async def test_priorities_survive_a_failover(tmp_path: Path) -> None:
    """The backup has the messages by number, and the next primary gives them by priority."""
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        for priority in (4, 1, 8, 4, 8):
            await send(a, "orders", priority, priority=priority)
        async with aio.connect(a.url) as connection:
            receiver = await connection.create_receiver("orders", credit=1)
            assert (await receiver.receive(timeout=PATIENCE)).message.body == 8
            await a.kill()
        await b.promote()
        assert [message.body for message in await take(b, "orders")] == [8, 8, 4, 4, 1]
