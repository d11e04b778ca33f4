"""A received message that is forwarded is a new message: no broker takes it for a copy of the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from proton import Message, ulong
from proton.handlers import MessagingHandler

from haclient.engine.codec import Encoder
from haclient.reactor import Container
from haclient.utils import BlockingConnection
from tests.members import Members
from tests.peers import primary, url
from tests.peers.apis import API
from tests.peers.primary import Primary

# The name that Apache ActiveMQ Artemis gives it: user manual, "Duplicate Message Detection".
ID = "_AMQ_DUPL_ID"
PATIENCE = 20.0


def encoded(**fields: Any) -> bytes:
    return bytes(Message(**fields).encode())


def properties_of(data: bytes) -> dict[str, Any]:
    """Return the properties that proton reads."""
    message = Message()
    message.decode(data)
    return dict(message.properties or {})


def offer(peer: Primary, data: bytes) -> None:
    """Queue a message for receivers, as if another client had sent it."""
    peer.queues["q"].append(data)
    peer._deliver()


@asynccontextmanager
async def connected(api: API, peer: Primary, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """A sender to the peer's queue, and a receiver from it."""
    connection = await api.connect(url(peer, **options))
    try:
        yield await connection.create_sender("q"), await connection.create_receiver("q")
    finally:
        await connection.close()


async def test_a_received_message_that_is_sent_on_is_stored_again(api: API, members: Members) -> None:
    broker = members.start("alone", role="primary")
    connection = await api.connect(f"amqp://{broker.address}")
    sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
    sent = {"of": "the application"}
    await sender.send(Message(body="once more", properties=sent))
    for _ in range(3):
        delivery = await receiver.receive(timeout=PATIENCE)
        assert (delivery.message.body, delivery.message.properties) == ("once more", sent)
        assert delivery.duplicate_id is None
        assert (await sender.send(delivery.message)).accepted
        await delivery.accept()
    await connection.close()


@pytest.mark.parametrize("duplicate_id", ["order-7", "x" * 300, b"\x00\xff", ulong(7), ["odd"]], ids=type)
async def test_an_id_of_another_client_is_known_and_not_sent_again(api: API, duplicate_id: Any) -> None:
    data = encoded(body="from Artemis", properties={"n": 1, ID: duplicate_id})
    async with primary() as peer, connected(api, peer) as (sender, receiver):
        offer(peer, data)
        delivery = await receiver.receive(timeout=PATIENCE)
        assert delivery.duplicate_id == duplicate_id
        assert delivery.message.properties == {"n": 1}
        assert delivery.data == data
        for _ in range(2):
            await sender.send(delivery.message)
        first, second = (properties_of(each)[ID] for each in peer.received)
        assert first != second
        assert duplicate_id not in (first, second)
        assert peer.copies == 0


@pytest.mark.parametrize("duplicate_detection", ["true", "false"])
async def test_a_message_that_was_decoded_elsewhere_is_sent_without_its_automatic_id(
    api: API, duplicate_detection: str
) -> None:
    """Proton's own receivers keep the id in the message, and so do programs that decode ``delivery.data``."""
    async with (
        primary() as peer,
        connected(api, peer) as (sender, _),
        connected(api, peer, duplicate_detection=duplicate_detection) as (other, _),
    ):
        await sender.send(Message(body="first"))
        received = Message()
        received.decode(peer.received[0])
        seen = properties_of(peer.received[0])
        await other.send(received)
        assert peer.copies == 0
        assert [properties_of(data).get(ID) == seen[ID] for data in peer.received] == [True, False]
        assert received.properties == seen, "the application's message is not changed"


async def test_an_id_that_the_application_set_is_sent_as_it_is(api: API) -> None:
    async with primary() as peer, connected(api, peer) as (sender, receiver):
        for _ in range(2):
            await sender.send(Message(properties={ID: "mine"}))
        assert [properties_of(data) for data in peer.received] == [{ID: "mine"}]
        assert peer.copies == 1
        offer(peer, peer.received[0])
        delivery = await receiver.receive(timeout=PATIENCE)
        assert (delivery.duplicate_id, delivery.message.properties) == ("mine", None)


# -- the drop-in ------------------------------------------------------------------------------


async def test_each_api_takes_the_automatic_ids_of_the_other(api: API, members: Members) -> None:
    broker = members.start("alone", role="primary")
    connection = await api.connect(f"amqp://{broker.address}")
    sender, receiver = await connection.create_sender("ours"), await connection.create_receiver("theirs")

    def pass_on() -> None:
        with BlockingConnection(broker.address, timeout=PATIENCE) as dropin:
            fetching = dropin.create_receiver("ours")
            message = fetching.receive()
            assert (message.body, message.properties) == ("to and fro", None)
            sending = dropin.create_sender("theirs")
            sending.send(message)
            sending.send(message)
            fetching.accept()

    await sender.send(Message(body="to and fro"))
    for _ in range(2):
        await asyncio.to_thread(pass_on)
        for _ in range(2):
            delivery = await receiver.receive(timeout=PATIENCE)
            assert (delivery.message.properties, delivery.duplicate_id) == (None, None)
        assert (await sender.send(delivery.message)).accepted
    await connection.close()


class Forwarding(MessagingHandler):
    """Forwards received messages, changed or not."""

    def __init__(self, address: str, change: Callable[[Message], object], reconnect: Any) -> None:
        super().__init__()
        self.address, self.change, self.reconnect = address, change, reconnect
        self.seen: list[Any] = []
        self.accepted = 0
        self.sender: Any = None

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.address, reconnect=self.reconnect)
        self.sender = event.container.create_sender(connection, "q")
        event.container.create_receiver(connection, "q")

    def on_message(self, event: Any) -> None:
        seen = event.message.properties[ID]
        self.seen.append(bytes(seen) if isinstance(seen, memoryview) else seen)  # a view into the message
        self.change(event.message)
        for _ in range(2):
            self.sender.send(event.message)

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == 2:
            event.connection.close()


async def forwarded(
    duplicate_id: object, change: Callable[[Message], object], *, reconnect: Any = None
) -> list[Any]:
    """Return the ids of another client's message that the drop-in forwards twice."""
    data = encoded(body="from Artemis", properties={"n": 1, ID: duplicate_id})
    async with primary() as peer:
        peer.queues["q"].append(data)
        handler = Forwarding(url(peer), change, reconnect)
        async with asyncio.timeout(PATIENCE):
            await Container(handler).run_async()
        assert handler.seen == [duplicate_id]
        assert len(peer.received) + peer.copies == 2
        assert all(properties_of(each).pop("n") == 1 for each in peer.received)
        return [properties_of(each).get(ID) for each in peer.received]


@pytest.mark.parametrize("duplicate_id", ["order-7", b"\x00\xff", ulong(7)], ids=type)
async def test_the_drop_in_shows_an_id_of_another_client_and_does_not_send_it_again(
    duplicate_id: Any,
) -> None:
    ids = await forwarded(duplicate_id, lambda _: None)
    assert len(set(ids)) == 2
    assert duplicate_id not in ids


async def test_without_failover_the_drop_in_sends_a_received_message_on_without_an_id() -> None:
    assert await forwarded("order-7", lambda _: None, reconnect=False) == [None, None]


async def test_the_drop_in_sends_an_id_that_the_application_chose() -> None:
    def change(message: Message) -> None:
        properties: Any = message.properties
        properties[ID] = "order-8"

    assert await forwarded("order-7", change) == ["order-8"]


def test_encoding_changes_nothing_of_the_message_and_leaves_nothing_in_the_encoder() -> None:
    received, encoder = Message(properties={ID: "haclient:other-1", "n": 1}), Encoder()
    for duplicate_id in (None, "haclient:mine-1", None):
        expected = {"n": 1} if duplicate_id is None else {"n": 1, ID: duplicate_id}
        assert properties_of(encoder.encode(received, duplicate_id)) == expected
        assert received.properties == {ID: "haclient:other-1", "n": 1}
    assert not properties_of(encoder.encode(Message(properties={ID: "haclient:other-1"})))
