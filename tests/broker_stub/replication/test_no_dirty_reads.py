"""A message received from a pair survives a failover, and is delivered once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_stub.queueing.options import DELIVER
from haclient import aio
from tests.broker_stub.clients import Client
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, depth
from tests.broker_stub.replication.test_paused_primary import send_unsettled


async def test_nobody_gets_what_a_stopped_backup_has_not_and_everybody_when_it_has(tmp_path: Path) -> None:
    async with Cluster(tmp_path, backup_timeout=60.0) as cluster:
        a, b = await cluster.pair()
        await a.call("CREATE", kind="haclient.queue", name="early", **{DELIVER: "early"})
        client = await Client().connect(a.address)
        links = [await client.attach("sender", name, name) for name in ("orders", "early")]
        b.pause()
        for link in links:
            send_unsettled(link, 5)
        status = await a.until(lambda status: depth(status, "early") == 5)
        held = {queue["name"]: queue["held"] for queue in status.facts["queues"] if not queue["temporary"]}
        assert held == {"orders": 5, "early": 0}
        async with asyncio.timeout(PATIENCE), aio.connect(a.url) as connection:
            early = await connection.create_receiver("early", credit=5)
            assert len([await early.receive() for _ in range(5)]) == 5
            waiting = await connection.create_receiver("orders", credit=0)
            browsing = await connection.create_receiver("orders", credit=0, browse=True)
            for receiver in (waiting, browsing):
                await receiver.add_credit(5)
                await receiver.drain()
                assert await receiver.receive_many(5, timeout=0) == []
            assert client.outcomes.empty()
            b.resume()
            for receiver in (browsing, waiting):
                await receiver.add_credit(5)
                got = [(await receiver.receive()).message.body for _ in range(5)]
                assert got == [f"tail {number}" for number in range(5)]
            assert all([(await client.outcomes.get()).accepted for _ in range(10)])


@pytest.mark.slow
async def test_what_is_sent_again_after_a_failover_was_received_by_nobody_before(tmp_path: Path) -> None:
    """The backup lacks it when the primary dies: the producer sends it to the next primary."""
    async with Cluster(tmp_path, backup_timeout=60.0) as cluster:
        a, b = await cluster.pair()
        async with asyncio.timeout(2 * PATIENCE), aio.connect(cluster.url) as connection:
            sender = await connection.create_sender("orders")
            await sender.send(Message(body=0))
            # Confirmed, or the backup might die before its disk has the dequeue.
            async with await connection.create_receiver("orders", confirm=True) as first:
                await (await first.receive()).accept(confirm=True)
            receiver = await connection.create_receiver("orders", credit=100)
            b.pause()
            sent = [await sender.submit(Message(body=number)) for number in range(1, 21)]
            await a.until(lambda status: depth(status, "orders") == 20)
            accepted: Counter[Any] = Counter()

            async def consume() -> None:
                while accepted[20] == 0:
                    delivery = await receiver.receive()
                    await delivery.accept()
                    accepted[delivery.message.body] += 1

            consumer = asyncio.create_task(consume())
            await a.kill()
            await b.kill()  # with the events in its socket
            await b.start()
            await b.promote()
            await asyncio.gather(*sent)
            await consumer
            assert list(accepted) == list(range(1, 21)), "not in order"
            assert set(accepted.values()) == {1}, "accepted twice"
