"""Priorities as proton's own client sees them."""

from __future__ import annotations

from proton import Message
from proton.utils import BlockingConnection

from tests.broker_stub.clients import blocking, running


async def test_a_higher_priority_comes_first_and_equal_ones_in_the_order_they_came_in() -> None:
    priorities = [4, 0, 9, 4, 200, 7, 0, 9]

    def use(connection: BlockingConnection) -> list[tuple[int, int]]:
        sender = connection.create_sender("orders")
        for number, priority in enumerate(priorities):
            sender.send(Message(body=number, priority=priority))
        receiver = connection.create_receiver("orders", credit=1)
        found = []
        for _ in priorities:
            message = receiver.receive(timeout=5)
            found.append((message.body, message.priority))
            receiver.accept()
        return found

    async with running() as broker:
        found = await blocking(broker, use)
    # There are ten levels: AMQP 1.0 part 3, section 3.2.1; higher values count as the highest.
    assert found == [(2, 9), (4, 200), (7, 9), (5, 7), (0, 4), (3, 4), (1, 0), (6, 0)]
