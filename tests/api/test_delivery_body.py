"""``Delivery.body`` is the body of its message."""

from __future__ import annotations

from tests.peers import primary, url
from tests.peers.apis import API


async def test_a_delivery_has_the_body_of_its_message(api: API) -> None:
    bodies = ["text", b"data", 7, {"a": [1, None]}]
    async with primary() as peer:
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q")
        peer.put("q", *bodies)
        deliveries = [await receiver.receive(timeout=10) for _ in bodies]
        assert [delivery.body for delivery in deliveries] == bodies
        assert [delivery.message.body for delivery in deliveries] == bodies
        await connection.close()
