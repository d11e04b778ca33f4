"""Browsing at a new primary: messages from before the failover and from after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from haclient import aio
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, send


async def test_a_browser_sees_the_messages_of_every_generation(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", 1, 2)
        await a.kill()
        await b.promote()
        await send(b, "orders", 3)
        async with asyncio.timeout(PATIENCE), aio.connect(b.url) as connection:
            browser = await connection.create_receiver("orders", browse=True)
            seen = [(await browser.receive()).message.body for _ in range(3)]
            await send(b, "orders", 4)
            seen.append((await browser.receive()).message.body)
        assert seen == [1, 2, 3, 4]
