"""Usual uses of senders, receivers and deliveries, over both APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import proton
import pytest

from haclient import Additions, Message, OutcomeState, OutgoingMessage, State
from haclient.engine.codec import decode
from haclient.errors import AlreadySettled, MessageNotAccepted, ReceiveTimeout, StaleDelivery
from haclient.outcome import Outcome
from tests.peers import primary, url
from tests.peers.apis import API


@asynccontextmanager
async def connected(api: API, **facts: Any) -> AsyncIterator[tuple[Any, Any]]:
    async with primary(**facts) as peer:
        connection = await api.connect(url(peer))
        try:
            yield peer, connection
        finally:
            await connection.close()


async def test_a_connection_and_its_factory_say_what_they_are(api: API) -> None:
    async with primary() as peer:
        factory = await api.factory(url(peer, client_id="me"))
        assert (factory.client_id, factory.topology) == ("me", None)
        connection = await factory.connect()
        assert connection.state is State.CONNECTED
        assert str(connection.endpoint) == str(factory.topology.primary)
        assert factory.redactor.name("me") == "me"
        await factory.close()
        assert connection.state is State.CLOSED


async def test_messages_are_sent_and_settled_in_order(api: API) -> None:
    async with connected(api) as (peer, connection):
        sender = await connection.create_sender("q")
        assert sender.address == "q"
        assert (await sender.send(Message(body=0))).accepted
        futures = [await sender.submit(Message(body=body)) for body in (1, 2)]
        await sender.flush(timeout=5)
        assert [(await future).state for future in futures] == [OutcomeState.ACCEPTED] * 2
        assert sender.unsettled == 0
        assert peer.bodies == [0, 1, 2]


async def test_a_rejected_message_raises_with_its_outcome(api: API) -> None:
    async with connected(api, outcome=Outcome(OutcomeState.REJECTED, "app:bad")) as (_, connection):
        sender = await connection.create_sender("q")
        with pytest.raises(MessageNotAccepted) as caught:
            await sender.send(Message(body=0))
        assert caught.value.outcome.condition == "app:bad"


@pytest.mark.parametrize(
    ("settle", "arguments"),
    [
        ("accept", {}),
        ("reject", {"condition": "app:bad", "description": "not a number"}),
        ("release", {}),
        ("modify", {"undeliverable_here": True}),
    ],
)
async def test_a_delivery_is_settled_once(api: API, settle: str, arguments: dict[str, Any]) -> None:
    async with connected(api) as (peer, connection):
        peer.put("q", "one")
        receiver = await connection.create_receiver("q")
        delivery = await receiver.receive(timeout=5)
        assert (delivery.message.body, delivery.settled) == ("one", False)
        await getattr(delivery, settle)(**arguments)
        assert delivery.settled
        with pytest.raises(AlreadySettled):
            await delivery.accept()


async def test_a_delivery_of_a_lost_connection_is_stale(api: API) -> None:
    async with connected(api) as (peer, connection):
        peer.put("q", "one")
        receiver = await connection.create_receiver("q")
        stale = await receiver.receive(timeout=5)
        peer.drop()
        again = await receiver.receive(timeout=5)
        assert again.data == stale.data
        with pytest.raises(StaleDelivery):
            await stale.accept()
        await again.accept()


async def test_an_empty_queue_times_out_and_the_receiver_goes_on(api: API) -> None:
    async with connected(api) as (peer, connection):
        receiver = await connection.create_receiver("q", credit=1)
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0.01)
        peer.put("q", "late")
        assert (await receiver.receive(timeout=5)).message.body == "late"


@pytest.mark.parametrize(
    "additions",
    [
        Additions(properties={"shard": 7}),
        Additions(annotations={proton.symbol("x-shard"): 7}),
        Additions({proton.symbol("x-shard"): 7}, {"shard": 7}),
        None,
    ],
)
async def test_a_hook_adds_to_what_is_sent_and_not_to_the_message(
    api: API, additions: Additions | None
) -> None:
    seen: list[OutgoingMessage] = []

    def hook(outgoing: OutgoingMessage) -> Additions | None:
        seen.append(outgoing)
        return additions

    async with connected(api) as (peer, connection):
        message = Message(body=0, properties={"own": 1})
        sender = await connection.create_sender("q", on_encode=hook)
        await sender.send(message)
        assert seen == [OutgoingMessage("q", message)]
        assert (message.properties, message.annotations) == ({"own": 1}, None)
        [received] = [decode(data) for data in peer.received]
        expected = additions or Additions()
        assert {"own": 1, **expected.properties}.items() <= received.properties.items()
        assert (received.annotations or {}) == expected.annotations


async def test_what_a_hook_raises_send_raises_and_nothing_is_sent(api: API) -> None:
    def hook(outgoing: OutgoingMessage) -> None:
        raise ValueError(f"not for {outgoing.address}")

    async with connected(api) as (peer, connection):
        sender = await connection.create_sender("q", on_encode=hook)
        with pytest.raises(ValueError, match="not for q"):
            await sender.send(Message(body=0))
        assert (sender.unsettled, peer.bodies) == (0, [])


@pytest.mark.parametrize("create", ["create_sender", "create_receiver"])
async def test_a_link_name_in_use_is_refused_and_free_again_after_close(api: API, create: str) -> None:
    """A peer takes a second link of the same name and direction for the first one, and never answers."""
    async with connected(api) as (_, connection):
        first = await getattr(connection, create)("q", name="mine")
        with pytest.raises(ValueError, match="'mine' is in use"):
            await getattr(connection, create)("other", name="mine")
        await first.close()
        await (await getattr(connection, create)("q", name="mine")).close()


@pytest.mark.parametrize("create", ["create_sender", "create_receiver"])
async def test_a_name_is_used_again_at_once_over_the_same_connection(api: API, create: str) -> None:
    """Proton writes an Attach before the Detach of the same name, which peers take for an error."""
    async with connected(api) as (peer, connection):
        (engine,) = peer.engines
        for _ in range(5):
            link = await getattr(connection, create)("q", name="mine")
            await link.close()
        assert list(peer.engines) == [engine]
        await (await getattr(connection, create)("q", name="mine")).close()


async def test_a_sender_and_a_receiver_may_have_one_name(api: API) -> None:
    async with connected(api) as (peer, connection):
        sender = await connection.create_sender("q", name="mine")
        receiver = await connection.create_receiver("q", name="mine")
        assert (await sender.send(Message(body=1))).accepted
        peer.put("q", "one")
        assert (await receiver.receive(timeout=5)).message.body == "one"


async def test_an_automatic_name_avoids_one_that_the_application_chose(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer, client_id="me"))
        taken = await connection.create_sender("q", name="me-1-1")
        assert (await (await connection.create_sender("q")).send(Message(body=1))).accepted
        await taken.close()
        await connection.close()


async def test_a_negative_credit_is_refused(api: API) -> None:
    async with connected(api) as (_, connection):
        with pytest.raises(ValueError, match="credit is 0 to 2147483647, not -1"):
            await connection.create_receiver("q", credit=-1)


async def test_a_receiver_without_credit_gets_what_configure_grants_and_no_more(api: API) -> None:
    async with connected(api) as (peer, connection):
        receiver = await connection.create_receiver("q", credit=0, configure=lambda link: link.flow(1))
        peer.put("q", "one", "two")
        assert (await receiver.receive(timeout=5)).message.body == "one"
        await (await connection.create_sender("q")).send(Message(body=0))  # a round trip
        assert max(peer.credit) == 1
        assert len(peer.queues["q"]) == 1
