"""Durable subscriptions outlive their primary, only for their own client."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_stub.amqp.node_names import EXCHANGE_TYPE
from haclient import aio
from haclient.errors import LinkRefused, MessageNotAccepted, ReceiveTimeout
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, send


async def test_what_a_durable_subscription_has_confirmed_does_not_come_again(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await a.call("CREATE", kind=EXCHANGE_TYPE, name="news", type="topic")
        async with aio.connect(cluster.url, client_id="me") as connection:
            receiver = await connection.subscribe("news", name="audit", durable=True, confirm=True)
            for body in range(3):
                await send(a, "news", body)
            deliveries = await receiver.receive_many(3, min_count=3, timeout=PATIENCE)
            await receiver.accept_many(deliveries[:2], confirm=True, timeout=PATIENCE)
            await a.kill()
            await b.promote()
            again = await receiver.receive(timeout=PATIENCE)
            assert again.body == 2
            await again.accept(confirm=True, timeout=PATIENCE)
            await receiver.close()
            await connection.unsubscribe("audit")


async def test_a_durable_subscription_survives_a_failover_with_what_it_selects(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await a.call("CREATE", kind=EXCHANGE_TYPE, name="news", type="topic")
        async with aio.connect(a.url, client_id="me") as connection:
            selector = "colour = 'red'"
            receiver = await connection.subscribe("news", name="audit", durable=True, selector=selector)
            await receiver.close()
        await send(a, "news", "before", properties={"colour": "red"})
        await a.kill()
        await b.promote()
        await send(b, "news", "after", properties={"colour": "red"})
        async with aio.connect(b.url, client_id="me") as connection:
            sender = await connection.create_sender("news")
            with pytest.raises(MessageNotAccepted, match="released"):  # no subscription selects it
                await sender.send("blue")
            receiver = await connection.subscribe("news", name="audit", durable=True, selector=selector)
            for body in ("before", "after"):
                delivery = await receiver.receive(timeout=PATIENCE)
                assert delivery.body == body
                await delivery.accept()
            with pytest.raises(ReceiveTimeout):
                await receiver.receive(timeout=0.1)
            await receiver.close()
            await connection.unsubscribe("audit")
            with pytest.raises(LinkRefused, match="there is no subscription"):
                await connection.unsubscribe("audit")
