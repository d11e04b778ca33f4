"""Addresses of RabbitMQ 4: a queue's path, or its bare name if the link asks for a queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from haclient import aio
from haclient.errors import LinkRefused
from tests.brokers.products import rabbitmq4
from tests.brokers.products.one_node import OneNode, one_node

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(bool(rabbitmq4.missing()), reason=rabbitmq4.missing()),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[OneNode]:
    with one_node() as broker:
        yield broker


async def test_a_link_that_asks_for_a_queue_gets_the_one_of_that_name(broker: OneNode) -> None:
    name = broker.declare("quorum")
    async with await aio.connect(broker.url) as connection:
        sender = await connection.create_sender(name, capabilities=("queue",))
        assert (await sender.send("one", timeout=30)).accepted
        assert (await sender.send("two", timeout=30)).accepted
        for how in ({"capabilities": ("queue",)}, {}):
            receiver = await connection.create_receiver(
                name if how else rabbitmq4.address(name), credit=1, **how
            )
            delivery = await receiver.receive(timeout=30)
            await delivery.accept()
            assert delivery.body in {"one", "two"}
            await receiver.close()


async def test_a_queue_that_is_not_declared_is_refused_by_its_name(broker: OneNode) -> None:
    async with await aio.connect(broker.url) as connection:
        for create in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkRefused, match="no queue 'not declared/ü' in vhost '/'"):
                await create("not declared/ü", capabilities=("queue",))
