"""Our client with RabbitMQ: two nodes in a cluster that are stopped, drained and killed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

import haclient
from haclient import Message, aio
from haclient.errors import LinkRefused
from tests.interop.installed import needs_rabbitmq
from tests.interop.rabbitmq import Node, RabbitMQ
from tests.interop.stream import flowing

pytestmark = needs_rabbitmq

# Classic queues with a mirror on every node, which one of two nodes can serve alone.
_MIRRORED = '{"ha-mode": "all", "ha-sync-mode": "automatic"}'
_QUORUM = """{"queues": [{"name": "quorum", "vhost": "/", "durable": true, "auto_delete": false,
    "arguments": {"x-queue-type": "quorum"}}]}"""
_OPTIONS = "backoff_base=0.05&backoff_max=0.5"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """Two running nodes."""
    with RabbitMQ(nodes=2) as cluster:
        cluster.nodes[0].control("set_policy", "mirrored", "^mirrored", _MIRRORED)
        definitions = tmp_path_factory.mktemp("definitions") / "queues.json"
        definitions.write_text(_QUORUM)
        cluster.nodes[0].control("import_definitions", str(definitions))
        yield cluster


@pytest.fixture
def url(cluster: RabbitMQ) -> str:
    return f"{cluster.url}?{_OPTIONS}"


@pytest.fixture
def address() -> str:
    """The address of a new durable queue, on the node that makes it."""
    return f"/queue/{uuid.uuid4()}"


# -- requests to the broker ---------------------------------------------------------------------


def test_a_message_comes_as_it_was_sent(url: str, address: str) -> None:
    sent = Message(
        body={"text": "Grüße", "number": 2**40, "bytes": b"\x00\xff", "list": [1, "two", None]},
        id=uuid.uuid4(),
        subject="all kinds",
        correlation_id="c-1",
        properties={"colour": "green", "n": 7},
        durable=True,
    )
    with haclient.connect(url) as connection:
        assert connection.create_sender(address).send(sent, timeout=30).accepted
        delivery = connection.create_receiver(address).receive(timeout=30)
        delivery.accept()
    came = delivery.message
    assert (came.body, came.id, came.subject, came.correlation_id) == (
        sent.body,
        sent.id,
        "all kinds",
        "c-1",
    )
    assert {name: came.properties[name] for name in ("colour", "n")} == {"colour": "green", "n": 7}
    assert came.durable


async def test_every_outcome_of_a_delivery(url: str, address: str) -> None:
    async with aio.connect(url) as connection:
        sender = await connection.create_sender(address)
        receiver = await connection.create_receiver(address)
        await sender.send(Message(body="twice"), timeout=30)
        await (await receiver.receive(timeout=30)).release()
        again = await receiver.receive(timeout=30)
        assert again.message.body == "twice"
        await again.reject()
        await sender.send(Message(body="once"), timeout=30)
        last = await receiver.receive(timeout=30)
        assert last.message.body == "once"
        await last.accept()


async def test_a_message_that_no_queue_takes_is_accepted_all_the_same(url: str) -> None:
    async with aio.connect(url) as connection:
        sender = await connection.create_sender("/exchange/amq.direct/nobody")
        assert (await sender.send(Message(body="lost"), timeout=30)).accepted


async def test_a_receiver_may_be_closed_with_messages_that_are_not_settled(url: str, address: str) -> None:
    async with aio.connect(url) as connection:
        sender = await connection.create_sender(address)
        for number in range(20):
            await sender.send(Message(body=number), timeout=30)
        async with await connection.create_receiver(address) as receiver:
            for _ in range(20):
                await receiver.receive(timeout=30)
        assert (await sender.send(Message(body=20), timeout=30)).accepted
    async with aio.connect(url) as connection:
        receiver = await connection.create_receiver(address)
        assert {(await receiver.receive(timeout=30)).message.body for _ in range(21)} == set(range(21))


async def test_an_address_that_it_refuses_leaves_the_other_links_alone(url: str, address: str) -> None:
    """RabbitMQ refuses a link by ending the session."""
    async with aio.connect(url) as connection:
        sender = await connection.create_sender(address)
        receiver = await connection.create_receiver(address)
        with pytest.raises(LinkRefused, match="amqp:not-found"):
            await connection.create_sender("/exchange/nowhere")
        with pytest.raises(LinkRefused, match="amqp:invalid-field"):
            await connection.create_receiver("/nonsense")
        with pytest.raises(LinkRefused, match="not-implemented"):
            await connection.create_receiver(None, dynamic=True)
        assert (await sender.send(Message(body="still here"), timeout=30)).accepted
        delivery = await receiver.receive(timeout=30)
        assert delivery.message.body == "still here"
        await delivery.accept()


# -- a node leaves -----------------------------------------------------------------------------


async def test_the_other_node_goes_on_when_the_application_is_stopped(cluster: RabbitMQ, url: str) -> None:
    async with flowing(url, mirrored()) as (stream, connection):
        await stream.flows()
        node = node_of(cluster, connection)
        await asyncio.to_thread(node.control, "stop_app")
        await stream.flows()
        assert node_of(cluster, connection) is not node
        await asyncio.to_thread(node.control, "start_app")


async def test_maintenance_keeps_new_clients_away_and_then_the_node_may_stop(
    cluster: RabbitMQ, url: str
) -> None:
    """Maintenance closes no AMQP 1.0 connection: they stay until the node stops."""
    async with flowing(url, mirrored()) as (stream, connection):
        await stream.flows()
        node = node_of(cluster, connection)
        await asyncio.to_thread(node.control, "drain", program="rabbitmq-upgrade")
        async with aio.connect(url) as newcomer:
            assert node_of(cluster, newcomer) is not node
        await stream.flows()
        await asyncio.to_thread(node.control, "stop_app")
        await stream.flows()
        assert node_of(cluster, connection) is not node
        await asyncio.to_thread(node.control, "start_app")
        await asyncio.to_thread(node.control, "revive", program="rabbitmq-upgrade")
    async with aio.connect(f"amqp://guest:guest@{node.address}") as connection:
        assert node_of(cluster, connection) is node


async def test_the_other_node_goes_on_when_one_is_killed(cluster: RabbitMQ, url: str) -> None:
    async with flowing(url, mirrored()) as (stream, connection):
        await stream.flows()
        node = node_of(cluster, connection)
        await asyncio.to_thread(node.kill)
        await stream.flows()
        assert node_of(cluster, connection) is not node
        await asyncio.to_thread(node.start)


async def test_a_quorum_queue_of_two_waits_for_the_one_that_stopped(cluster: RabbitMQ, url: str) -> None:
    async with flowing(url, "/amq/queue/quorum") as (stream, _):
        await stream.flows()
        await asyncio.to_thread(cluster.nodes[1].shut_down)
        await asyncio.to_thread(cluster.nodes[1].start)
        await stream.flows()


def mirrored() -> str:
    """Return the address of a new durable queue, mirrored on every node."""
    return f"/queue/mirrored-{uuid.uuid4()}"


def node_of(cluster: RabbitMQ, connection: aio.Connection) -> Node:
    """Return the node that a client is connected to."""
    assert connection.endpoint is not None
    return next(node for node in cluster.nodes if node.port == connection.endpoint.port)
