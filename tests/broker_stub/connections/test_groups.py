"""Message groups as proton's own client sees them."""

from __future__ import annotations

from proton import Message
from proton.utils import BlockingConnection

from tests.broker_stub.clients import blocking, running


async def test_a_group_goes_to_one_of_two_receivers_and_to_the_other_when_that_one_closes() -> None:
    def use(connection: BlockingConnection) -> list[tuple[str, list[int]]]:
        owner, other = (connection.create_receiver("orders", credit=10, name=name) for name in "ab")
        sender = connection.create_sender("orders")
        for number in range(4):
            sender.send(Message(body=number, group_id="one"))
        first = [owner.receive(timeout=5).body for _ in range(4)]
        owner.accept()
        owner.close()
        return [("owner", first), ("other", [other.receive(timeout=5).body for _ in range(3)])]

    async with running() as broker:
        assert await blocking(broker, use) == [("owner", [0, 1, 2, 3]), ("other", [1, 2, 3])]
