"""The texts of ``repr``: states, endpoints, addresses and counts; no password and no part of a message."""

from __future__ import annotations

import asyncio
from typing import Any

from haclient import Message
from tests.peers import primary, url
from tests.peers.apis import API

SECRET = "hunter2"


def shown(thing: Any, api: API) -> str:
    """Return the ``repr`` of the API's object, with the names of the asyncio API."""
    text = repr(getattr(thing, "inner", thing))
    return text.replace("<haclient.aio", "<haclient")


async def test_every_object_shows_its_state_and_counts(api: API) -> None:
    async with primary(grants=0) as peer:
        link = f"amqp://app:{SECRET}@{peer.address}"
        credentials: dict[str, Any] = {"credentials": (None, None), "client_id": "orders"}
        factory = await api.factory(link, **credentials)
        of = f"<haclient.ConnectionFactory orders of amqp://app:***@{peer.address}: "
        assert shown(factory, api) == f"{of}open, connections=0 unsettled=0>"
        connection = await factory.connect()
        where = f"amqp://{peer.address}"
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("r")
        future = await sender.submit(Message(body=SECRET))
        await _until_unsettled(sender)
        counts = "senders=1 receivers=1 unsettled=1"
        assert shown(connection, api) == f"<haclient.Connection orders/1: connected to {where}, {counts}>"
        assert shown(factory, api) == f"{of}open, connections=1 unsettled=1>"
        assert shown(sender, api) == "<haclient.Sender to 'q': attached, unsettled=1 window=1000>"
        assert shown(receiver, api) == "<haclient.Receiver from 'r': attached, prefetched=0>"
        if api.name == "aio":  # the tests' blocking API returns asyncio's futures
            assert shown(future, api) == "<haclient send to 'q': pending>"
        peer.grant(1)
        await asyncio.wait_for(future, 10)
        if api.name == "aio":
            assert shown(future, api) == "<haclient send to 'q': accepted>"
        peer.put("r", SECRET)
        delivery = await receiver.receive(timeout=10)
        size = len(getattr(delivery, "inner", delivery).data)
        assert shown(delivery, api) == f"<haclient.Delivery from 'r': unsettled, {size} bytes>"
        await delivery.accept()
        assert shown(delivery, api) == f"<haclient.Delivery from 'r': settled, {size} bytes>"
        await sender.close()
        await receiver.close()
        assert shown(sender, api) == "<haclient.Sender to 'q': closed, unsettled=0 window=1000>"
        assert shown(receiver, api) == "<haclient.Receiver from 'r': closed, prefetched=0>"
        await connection.close()
        assert shown(connection, api).startswith(f"<haclient.Connection orders/1: closed to {where},")
        await factory.close()
        assert shown(factory, api) == f"{of}closed, connections=0 unsettled=0>"


async def test_a_loss_shows(api: API) -> None:
    async with primary(properties={"haclient:generation": 7}) as peer:
        connection = await api.connect(url(peer, backoff_base=30, backoff_max=30), client_id="orders")
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("r")
        peer.put("r", "one")
        delivery = await receiver.receive(timeout=10)
        assert "generation=7" in shown(connection, api)
        events = connection.events()
        await connection.create_sender("q")  # a round trip: the iterator has begun
    await anext(events)
    assert "reconnecting" in shown(connection, api)
    assert "not attached" in shown(sender, api)
    assert "not attached" in shown(receiver, api)
    assert "stale" in shown(delivery, api)
    inner = getattr(events, "_events", events)
    assert shown(inner, api).startswith("<haclient events of orders/1: open, queued=")
    await connection.close()
    assert "events of orders/1: closed" in shown(inner, api)


async def _until_unsettled(sender: Any) -> None:
    async with asyncio.timeout(10):
        while not sender._core.ledger:  # noqa: ASYNC110 - a sender tells nobody
            await asyncio.sleep(0.001)
