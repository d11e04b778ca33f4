"""Deliveries that can no longer be settled say why, over both APIs."""

from __future__ import annotations

import pytest
from proton import Condition

from haclient.errors import AlreadySettled, LinkClosed, StaleDelivery
from tests.peers import primary
from tests.peers.apis import API, connected


@pytest.mark.parametrize("settle", ["accept", "reject", "release", "modify"])
@pytest.mark.parametrize("end", ["close", "detach"])
async def test_of_a_receiver_that_was_closed(api: API, settle: str, end: str) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        delivery = await receiver.receive(timeout=5)
        await getattr(receiver, end)()
        with pytest.raises(StaleDelivery) as caught:
            await getattr(delivery, settle)()
        assert str(caught.value) == "the receiver for 'q' was closed; the primary delivers its message again"
        await peer.until(lambda: len(peer.queues["q"]) == 1)


async def test_of_a_connection_that_was_closed(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        delivery = await receiver.receive(timeout=5)
        await connection.close()
        with pytest.raises(
            StaleDelivery, match="the connection is closed; the primary delivers its message again"
        ):
            await delivery.accept()


async def test_of_a_connection_that_was_lost(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        delivery = await receiver.receive(timeout=5)
        peer.drop()
        again = await receiver.receive(timeout=5)
        with pytest.raises(
            StaleDelivery, match="connection was lost; the new primary delivers its message again"
        ):
            await delivery.accept()
        await again.accept()
        with pytest.raises(AlreadySettled):
            await again.accept()


async def test_of_a_receiver_that_the_peer_detached(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        delivery = await receiver.receive(timeout=5)
        peer.detach(Condition("amqp:resource-deleted", "the queue is deleted"))
        with pytest.raises(LinkClosed):
            await receiver.receive(timeout=5)
        with pytest.raises(StaleDelivery, match="amqp:resource-deleted: the queue is deleted"):
            await delivery.accept()
