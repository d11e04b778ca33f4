"""Delays as proton's own client sees them."""

from __future__ import annotations

import time

import proton
from proton import Message
from proton.utils import BlockingConnection

from tests.broker_stub.clients import blocking, running


async def test_a_delayed_message_comes_after_its_delay_and_holds_up_nobody() -> None:
    def use(connection: BlockingConnection) -> list[tuple[str, bool]]:
        sender = connection.create_sender("orders")
        annotations = {proton.symbol("x-opt-delivery-delay"): 400}
        begin = time.monotonic()
        sender.send(Message(body="late", annotations=annotations))
        sender.send(Message(body="now"))
        receiver = connection.create_receiver("orders", credit=2)
        found = []
        for _ in range(2):
            body = receiver.receive(timeout=10).body
            found.append((body, time.monotonic() - begin >= 0.4))
            receiver.accept()
        return found

    async with running() as broker:
        [(first, _), last] = await blocking(broker, use)
        assert (first, last) == ("now", ("late", True))
