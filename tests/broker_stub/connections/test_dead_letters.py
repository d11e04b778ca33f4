"""Dead letters as proton's own client sees them."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from proton import Delivery, Message
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached

from broker_stub.queueing.options import QueueOptions
from tests.broker_stub.clients import Client, blocking, queue_status, running


class NodeProperties(LinkOption):
    """Sets dynamic node properties of a target."""

    def __init__(self, **properties: Any) -> None:
        self.properties = {proton.symbol(name.replace("_", "-")): value for name, value in properties.items()}

    def apply(self, link: proton.Link) -> None:
        link.target.properties.put_dict(self.properties)


async def test_a_queue_made_at_attach_moves_what_is_rejected_and_what_fails_too_often() -> None:
    def use(connection: BlockingConnection) -> list[tuple[Any, str]]:
        options = NodeProperties(x_max_delivery_count=2, x_dead_letter_address="dead")
        sender = connection.create_sender("orders", options=options)
        for body in ("poison", "bad", "good"):
            sender.send(Message(body=body))
        receiver = connection.create_receiver("orders", credit=1)
        counts = []
        for _ in range(4):
            message = receiver.receive(timeout=5)
            counts.append((message.body, message.delivery_count))
            if message.body == "poison":
                receiver.fetcher.unsettled[0].local.failed = True
                receiver.settle(Delivery.MODIFIED)
            else:
                receiver.settle(Delivery.REJECTED if message.body == "bad" else Delivery.ACCEPTED)
        assert sorted(counts) == [("bad", 0), ("good", 0), ("poison", 0), ("poison", 1)]
        dead = connection.create_receiver("dead", credit=2)
        found = []
        for _ in range(2):
            message = dead.receive(timeout=5)
            found.append((message.body, message.annotations[proton.symbol("x-opt-dead-letter-reason")]))
            dead.settle(Delivery.ACCEPTED)
        return sorted(found)

    async with running() as broker:
        assert await blocking(broker, use) == [("bad", "rejected"), ("poison", "max-delivery-count")]
        assert [queue["depth"] for queue in queue_status(broker)] == [0, 0]


@pytest.mark.parametrize("options", [{"x_max_delivery_count": -3}, {"x_max_delivery_cuont": 3}])
async def test_an_option_that_is_wrong_or_unknown_is_refused_at_attach(options: dict[str, int]) -> None:
    def use(connection: BlockingConnection) -> str:
        with pytest.raises(LinkDetached) as caught:
            connection.create_sender("orders", options=NodeProperties(**options))
        return str(caught.value.condition)

    async with running() as broker:
        assert "amqp:invalid-field" in await blocking(broker, use)
        assert queue_status(broker) == []


async def test_what_is_rejected_without_a_dead_letter_address_is_gone() -> None:
    def use(connection: BlockingConnection) -> None:
        connection.create_sender("orders").send(Message(body="x"))
        receiver = connection.create_receiver("orders", credit=1)
        receiver.receive(timeout=5)
        receiver.reject()
        connection.create_receiver("other").close()  # processed after the rejection

    async with running() as broker:
        broker.addresses.declare("orders", options=QueueOptions(max_delivery_count=1))
        await blocking(broker, use)
        assert [queue["depth"] for queue in queue_status(broker)] == [0, 0]


async def test_a_message_of_a_client_is_no_dead_letter_whatever_it_says() -> None:
    """Backups would use its id as the message's own, and take a real dead letter with that id for a copy."""
    async with running() as broker:
        client = await Client().connect(broker.address)
        annotations = {proton.symbol("x-opt-dead-letter-id"): "q:1", proton.symbol("x-mine"): "other text"}
        message = proton.Message(body="x-opt-dead-letter-id", annotations=annotations)
        await client.send(await client.attach("sender", "s", "q"), message)
        (await client.attach("receiver", "r", "q")).grant(1)
        got = await client.receive()
        assert (got.annotations, got.body) == ({"x-mine": "other text"}, "x-opt-dead-letter-id")
        await client.close()
