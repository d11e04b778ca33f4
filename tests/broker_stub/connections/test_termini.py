"""The answer to an Attach, the lifetime of dynamic nodes, and links to deleted nodes.

The tests use proton's own client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from proton import Described, Message, Terminus, symbol, ulong
from proton.reactor import DynamicNodeProperties
from proton.utils import BlockingConnection, LinkDetached

from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.node_lifetime import LifetimePolicy
from tests.broker_stub import raw_client as raw
from tests.broker_stub.attach_options import Asks, symbols, value
from tests.broker_stub.clients import blocking, running, until


def lifetime(policy: LifetimePolicy) -> Asks:
    return Asks(properties={symbol("lifetime-policy"): Described(ulong(policy), [])})


async def test_a_source_is_answered_with_what_holds() -> None:
    asked = Asks(
        durability=Terminus.DELIVERIES,
        expiry_policy=Terminus.EXPIRE_WITH_CONNECTION,
        timeout=600,
        capabilities=symbols("queue", "gold-plated"),
        outcomes=symbols("amqp:accepted:list", "vendor:half-accepted:list"),
        properties={symbol("x-qpid-replicate"): "none", symbol("vendor"): 1},
    )

    def use(connection: BlockingConnection) -> None:
        source = connection.create_receiver("q", credit=1, options=asked).link.remote_source
        assert source.address == "q"
        assert source.durability == Terminus.NONDURABLE
        assert source.expiry_policy == Terminus.EXPIRE_WITH_LINK
        assert source.timeout == 0
        assert source.distribution_mode == Terminus.DIST_MODE_MOVE
        assert value(source.capabilities).elements == ("queue",)
        assert value(source.outcomes).elements == ("amqp:accepted:list",)
        assert value(source.properties) == {"x-qpid-replicate": "none"}
        browser = connection.create_receiver(
            "q", name="browser", options=Asks(distribution_mode=Terminus.DIST_MODE_COPY)
        )
        assert browser.link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY

    async with running() as broker:
        await blocking(broker, use)


async def test_a_node_property_is_that_of_the_node_and_not_what_was_asked_for() -> None:
    def use(connection: BlockingConnection) -> None:
        target = connection.create_sender("q", options=Asks(properties={symbol("x-qpid-replicate"): "none"}))
        assert value(target.link.remote_target.properties) == {"x-qpid-replicate": "all"}

    async with running() as broker:
        broker.addresses.resolve("q")
        await blocking(broker, use)


async def test_a_target_is_answered_with_what_holds() -> None:
    asked = Asks(
        durability=Terminus.CONFIGURATION,
        expiry_policy=Terminus.EXPIRE_NEVER,
        timeout=600,
        capabilities=symbols("topic", "gold-plated"),
    )

    def use(connection: BlockingConnection) -> None:
        for address, capabilities in (("news", ("topic",)), ("q", None)):
            target = connection.create_sender(address, options=asked).link.remote_target
            assert (target.address, target.durability, target.timeout) == (address, Terminus.NONDURABLE, 0)
            found = value(target.capabilities)
            assert (found and found.elements) == capabilities

    async with running() as broker:
        broker.addresses.declare_exchange("news", ExchangeType.FANOUT)
        await blocking(broker, use)


async def test_hundreds_of_dynamic_queues_end_with_the_links_that_made_them() -> None:
    def use(connection: BlockingConnection) -> None:
        for _ in range(300):
            receiver = connection.create_receiver(None, dynamic=True)
            connection.create_sender(receiver.link.remote_source.address)
            receiver.close()
        assert len(broker.addresses) == 0

    async with running() as broker:
        await blocking(broker, use)


@pytest.mark.parametrize(
    ("policy", "outlives_links", "outlives_messages"),
    [
        (LifetimePolicy.DELETE_ON_CLOSE, False, False),
        (LifetimePolicy.DELETE_ON_NO_LINKS, True, False),
        (LifetimePolicy.DELETE_ON_NO_MESSAGES, False, True),
        (LifetimePolicy.DELETE_ON_NO_LINKS_OR_MESSAGES, True, True),
    ],
)
async def test_a_dynamic_queue_obeys_its_lifetime_policy(
    policy: LifetimePolicy, *, outlives_links: bool, outlives_messages: bool
) -> None:
    def there() -> bool:
        return len(broker.addresses) == 1

    def make(connection: BlockingConnection) -> tuple[Any, str]:
        receiver = connection.create_receiver(None, dynamic=True, options=lifetime(policy))
        source = receiver.link.remote_source
        answered = value(source.properties)["lifetime-policy"]
        assert answered.descriptor == policy
        return receiver, source.address

    def use(connection: BlockingConnection) -> None:
        creator, address = make(connection)
        sender = connection.create_sender(address)
        creator.close()
        assert there() == outlives_links
        if outlives_links:
            sender.close()
        assert not there()
        creator, address = make(connection)
        sender = connection.create_sender(address)
        sender.send(Message(body="x"))
        sender.close()
        creator.close()
        assert there() == outlives_messages
        if outlives_messages:
            taker = connection.create_receiver(address)
            taker.receive(timeout=5)
            taker.accept()
            taker.close()
        connection.create_sender("other").close()  # an iteration of the broker's loop
        assert len(broker.addresses) == 1, "only the other one"
        broker.addresses.delete(broker.addresses.queue("other"))

    async with running() as broker:
        await blocking(broker, use)


async def test_a_dynamic_queue_never_outlives_its_connection() -> None:
    def use(connection: BlockingConnection) -> None:
        policy = lifetime(LifetimePolicy.DELETE_ON_NO_LINKS_OR_MESSAGES)
        receiver = connection.create_receiver(None, dynamic=True, options=policy)
        connection.create_sender(receiver.link.remote_source.address).send(Message(body="x"))

    async with running() as broker:
        await blocking(broker, use)
        await until(lambda: len(broker.addresses) == 0)


async def test_a_lifetime_policy_that_there_is_not_is_refused() -> None:
    def use(connection: BlockingConnection) -> None:
        asked = DynamicNodeProperties({"lifetime-policy": "for ever"})
        with pytest.raises(LinkDetached, match="there is no lifetime policy"):
            connection.create_receiver(None, dynamic=True, options=asked)

    async with running() as broker:
        await blocking(broker, use)


@pytest.mark.parametrize("mode", [Terminus.DIST_MODE_MOVE, Terminus.DIST_MODE_COPY])
async def test_consumers_of_a_deleted_queue_are_detached(mode: int) -> None:
    def use(connection: BlockingConnection) -> None:
        receivers = [
            connection.create_receiver("q", credit=1, name=name, options=Asks(distribution_mode=mode))
            for name in ("one", "other")
        ]
        connection.create_sender("q").send(Message(body="x"))
        for receiver in receivers[:1] if mode == Terminus.DIST_MODE_MOVE else receivers:
            receiver.receive(timeout=5)
        delete(broker)
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            receivers[1].receive(timeout=5)
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            receivers[0].receive(timeout=5)

    def delete(broker: Broker) -> None:
        loop.call_soon_threadsafe(lambda: broker.addresses.delete(broker.addresses.queue("q")))

    async with running() as broker:
        loop = asyncio.get_running_loop()
        await blocking(broker, use)
        assert len(broker.addresses) == 0


@pytest.mark.parametrize("attach", [raw.attach_sender, raw.attach_receiver])
@pytest.mark.parametrize("encoded", [bytes, raw.with_wide_descriptor])
async def test_a_nul_leads_to_no_other_node(
    attach: Callable[[str, int, str], bytes], encoded: Callable[[bytes], bytes]
) -> None:
    r"""proton ends a name and an address at the NUL: ``orders\0x`` would be ``orders``."""
    async with running() as broker, raw.raw_client(broker.address) as client:
        named = encoded(attach("one", 0, "orders\0x")), encoded(attach("two\0x", 1, "orders"))
        await client.open(raw.begin(), *named)
        for _ in range(2):
            refused = await client.next(raw.DETACH)
            assert refused.condition == "amqp:invalid-field"
            assert "NUL" in refused.description
        assert broker.addresses.find_queue("orders") is None
        await client.write(attach("three", 2, "orders"))
        assert (await client.next(raw.ATTACH)).fields[0] == "three"
        assert broker.addresses.find_queue("orders") is not None
