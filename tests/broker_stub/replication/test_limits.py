"""Values at the edge, and more of something than a frame can say."""

from __future__ import annotations

import asyncio
from pathlib import Path

from proton import Message

from haclient import aio
from tests.broker_stub.clients import Client
from tests.broker_stub.replication.cluster import Cluster, bodies, depth, send

HELD = 9000


async def test_a_message_that_expires_at_the_end_of_time_is_kept(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "orders")
        message = Message(body="X")
        message.expiry_time = (2**63 - 1) / 1000 - 2  # a float cannot say the very last millisecond
        data = bytes(message.encode())
        at = data.index(b"\x83\x7f") + 1
        link.send(data[:at] + (2**63 - 1).to_bytes(8, "big") + data[at + 8 :], None)
        async with asyncio.timeout(30):
            outcome = await client.outcomes.get()
        assert outcome.accepted
        await a.kill()
        await b.promote()
        assert await bodies(b, "orders") == ["X"]


async def test_a_backup_with_thousands_of_holes_catches_up(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", *range(HELD))
        async with aio.connect(a.url) as connection:
            receiver = await connection.create_receiver("orders", credit=HELD)
            for _ in range(HELD):
                delivery = await receiver.receive(timeout=30)
                if delivery.message.body % 2:
                    await delivery.accept()
            await a.until(lambda status: depth(status, "orders") == HELD // 2)
        await b.until(lambda status: depth(status, "orders") == HELD // 2)
        await b.kill()
        await b.start()
        await b.until("ready")
        assert await b.depth("orders") == HELD // 2
        await a.kill()
        await b.promote()
        assert sorted(await bodies(b, "orders")) == list(range(0, HELD, 2))
