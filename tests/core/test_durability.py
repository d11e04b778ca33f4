"""The durable flag of messages, and the ids of non-durable messages that let a broker drop copies.

The peer here keeps ids over a failover and forgets messages that are not durable, as Apache ActiveMQ Artemis
does: it accepts and drops a copy with a known id.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler

from haclient.errors import SendTimeout
from haclient.outcome import ACCEPTED
from haclient.reactor import Container
from tests.members import Members
from tests.peers import Primary, primary, url
from tests.peers.apis import API, connected

ID = "_AMQ_DUPL_ID"
# A property in the Open of our own cluster's members.
TOGETHER = {"haclient:ids-live-with-messages": True}
FAST: dict[str, Any] = {"backoff_base": 0.001, "backoff_max": 0.01}
PATIENCE = 20.0
BODIES = list(range(20))


def arrived(peer: Primary) -> list[Message]:
    """Return the received messages, as proton decodes them."""
    messages = []
    for data in peer.received:
        messages.append(Message())
        messages[-1].decode(data)
    return messages


def id_of(message: Message) -> Any:
    return (message.properties or {}).get(ID)


def die(peer: Primary) -> None:
    """Settle no more messages, forget non-durable ones, and serve again with all ids."""
    kept = [message.durable for message in arrived(peer)]
    peer.received[:] = itertools.compress(peer.received, kept)
    peer.outcome = ACCEPTED
    peer.drop()


def message_of(kind: str, *, durable: bool) -> Message:
    """Make a message for one path of the encoder: with or without a header, by haclient or by proton."""
    message = Message(body="text" if kind.startswith("plain") else {"a": "map"}, durable=durable)
    if kind.endswith("header"):
        message.priority, message.ttl, message.subject = 7, 60.0, "of it"
    return message


@pytest.mark.parametrize("kind", ["plain", "plain_header", "any", "any_header"])
@pytest.mark.parametrize("sender_says", [None, True, False])
@pytest.mark.parametrize("send_says", [None, True, False])
async def test_the_send_decides_and_else_the_sender_and_never_the_message(
    api: API, kind: str, *, sender_says: bool | None, send_says: bool | None
) -> None:
    expected = send_says if send_says is not None else sender_says is not False
    arguments = {} if sender_says is None else {"durable": sender_says}
    async with primary(properties={}) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", **arguments)
        for own in (True, False):
            message = message_of(kind, durable=own)
            await sender.send(message, durable=send_says)
            await (await sender.submit(message, durable=send_says))
            assert message.durable is own, "the application's message is not changed"
        assert [message.durable for message in arrived(peer)] == [expected] * 4
        like = message_of(kind, durable=expected)
        for message in arrived(peer):
            assert (message.body, message.priority, message.ttl) == (like.body, like.priority, like.ttl)
            assert message.subject == like.subject
            assert (id_of(message) is not None) is expected


@pytest.mark.parametrize("durable", [True, False])
async def test_a_failover_of_a_broker_that_keeps_ids_longer_than_messages_loses_none(
    api: API, *, durable: bool
) -> None:
    async with primary(outcome=None, properties={}) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", durable=durable)
        futures = [await sender.submit(Message(body=body)) for body in BODIES]
        await peer.until(lambda: len(peer.received) == len(BODIES))
        die(peer)
        await asyncio.wait_for(asyncio.gather(*futures), PATIENCE)
        assert peer.bodies == BODIES


async def test_where_ids_live_with_messages_what_is_not_durable_has_ids_too(api: API) -> None:
    async with primary(outcome=None, properties=TOGETHER) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", durable=False)
        futures = [await sender.submit(Message(body=body)) for body in BODIES]
        await peer.until(lambda: len(peer.received) == len(BODIES))
        peer.outcome = ACCEPTED
        peer.drop()
        await asyncio.wait_for(asyncio.gather(*futures), PATIENCE)
        assert (peer.bodies, peer.copies) == (BODIES, len(BODIES))
        assert not any(message.durable for message in arrived(peer))


@pytest.mark.parametrize("value", [None, False, 1, "true", [True], {"a": True}], ids=repr)
async def test_only_true_says_that_ids_live_with_messages(api: API, value: Any) -> None:
    properties = {"haclient:ids-live-with-messages": value}
    async with primary(properties=properties) as peer, connected(api, peer) as connection:
        await (await connection.create_sender("q", durable=False)).send(Message(body="one"))
        assert [id_of(message) for message in arrived(peer)] == [None]


async def test_after_a_failover_the_new_primary_is_the_one_that_says_it(api: API) -> None:
    async with primary(properties=TOGETHER) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", durable=False)
        for properties in (TOGETHER, {}, TOGETHER):
            peer.properties = properties
            peer.drop()
            for _ in range(2):  # the first may be encoded before the new connection
                await sender.send(Message())
            assert (id_of(arrived(peer)[-1]) is not None) is (properties == TOGETHER)


async def test_an_id_that_the_application_chose_is_sent_with_every_message(api: API) -> None:
    async with primary(outcome=None, properties={}) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", durable=False)
        for message, duplicate_id in ((Message(), "mine"), (Message(properties={ID: "own"}), None)):
            with pytest.raises(SendTimeout) as caught:
                await sender.send(message, timeout=0.1, duplicate_id=duplicate_id)
            assert caught.value.duplicate_id == (duplicate_id or "own")
        with pytest.raises(SendTimeout) as caught:
            await sender.send(Message(), timeout=0.1)
        assert caught.value.duplicate_id is None, "there is none to repeat it by"
        assert [id_of(message) for message in arrived(peer)] == ["mine", "own", None]


async def test_a_member_of_our_cluster_says_it(api: API, members: Members) -> None:
    broker = members.start("alone", role="primary")
    connection = await api.connect(f"amqp://{broker.address}")
    sender = await connection.create_sender("q", durable=False)
    await sender.send(Message(body="one"))
    delivery = await (await connection.create_receiver("q")).receive(timeout=PATIENCE)
    assert not delivery.message.durable
    assert ID.encode() in delivery.data
    await connection.close()


# -- the drop-in ------------------------------------------------------------------------------


class Sending(MessagingHandler):
    """Sends all its messages: at the start, before the connection, or with the first credit."""

    def __init__(self, address: str, messages: list[Message], *, at_start: bool) -> None:
        super().__init__()
        self.address, self.messages, self.at_start = address, messages, at_start
        self.accepted = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.address, **FAST)
        sender = event.container.create_sender(connection, "q")
        if self.at_start:
            self.send(sender)

    def on_sendable(self, event: Any) -> None:
        if not self.at_start:
            self.at_start = True
            self.send(event.sender)

    def send(self, sender: Any) -> None:
        self.sent = [sender.send(message) for message in self.messages]

    def on_accepted(self, event: Any) -> None:
        assert event.delivery is self.sent[self.accepted]
        self.accepted += 1
        if self.accepted == len(self.messages):
            event.connection.close()


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("together", [True, False])
async def test_the_drop_in_changes_no_flag_and_loses_nothing(*, at_start: bool, together: bool) -> None:
    """Messages sent before the primary is known have the ids that this primary needs."""
    messages = [Message(body=body, durable=body % 2 == 0) for body in BODIES]
    async with primary(outcome=None, properties=TOGETHER if together else {}) as peer:
        handler = Sending(url(peer), messages, at_start=at_start)
        async with asyncio.timeout(PATIENCE):
            running = asyncio.ensure_future(Container(handler).run_async())
            await peer.until(lambda: len(peer.received) == len(BODIES))
            for message, got in zip(messages, arrived(peer), strict=True):
                assert message.durable is got.durable is (message.body % 2 == 0)
                assert (id_of(got) is not None) is (together or got.durable)
            if together:
                peer.outcome = ACCEPTED
                peer.drop()
            else:
                die(peer)
            await running
        assert sorted(peer.bodies) == BODIES
        assert peer.copies == (len(BODIES) if together else len(BODIES) // 2)
