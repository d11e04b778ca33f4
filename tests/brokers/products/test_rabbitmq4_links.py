"""Many links and refused links on RabbitMQ 4: handle-max 255, channel-max 63, an End for a refusal."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from haclient import Message, aio
from haclient.errors import LinkRefused
from haclient.events import Disconnected, Event
from tests.brokers.products import installed, rabbitmq4
from tests.brokers.products.rabbitmq4 import address
from tests.interop.rabbitmq import Node, RabbitMQ

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(rabbitmq4.missing()), reason=rabbitmq4.missing() or "it is there"),
]
_QUEUES = [
    {"name": name, "vhost": "/", "durable": True, "auto_delete": name == "auto", "arguments": {}}
    for name in ("q", "refusals", "auto")
]


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    with RabbitMQ(root=installed.DEBIAN_13) as broker:
        definitions = broker.nodes[0].folder.parent / "queues.json"
        definitions.write_text(json.dumps({"queues": _QUEUES}))
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


async def test_ten_refusals_beside_a_pipelining_sender_cost_it_nothing(broker: RabbitMQ) -> None:
    """Each refusal used to end the session of all links, and so the connection. Then 5,000 messages were
    stored 6,310 times.
    """
    seen = Seen()
    async with aio.connect(broker.url, on_event=seen) as connection:
        sender = await connection.create_sender(address("refusals"))

        async def send() -> None:
            for first in range(0, 5000, 500):
                await sender.send_many([Message(body=number) for number in range(first, first + 500)])

        sending = asyncio.ensure_future(send())
        for number in range(5):
            with pytest.raises(LinkRefused, match=r"no queue 'none'.*; declare the queue or exchange first"):
                await connection.create_sender(address("none"))
            with pytest.raises(LinkRefused, match=r"no queue 'none'.*; declare the queue or exchange first"):
                await connection.create_receiver(address("none"), name=f"r{number}")
        await sending
    assert seen.losses == 0
    assert await _depth(broker, "refusals") == 5000


async def test_a_hundred_new_senders_and_as_many_refusals_at_once(broker: RabbitMQ) -> None:
    seen = Seen()
    async with aio.connect(broker.url, on_event=seen) as connection:
        made = await asyncio.gather(
            *(connection.create_sender(address("none" if number % 2 else "q")) for number in range(200)),
            return_exceptions=True,
        )
        senders = [each for each in made if isinstance(each, aio.Sender)]
        assert [type(each) for each in made if isinstance(each, BaseException)] == [LinkRefused] * 100
        assert all(
            outcome.accepted for outcome in await asyncio.gather(*(each.send(b"x") for each in senders))
        )
    assert seen.losses == 0


async def test_a_new_receiver_is_attached_once_so_that_an_auto_delete_queue_stays(broker: RabbitMQ) -> None:
    """The first receiver that detaches from the queue would delete it, with its message."""
    async with aio.connect(broker.url) as connection:
        for _ in range(40):
            await connection.create_receiver(address("q"), credit=0)  # no session is left for trials
        await (await connection.create_sender(address("auto"))).send(Message(body="kept"))
        receiver = await connection.create_receiver(address("auto"))
        assert (await receiver.receive(timeout=10)).message.body == "kept"


async def _depth(broker: RabbitMQ, queue: str) -> int:
    rows = await asyncio.to_thread(broker.nodes[0].control, "list_queues", "name", "messages")
    return int(dict(row.split("\t") for row in rows.splitlines())[queue])


def _close_all(node: Node) -> None:
    node.control("close_all_connections", "an operator closes all")
