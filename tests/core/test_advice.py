"""The client hints at likely mistakes in a link's options: scripted peers."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any
from urllib.parse import unquote

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import symbol
from proton.handlers import MessagingHandler

from haclient import aio
from haclient.core.quirks import workarounds
from haclient.reactor import Container
from haclient.testing.peers.listening import Peer, listening, url
from tests.broker_stub.raw_client import OPEN
from tests.hostile.broker.connection import HostileConnection
from tests.hostile.broker.listening import HostileBrokers
from tests.peers import primary
from tests.peers.apis import API, connected

ARTEMIS = {"product": "apache-activemq-artemis"}


@pytest.fixture
def advice(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="haclient.advice")
    return caplog


def texts(advice: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in advice.records if record.name == "haclient.advice"]


async def test_a_sender_without_a_capability_is_named_once(
    api: API, advice: pytest.LogCaptureFixture
) -> None:
    async with primary(properties=ARTEMIS) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("orders")
        peer.drop()
        await sender.send("after a failover")
        (text,) = texts(advice)
    assert "apache-activemq-artemis makes a topic" in text
    assert "'orders'" in text


@pytest.mark.parametrize("capability", ["queue", "topic"])
async def test_a_sender_with_a_capability_is_not(
    api: API, advice: pytest.LogCaptureFixture, capability: str
) -> None:
    async with primary(properties=ARTEMIS) as peer, connected(api, peer) as connection:
        await connection.create_sender("orders", capabilities=(capability,))
    assert texts(advice) == []


async def test_a_capability_that_configure_writes_counts(api: API, advice: pytest.LogCaptureFixture) -> None:
    def configure(link: proton.Link) -> None:
        link.target.capabilities.put_object(proton.symbol("queue"))

    async with primary(properties=ARTEMIS) as peer, connected(api, peer) as connection:
        await connection.create_sender("orders", configure=configure)
    assert texts(advice) == []


@pytest.mark.parametrize("properties", [{"product": "other"}, {"product": 5}, {}])
async def test_other_brokers_are_not(
    api: API, advice: pytest.LogCaptureFixture, properties: dict[str, Any]
) -> None:
    async with primary(properties=properties) as peer, connected(api, peer) as connection:
        await connection.create_sender("orders")
    assert texts(advice) == []


RABBITMQ = {"product": "RabbitMQ", "version": "4.0.5"}


@pytest.mark.parametrize(
    ("address", "better"),
    [
        ("orders", "/queues/orders"),
        ("a b", "/queues/a%20b"),
        ("a%2Fb%20c", "/queues/a%2Fb%2520c"),
        ("/queue/orders", "/queues/orders"),
        ("/queue/a%2Fb", "/queues/a%2Fb"),
    ],
)
async def test_an_address_that_makes_a_queue_on_one_node_is_named_once(
    api: API, advice: pytest.LogCaptureFixture, address: str, better: str
) -> None:
    async with primary(properties=RABBITMQ) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender(address)
        peer.drop()
        await sender.send("after a failover")
        await connection.create_receiver(address)
    found = texts(advice)
    assert len(found) == 2
    for text in found:
        assert f"makes a queue of {address!r}, if there is none" in text
        assert text.endswith(f"declare a quorum queue, and write {better}")


@pytest.mark.parametrize("address", ["/exchange/logs/key", "/topic/a.b"])
async def test_an_old_address_of_an_exchange_makes_a_queue_for_a_receiver(
    api: API, advice: pytest.LogCaptureFixture, address: str
) -> None:
    async with primary(properties=RABBITMQ) as peer, connected(api, peer) as connection:
        await connection.create_sender(address)
        assert texts(advice) == []
        await connection.create_receiver(address)
    (text,) = texts(advice)
    assert text.endswith("write /queues/NAME")


@pytest.mark.parametrize(
    ("properties", "address"),
    [
        (RABBITMQ, "/queues/orders"),
        (RABBITMQ, "/exchanges/logs/key"),
        (RABBITMQ, "/amq/queue/orders"),  # such a queue must exist
        ({"product": "RabbitMQ", "version": "3.10.8"}, "/queue/orders"),
        ({}, "orders"),
    ],
)
async def test_other_addresses_are_not(
    api: API, advice: pytest.LogCaptureFixture, properties: dict[str, Any], address: str
) -> None:
    async with primary(properties=properties) as peer, connected(api, peer) as connection:
        await connection.create_sender(address)
        await connection.create_receiver(address)
    assert texts(advice) == []


class Serving(HostileConnection):
    """Serves any address, and makes temporary queues."""

    def __init__(self) -> None:
        super().__init__(HostileBrokers(0, ()), random.Random())
        self.fields[OPEN] = {9: {symbol(key): value for key, value in RABBITMQ.items()}}


async def test_a_dynamic_address_and_no_address_are_not(advice: pytest.LogCaptureFixture) -> None:
    async with listening(lambda _: Serving()) as peer, await aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver(None, dynamic=True)
        assert receiver.address == "temporary"
        await connection.create_sender(None)
    assert texts(advice) == []


async def test_the_address_that_counts_is_the_one_that_the_peer_gets(
    api: API, advice: pytest.LogCaptureFixture
) -> None:
    def write_path(link: proton.Link) -> None:
        (link.target if link.is_sender else link.source).address = "/queues/orders"

    async with primary(properties=RABBITMQ) as peer, connected(api, peer) as connection:
        await connection.create_sender("orders", configure=write_path)
        await connection.create_receiver("orders", configure=write_path)
    assert texts(advice) == []


@given(st.text(min_size=1).filter(lambda name: "%2F" not in name), st.booleans())
def test_an_advised_address_is_one_of_a_queue_with_that_name(name: str, receives: bool) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    workarounds.advice.addHandler(handler)
    try:
        workarounds.advise_address(RABBITMQ, "link", f"/queue/{name.replace('/', '%2F')}", receives=receives)
    finally:
        workarounds.advice.removeHandler(handler)
    (record,) = records
    address = record.getMessage().rpartition(" ")[2]
    assert address.startswith("/queues/")
    assert unquote(address.removeprefix("/queues/")) == name


class Program(MessagingHandler):
    """A program for proton with a sender and a receiver."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer, self._opened = peer, 0

    def on_start(self, event: proton.Event) -> None:
        self._connection = event.container.connect(f"amqp://{self._peer.address}")
        event.container.create_sender(self._connection, "orders")
        event.container.create_receiver(self._connection, "orders")

    def on_link_opened(self, _: proton.Event) -> None:
        self._opened += 1
        if self._opened == 2:
            self._connection.close()


async def test_a_program_for_proton_is_advised_too(advice: pytest.LogCaptureFixture) -> None:
    async with primary(properties=RABBITMQ) as peer, asyncio.timeout(10):
        await Container(Program(peer)).run_async()
    assert ["write /queues/orders" in text for text in texts(advice)] == [True, True]
