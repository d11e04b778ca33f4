"""Receiver options on RabbitMQ 4, and which of them it honours."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import proton
import pytest
from proton import Described, symbol, ulong

from haclient import Message, aio
from haclient.cli.exit_codes import REFUSED
from haclient.core.attach.streams import OFFSET
from haclient.errors import (
    ConfirmNotSupported,
    ConnectionGaveUp,
    FilterNotSupported,
    LinkClosed,
    LinkRefused,
    MessageNotAccepted,
    ReceiveTimeout,
    StaleDelivery,
)
from tests.brokers.products import rabbitmq4
from tests.brokers.products.one_node import OneNode, one_node
from tests.brokers.products.rabbitmq4 import address

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(bool(rabbitmq4.missing()), reason=rabbitmq4.missing()),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[OneNode]:
    with one_node() as broker:
        yield broker


async def fill(broker: OneNode, name: str, count: int, first: int = 0) -> None:
    """Send ``count`` messages whose bodies are numbers."""
    async with (
        await aio.connect(broker.url) as connection,
        await connection.create_sender(address(name)) as sender,
    ):
        await sender.send_many([Message(body=number) for number in range(first, first + count)])


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "haclient", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("kind", ["quorum", "classic", "stream"])
async def test_a_browse_is_refused_and_the_messages_stay(broker: OneNode, kind: str) -> None:
    name = broker.declare(kind)
    await fill(broker, name, 3)
    async with await aio.connect(broker.url) as connection:
        with pytest.raises(LinkRefused, match="does not browse"):
            await connection.create_receiver(address(name), browse=True)
        receiver = await connection.create_receiver(address(name), filters={OFFSET: "first"})
        got = [await receiver.receive(timeout=10) for _ in range(3)]
    assert [each.body for each in got] == [0, 1, 2]
    assert {each.message.delivery_count for each in got} == {0}


async def test_the_command_that_browses_a_quorum_queue_prints_nothing_and_drops_nothing(
    broker: OneNode,
) -> None:
    name = broker.declare("quorum")
    await fill(broker, name, 1)
    ended = command("receive", broker.url, address(name), "--browse", "--timeout", "1")
    assert (ended.stdout, ended.returncode) == ("", REFUSED), ended.stderr
    assert "does not browse" in ended.stderr
    async with await aio.connect(broker.url) as connection:
        kept = await (await connection.create_receiver(address(name))).receive(timeout=10)
    assert (kept.body, kept.message.delivery_count) == (0, 0)


@pytest.mark.parametrize(
    "arguments", [{"selector": "colour = 'red'"}, {"filters": {"amqp:sql-filter": "colour = 'red'"}}]
)
async def test_a_filter_is_refused_that_would_filter_nothing(
    broker: OneNode, arguments: dict[str, Any]
) -> None:
    name = broker.declare("quorum")
    await fill(broker, name, 2)
    async with await aio.connect(broker.url) as connection:
        with pytest.raises(FilterNotSupported):
            await connection.create_receiver(address(name), **arguments)
        receiver = await connection.create_receiver(address(name), strict=False, **arguments)
        assert [(await receiver.receive(timeout=10)).body for _ in range(2)] == [0, 1]


async def test_what_it_refuses_by_an_end_is_refused_beside_other_links(
    broker: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    name = broker.declare("quorum")
    async with await aio.connect(broker.url) as connection:
        sender = await connection.create_sender(address(name))
        with pytest.raises(ConfirmNotSupported):
            await connection.create_receiver(address(name), confirm=True)
        with pytest.raises(ValueError, match="'first', 'last' or 'next'"):
            await connection.create_receiver(address(name), filters={OFFSET: "1x"})
        await sender.send(Message(body="x"))
    assert not any(": lost " in text for text in caplog.messages)


async def test_a_queue_that_is_deleted_ends_its_receiver(broker: OneNode) -> None:
    name = broker.declare("quorum")
    async with await aio.connect(broker.url) as connection:
        receiver = await connection.create_receiver(address(name))
        await asyncio.to_thread(broker.node.control, "delete_queue", name)
        with pytest.raises(LinkClosed, match=r"\(amqp:resource-deleted\)$"):
            await receiver.receive(timeout=20)


async def test_a_virtual_host_without_its_prefix_is_warned_of(
    broker: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with await aio.connect(f"{broker.url}/?vhost=team"):
        pass
    assert "write vhost=vhost:team" in caplog.text
    with pytest.raises(ConnectionGaveUp, match="has it the virtual host 'vhost:nope'"):
        await aio.connect(f"{broker.url}/?vhost=vhost:nope&max_attempts=1", timeout=20)


async def release(delivery: aio.Delivery, _: aio.Receiver) -> None:
    await delivery.release()


async def modify(delivery: aio.Delivery, _: aio.Receiver) -> None:
    await delivery.modify()


async def close(_: aio.Delivery, receiver: aio.Receiver) -> None:
    await receiver.close()


@pytest.mark.parametrize(
    ("returned", "shown"), [(release, [0, 0, 0]), (modify, [0, 1, 2]), (close, [0, 0, 0])]
)
async def test_each_return_counts_towards_the_delivery_limit(
    broker: OneNode,
    returned: Callable[[aio.Delivery, aio.Receiver], Awaitable[None]],
    shown: list[int],
) -> None:
    dead = broker.declare("quorum")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-delivery-limit": 2}
    name, counts = broker.declare("quorum", **arguments), []
    await fill(broker, name, 1)
    async with await aio.connect(broker.url) as connection:
        for _ in range(3):
            receiver = await connection.create_receiver(address(name), credit=0)
            await receiver.add_credit(1)
            delivery = await receiver.receive(timeout=10)
            counts.append(delivery.message.delivery_count)
            await returned(delivery, receiver)
            await receiver.close()
        buried = await (await connection.create_receiver(address(dead))).receive(timeout=10)
    assert (counts, buried.body) == (shown, 0)


async def test_a_message_that_is_not_taken_is_released_or_rejected(broker: OneNode) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    name = broker.declare("classic", **full)
    async with await aio.connect(broker.url) as connection:
        unroutable = await connection.create_sender("/exchanges/amq.direct/nobody")
        with pytest.raises(MessageNotAccepted, match="was released"):
            await unroutable.send(Message(body=0))
        sender = await connection.create_sender(address(name))
        await sender.send(Message(body=0))
        with pytest.raises(MessageNotAccepted, match="was rejected"):
            await sender.send(Message(body=1))
        with pytest.raises(LinkRefused, match="amqp:invalid-field"):
            await connection.create_sender("/queues/a b")


@pytest.mark.parametrize("prefix", ["", "/queue/"])
async def test_an_old_address_makes_a_queue_that_is_not_durable_and_is_warned_of(
    broker: OneNode, caplog: pytest.LogCaptureFixture, prefix: str
) -> None:
    name = f"made%20of {prefix}NAME"
    async with await aio.connect(broker.url) as connection:
        await connection.create_sender(prefix + name.replace("/", "%2F"))
    rows = broker.node.control("list_queues", "name", "durable", "type").splitlines()
    assert f"{name}\tfalse\tclassic" in rows
    assert f"declare a quorum queue, and write {address(name)}" in caplog.text


async def test_a_heartbeat_of_a_second_keeps_a_connection(
    broker: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    name = broker.declare("quorum")
    async with await aio.connect(f"{broker.url}/?heartbeat=1s", timeout=10) as connection:
        receiver = await connection.create_receiver(address(name))
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=3)
    assert not any(": lost " in text for text in caplog.messages)


def by_hand(receiver: proton.Receiver) -> None:
    receiver.source.filter.put_object({symbol(OFFSET): Described(symbol(OFFSET), "next")})


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ({"filters": {OFFSET: "first"}}, 0),
        ({"filters": {OFFSET: "next"}}, 20),
        ({"filters": {OFFSET: ulong(7)}}, 7),
        ({"configure": by_hand}, 20),
        ({}, 20),
    ],
    ids=["first", "next", "offset", "by hand", "no filter"],
)
async def test_a_stream_goes_on_where_it_was_after_each_loss(
    broker: OneNode, arguments: dict[str, Any], first: int
) -> None:
    name, got = broker.declare("stream"), []
    await fill(broker, name, 20)
    async with await aio.connect(broker.url) as connection:
        receiver = await connection.create_receiver(address(name), **arguments)
        for begin in (20, 120, 220):
            await fill(broker, name, 100, begin)
            while not got or got[-1] < begin + 99:
                delivery = await receiver.receive(timeout=20)
                with contextlib.suppress(StaleDelivery):
                    await delivery.accept()
                    got.append(delivery.body)
            await asyncio.to_thread(broker.node.control, "close_all_connections", "a loss")
    assert got == list(range(first, 320))
