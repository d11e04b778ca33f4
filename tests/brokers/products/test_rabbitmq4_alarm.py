"""RabbitMQ 4 in a memory alarm: a send that gives up stores no copy, and the alarm is reported."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from haclient import aio
from haclient.errors import ReceiveTimeout, SendTimeout
from haclient.events import Blocked, Unblocked
from tests.brokers.products import installed, rabbitmq4
from tests.interop.rabbitmq import Node, RabbitMQ
from tests.peers.watch import Watch

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(rabbitmq4.missing()), reason=rabbitmq4.missing() or "it is there"),
]
_ALARM_SECONDS = 15.0
_RATE = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    with RabbitMQ(1, root=installed.DEBIAN_13) as broker:
        (node,) = broker.nodes
        queue = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False}
        definitions = node.folder / "queue.json"
        definitions.write_text(json.dumps({"queues": [queue | {"arguments": {"x-queue-type": "quorum"}}]}))
        node.control("import_definitions", str(definitions))
        yield broker


async def _retried(sender: aio.Sender, body: int) -> int:
    """Send as docs/producing.md recommends. Return the number of failed tries; -1 if one may have arrived."""
    failed = 0
    while True:
        try:
            await sender.send(body, timeout=1.0)
        except SendTimeout as error:
            if error.delivered is None:
                return -1
            failed += 1
        else:
            return failed


async def _alarm(node: Node, seconds: float) -> None:
    await asyncio.to_thread(node.control, "set_vm_memory_high_watermark", "0.000001")
    await asyncio.sleep(seconds)
    await asyncio.to_thread(node.control, "set_vm_memory_high_watermark", "0.6")


async def _receive_all(connection: aio.Connection) -> Counter[object]:
    got: Counter[object] = Counter()
    receiver = await connection.create_receiver("/queues/q")
    while True:
        try:
            delivery = await receiver.receive(timeout=3)
        except ReceiveTimeout:
            return got
        got[delivery.message.body] += 1
        await delivery.accept()


async def test_the_documented_retry_makes_no_copy(broker: RabbitMQ) -> None:
    watch, tries = Watch(), list[asyncio.Future[int]]()
    async with await aio.connect(broker.url, on_event=watch) as connection:
        sender = await connection.create_sender("/queues/q")
        alarm = asyncio.ensure_future(_alarm(broker.nodes[0], _ALARM_SECONDS))
        while not alarm.done():
            tries.append(asyncio.ensure_future(_retried(sender, len(tries))))
            await asyncio.sleep(1 / _RATE)
        await alarm
        failed = await asyncio.gather(*tries)
        assert any(each > 0 for each in failed)
        (unblocked,) = await watch.until(Unblocked)
        assert len(watch.of(Blocked)) == 1
        assert unblocked.duration == pytest.approx(_ALARM_SECONDS, abs=5)
        got = await _receive_all(connection)
    sure = [number for number, each in enumerate(failed) if each >= 0]
    assert {number: got[number] for number in sure} == dict.fromkeys(sure, 1)
