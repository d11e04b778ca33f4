"""``no-local``: a receiver that excludes messages of its own container, with proton's client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Described, Message, symbol, ulong
from proton.utils import BlockingConnection

from broker_stub.connections.filters import NO_LOCAL
from broker_stub.queueing.exchanges import ExchangeType
from tests.broker_stub.attach_options import DURABLE, Filter, value
from tests.broker_stub.clients import blocking, running


@pytest.mark.parametrize("descriptor", [symbol(NO_LOCAL[0]), ulong(NO_LOCAL[1])])
@pytest.mark.parametrize("address", ["q", "news"])
async def test_a_receiver_gets_nothing_of_its_own_container(address: str, descriptor: Any) -> None:
    asked = {"no-local": Described(descriptor, [])}

    def send(connection: BlockingConnection, body: str) -> None:
        sender = connection.create_sender(address, name=body)
        sender.send(Message(body=body))
        sender.close()

    def use(connection: BlockingConnection) -> None:
        options = [Filter(asked), *([DURABLE] if address == "news" else [])]
        receiver = connection.create_receiver(address, credit=10, name="mine", options=options)
        assert value(receiver.link.remote_source.filter) == asked
        everything = connection.create_receiver(address, credit=1, name="all") if address == "news" else None
        send(connection, "mine")
        other = blocking(broker, lambda connection: send(connection, "other's"), container_id="other")
        asyncio.run_coroutine_threadsafe(other, loop).result(20)
        assert receiver.receive(timeout=10).body == "other's"
        if everything is not None:
            assert everything.receive(timeout=10).body == "mine"

    async with running() as broker:
        loop = asyncio.get_running_loop()
        broker.addresses.declare_exchange("news", ExchangeType.FANOUT)
        await blocking(broker, use, container_id="me")
