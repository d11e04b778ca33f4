"""Durable and shared subscriptions: with proton's own client, and haclient."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Message, Terminus
from proton.reactor import LinkOption, Selector
from proton.utils import BlockingConnection, LinkDetached

from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import ExchangeType
from tests.broker_stub.attach_options import DURABLE, Asks, symbols, value
from tests.broker_stub.clients import blocking, running


class Null(LinkOption):
    """A source that is null."""

    def apply(self, link: Any) -> None:
        link.source.type = Terminus.UNSPECIFIED


def names(broker: Broker) -> set[str]:
    return {queue.name for queue in broker.addresses}


def publish(connection: BlockingConnection, *bodies: object, **fields: Any) -> None:
    sender = connection.create_sender("news", name="publisher")
    for body in bodies:
        sender.send(Message(body=body, **fields))
    sender.close()


def topic(broker: Broker) -> None:
    broker.addresses.declare_exchange("news", ExchangeType.FANOUT)


async def session(broker: Broker, use: Any, client: str = "me") -> Any:
    """One connection of a client, which ends without closing its links."""
    return await blocking(broker, use, container_id=client)


async def test_a_durable_subscription_has_what_came_while_its_client_was_away() -> None:
    def subscribe(connection: BlockingConnection) -> None:
        source = connection.create_receiver("news", name="audit", options=DURABLE).link.remote_source
        assert (source.durability, source.expiry_policy) == (Terminus.DELIVERIES, Terminus.EXPIRE_NEVER)
        assert source.address == "news"

    def use(connection: BlockingConnection) -> None:
        receiver = connection.create_receiver("news", credit=5, name="audit", options=DURABLE)
        assert [receiver.receive(timeout=5).body for _ in range(2)] == ["one", "two"]
        receiver.accept()
        receiver.accept()

    async with running() as broker:
        topic(broker)
        await session(broker, subscribe)
        assert names(broker) == {"subscription/me/audit"}
        await session(broker, lambda connection: publish(connection, "one", "two"), "publisher")
        await session(broker, use)
        assert names(broker) == {"subscription/me/audit"}
        assert broker.addresses.queue("subscription/me/audit").depth == 0


async def test_a_durable_subscription_ends_when_its_link_is_closed() -> None:
    def use(connection: BlockingConnection) -> None:
        connection.create_receiver("news", name="audit", options=DURABLE).close()
        assert not names(broker)

    async with running() as broker:
        topic(broker)
        await session(broker, use)


async def test_a_null_source_finds_the_subscription_to_close_it() -> None:
    def use(connection: BlockingConnection) -> None:
        connection.create_receiver("news", name="audit", options=DURABLE)

    def remove(connection: BlockingConnection) -> None:
        found = connection.create_receiver(None, name="audit", options=Null())
        assert found.link.remote_source.address == "news"
        found.close()
        assert not names(broker)
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            connection.create_receiver(None, name="audit", options=Null())

    async with running() as broker:
        topic(broker)
        await session(broker, use)
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            await session(broker, remove, "another client")
        await session(broker, remove)


async def test_another_topic_or_selector_makes_another_subscription() -> None:
    def first(connection: BlockingConnection) -> None:
        connection.create_receiver("news", name="audit", options=DURABLE)
        publish(connection, "before")

    def second(connection: BlockingConnection) -> None:
        red = [DURABLE, Selector("colour = 'red'")]
        receiver = connection.create_receiver("news", credit=5, name="audit", options=red)
        assert value(receiver.link.remote_source.filter)
        publish(connection, "red", properties={"colour": "red"})
        assert receiver.receive(timeout=5).body == "red"

    async with running() as broker:
        topic(broker)
        await session(broker, first)
        await session(broker, second)
        queue = broker.addresses.queue("subscription/me/audit")
        assert queue.selector is not None


async def test_what_a_subscription_does_not_select_never_comes_into_it() -> None:
    def use(connection: BlockingConnection) -> None:
        red = [DURABLE, Selector("colour = 'red'")]
        kept = connection.create_receiver("news", name="audit", options=red)
        brief = connection.create_receiver("news", credit=5, name="brief", options=Selector("colour = 'red'"))
        publish(connection, "red", properties={"colour": "red"})
        assert brief.receive(timeout=5).body == "red"
        assert {queue.depth for queue in broker.addresses} == {1}
        kept.link.detach()

    async with running() as broker:
        topic(broker)
        await session(broker, use)


@pytest.mark.parametrize("scope", ["", "global"])
async def test_links_share_a_subscription(scope: str) -> None:
    shared = symbols("topic", "shared", *filter(None, [scope]))
    options = Asks(capabilities=shared)

    def use(connection: BlockingConnection) -> None:
        receivers = [
            connection.create_receiver("news", credit=1, name=f"team|{number}", options=options)
            for number in range(2)
        ]
        answered = value(receivers[0].link.remote_source.capabilities).elements
        assert set(answered) == set(shared.elements)
        publish(connection, "one", "two")
        assert {receiver.receive(timeout=5).body for receiver in receivers} == {"one", "two"}
        assert len(names(broker)) == 1
        receivers[0].close()
        assert len(names(broker)) == 1
        receivers[1].close()
        assert not names(broker)

    async with running() as broker:
        topic(broker)
        await session(broker, use)


async def test_a_second_link_takes_a_subscription_over_that_is_not_shared() -> None:
    def use(connection: BlockingConnection) -> None:
        first = connection.create_receiver("news", credit=1, name="audit", options=DURABLE)

        def again(other: BlockingConnection) -> None:
            second = other.create_receiver("news", credit=1, name="audit", options=DURABLE)
            publish(other, "one")
            assert second.receive(timeout=5).body == "one"
            with pytest.raises(LinkDetached, match="amqp:link:stolen"):
                first.receive(timeout=5)

        asyncio.run_coroutine_threadsafe(session(broker, again), loop).result(20)

    async with running() as broker:
        loop = asyncio.get_running_loop()
        topic(broker)
        await session(broker, use)


async def test_a_durable_source_of_a_queue_is_that_queue() -> None:
    def use(connection: BlockingConnection) -> None:
        source = connection.create_receiver("q", name="audit", options=DURABLE).link.remote_source
        assert source.durability == Terminus.NONDURABLE
        assert names(broker) == {"q"}

    async with running() as broker:
        await session(broker, use)


async def test_a_subscription_to_a_queue_is_refused() -> None:
    def use(connection: BlockingConnection) -> None:
        for capability in ("topic", "shared"):
            asked = Asks(capabilities=symbols(capability))
            with pytest.raises(LinkDetached, match="no exchange"):
                connection.create_receiver("q", name=capability, options=asked)
        assert not names(broker)

    async with running() as broker:
        await session(broker, use)
