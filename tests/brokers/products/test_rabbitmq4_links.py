"""Many links and refused links on RabbitMQ 4: handle-max 255, channel-max 63, an End for a refusal."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from haclient import Message, aio
from haclient.events import Disconnected, Event
from tests.brokers.products import installed, rabbitmq4
from tests.brokers.products.rabbitmq4 import address
from tests.interop.rabbitmq import Node, RabbitMQ

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(rabbitmq4.missing()), reason=rabbitmq4.missing() or "it is there"),
]
_QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    with RabbitMQ(root=installed.DEBIAN_13) as broker:
        definitions = broker.nodes[0].folder.parent / "queues.json"
        definitions.write_text(json.dumps({"queues": [_QUEUE]}))
        broker.nodes[0].control("import_definitions", str(definitions))
        yield broker


class Seen:
    """Counts the events of a connection."""

    def __init__(self) -> None:
        self.events: Counter[type[Event]] = Counter()

    def __call__(self, event: Event) -> None:
        self.events[type(event)] += 1

    @property
    def losses(self) -> int:
        return self.events[Disconnected]


async def test_a_thousand_links_on_one_connection_before_and_after_a_loss(broker: RabbitMQ) -> None:
    seen = Seen()
    async with aio.connect(broker.url, on_event=seen) as connection:
        senders = await asyncio.gather(*(connection.create_sender(address("q")) for _ in range(500)))
        receivers = await asyncio.gather(
            *(connection.create_receiver(address("q"), credit=0) for _ in range(500))
        )

        async def take(receiver: aio.Receiver) -> int:
            await receiver.add_credit(1)
            delivery = await receiver.receive(timeout=60)
            await delivery.accept()
            return int(str(delivery.message.body))

        async def through_all(first: int) -> None:
            await asyncio.gather(
                *(sender.send(Message(body=first + number)) for number, sender in enumerate(senders))
            )
            bodies = await asyncio.gather(*map(take, receivers))
            assert Counter(bodies) == Counter(range(first, first + 500))

        await through_all(0)
        assert seen.losses == 0
        await asyncio.to_thread(_close_all, broker.nodes[0])
        await through_all(500)
        assert seen.losses == 1


def _close_all(node: Node) -> None:
    node.control("close_all_connections", "an operator closes all")
