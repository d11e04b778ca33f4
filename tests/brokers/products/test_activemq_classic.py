"""ActiveMQ Classic: container ids in use, refusals, and the meaning of its addresses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from proton import ConnectionException

from haclient import Message, aio
from haclient.errors import ConnectionGaveUp, LinkRefused, ReceiveTimeout
from haclient.events import Connected, Reconnected
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.brokers import clusters
from tests.brokers.application import running
from tests.brokers.products.activemq import ActiveMQ
from tests.brokers.products.connection_limit import check_that_it_is_named
from tests.brokers.topology import Launch
from tests.peers.watch import Watch

_MISSING = clusters.missing("activemq")
pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING),
    pytest.mark.timeout(300),
]
IN_TIME = 20.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActiveMQ]:
    cluster = ActiveMQ(Launch(tmp_path_factory.mktemp("activemq")))
    with in_thread(running("activemq", cluster)):
        yield cluster


# -- container ids ------------------------------------------------------------------------------------


async def test_a_factory_has_as_many_connections_as_it_wants(broker: ActiveMQ) -> None:
    async with aio.ConnectionFactory(broker.url) as factory:
        connections = [await asyncio.wait_for(factory.connect(), IN_TIME) for _ in range(10)]
        for connection in connections:
            await connection.close()


class _Deaf:
    """A route whose broker does not notice that the client is gone."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._clients: list[asyncio.StreamWriter] = []
        self._brokers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker = await asyncio.open_connection(*self._to)
        self._clients.append(writer)
        self._brokers.append(broker[1])
        for source, sink in ((reader, broker[1]), (broker[0], writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)

    def cut(self) -> None:
        for writer in self._clients:
            writer.transport.abort()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in (*self._clients, *self._brokers):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_connection_that_it_has_not_missed_yet_does_not_lock_its_client_out(broker: ActiveMQ) -> None:
    primary = await broker.group.primary()
    route, watch = _Deaf(primary.endpoint.host, primary.endpoint.port), Watch()
    server = await asyncio.start_server(route.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, aio.connect(f"amqp://127.0.0.1:{port}", on_event=watch) as connection:
        sender = await connection.create_sender("queue://after")
        await watch.until(Connected)
        route.cut()
        async with asyncio.timeout(IN_TIME):
            await watch.until(Reconnected)
            await sender.send(Message(body="after"))
        await connection.close()
        await route.close()


async def test_a_second_connection_with_a_given_id_fails_at_once(broker: ActiveMQ) -> None:
    async with aio.ConnectionFactory(broker.url, client_id="orders-1") as factory:
        first = await factory.connect()
        with pytest.raises(ConnectionGaveUp, match="this process has another connection") as caught:
            await asyncio.wait_for(factory.connect(), IN_TIME)
        assert caught.value.condition == "amqp:invalid-field"
        await first.close()


def test_so_does_one_of_a_program_for_proton(broker: ActiveMQ) -> None:
    with (
        BlockingConnection(broker.url, container_id="orders-2", timeout=IN_TIME),
        pytest.raises(ConnectionException, match="this process has another connection"),
    ):
        BlockingConnection(broker.url, container_id="orders-2", timeout=IN_TIME)


# -- topics -------------------------------------------------------------------------------------------


async def test_subscribers_of_a_topic_get_a_copy_each_whatever_the_sender_writes(broker: ActiveMQ) -> None:
    async with aio.connect(broker.url) as connection:
        readers = [
            await connection.subscribe("news"),
            await connection.subscribe("topic://news"),
            await connection.create_receiver("news", capabilities=("topic",)),
        ]
        written = [("news", ("topic",)), ("topic://news", ()), ("topic://news", ("topic",))]
        for number, (address, capabilities) in enumerate(written):
            sender = await connection.create_sender(address, capabilities=capabilities)
            await sender.send(Message(body=number))
        for reader in readers:
            got = [(await reader.receive(timeout=IN_TIME)).body for _ in written]
            assert got == [0, 1, 2]


async def test_a_queue_of_the_same_name_is_another_node(broker: ActiveMQ) -> None:
    async with aio.connect(broker.url) as connection:
        subscriber = await connection.subscribe("both")
        for address, capabilities in (("both", ()), ("both", ("queue",)), ("queue://both", ("queue",))):
            sender = await connection.create_sender(address, capabilities=capabilities)
            await sender.send(Message(body="queued"))
        queue = await connection.create_receiver("both", capabilities=("queue",))
        assert [(await queue.receive(timeout=IN_TIME)).body for _ in range(3)] == ["queued"] * 3
        with pytest.raises(ReceiveTimeout):
            await subscriber.receive(timeout=0.5)


async def test_it_does_not_share_subscriptions_and_keeps_none_that_nobody_finds_again(
    broker: ActiveMQ,
) -> None:
    async with aio.connect(broker.url) as connection:
        with pytest.raises(LinkRefused, match="each receiver of 'shared' would get all"):
            await connection.subscribe("shared", name="team", shared=True)
        for strict in (True, False):
            with pytest.raises(LinkRefused, match="belongs to a client_id"):
                await connection.subscribe("shared", name="team", durable=True, shared=True, strict=strict)
        sender = await connection.create_sender("shared", capabilities=["topic"])
        await sender.send(Message(body="kept by nobody"))
    # A subscription left behind would be in use, and would have that message.
    async with aio.connect(broker.url) as connection:
        reader = await connection.create_receiver("shared", name="team|global", capabilities=["topic"])
        with pytest.raises(ReceiveTimeout):
            await reader.receive(timeout=0.5)


async def test_a_durable_one_of_a_client_id_is_not_shared_either(broker: ActiveMQ) -> None:
    async with aio.connect(broker.url, client_id="team-1") as connection:
        for strict in (True, False):
            with pytest.raises(LinkRefused, match="subscribe without shared=True"):
                await connection.subscribe("ours", name="team", durable=True, shared=True, strict=strict)
        with pytest.raises(LinkRefused, match="amqp:not-found"):
            await connection.unsubscribe("team")


async def test_a_durable_subscription_of_a_client_id_has_what_came_meanwhile(broker: ActiveMQ) -> None:
    for number in range(3):
        async with aio.connect(broker.url, client_id="archive-1") as connection:
            archive = await connection.subscribe("kept", name="archive", durable=True)
            if number:
                kept = await archive.receive(timeout=IN_TIME)
                assert kept.body == number
                await kept.accept()
        async with aio.connect(broker.url) as connection:
            sender = await connection.create_sender("kept", capabilities=["topic"])
            await sender.send(Message(body=number + 1))
    async with aio.connect(broker.url, client_id="archive-1") as connection:
        await connection.unsubscribe("archive")
        with pytest.raises(LinkRefused, match="amqp:not-found"):
            await connection.unsubscribe("archive")


# -- limits -------------------------------------------------------------------------------------------


async def test_a_connection_beyond_its_limit_fails_with_a_text_that_names_it(broker: ActiveMQ) -> None:
    few = broker.few[broker.members.index(await broker.group.primary())]
    await check_that_it_is_named(str(few))
