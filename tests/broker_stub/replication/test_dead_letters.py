"""Dead letters, and the failure counts of messages, outlive their primary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker_stub.amqp.node_names import QUEUE_TYPE
from haclient import aio
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, depth, send, take

OPTIONS = {"x-max-delivery-count": 2, "x-dead-letter-address": "dead"}


def reason_of(message: Any) -> tuple[Any, str]:
    found = {str(key): value for key, value in message.annotations.items()}
    return message.body, found["x-opt-dead-letter-reason"]


async def test_dead_letters_and_counts_survive_a_failover(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await a.call("CREATE", kind=QUEUE_TYPE, name="orders", **OPTIONS)
        await send(a, "orders", "bad", "in flight", "good")
        async with aio.connect(a.url) as connection:
            receiver = await connection.create_receiver("orders", credit=2)
            bad, _ = [await receiver.receive(timeout=PATIENCE) for _ in range(2)]
            await bad.reject()
            await a.until(lambda status: (depth(status, "orders"), depth(status, "dead")) == (2, 1))
            await b.until(lambda status: (depth(status, "orders"), depth(status, "dead")) == (2, 1))
            await a.kill()
        await b.promote()
        async with aio.connect(b.url) as connection:
            receiver = await connection.create_receiver("orders", credit=1)
            again = await receiver.receive(timeout=PATIENCE)
            assert (again.message.body, again.message.delivery_count) == ("in flight", 1)
            await again.modify(delivery_failed=True)
            assert (await receiver.receive(timeout=PATIENCE)).message.body == "good"
        assert [reason_of(message) for message in await take(b, "dead")] == [
            ("bad", "rejected"),
            ("in flight", "max-delivery-count"),
        ]


async def test_options_come_back_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, _ = await cluster.pair()
        made = await a.call("CREATE", kind=QUEUE_TYPE, name="orders", **OPTIONS)
        assert (made["max_delivery_count"], made["dead_letter_address"]) == (2, "dead")
        await a.stop()
        await a.start()
        status = await a.status()
        [facts] = [queue for queue in status.facts["queues"] if queue["name"] == "orders"]
        assert (facts["max_delivery_count"], facts["dead_letter_address"]) == (2, "dead")
