"""The container ids of a factory's connections, at a broker that takes each one once."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

import haclient
from haclient import aio
from haclient.core.container_id import OPEN_CONNECTIONS, ContainerId
from haclient.core.failures import ESTABLISHMENT_FAILED
from haclient.discovery.evidence import RESOURCE_LIMIT
from haclient.errors import ConnectionGaveUp, DeadlineExceeded, HaclientError
from haclient.events import Connected, Reconnected
from haclient.reactor import Container
from haclient.testing.peers.listening import PeerEngine, listening, settings, url
from haclient.testing.threads import in_thread
from haclient.testing.virtual_clock import virtual_time
from tests.dropin.recorder import Recorder, running
from tests.peers import primary
from tests.peers.apis import API
from tests.peers.classic import Classic, classic
from tests.peers.watch import Watch

FAST = {"backoff_base": 0.01, "backoff_max": 0.05}
IN_TIME = 10.0


async def test_each_connection_of_a_factory_has_its_own_and_keeps_it(api: API) -> None:
    watch = Watch()
    async with classic() as broker:
        factory = await api.factory(url(broker, **FAST), on_event=watch)
        connections = [await factory.connect() for _ in range(3)]
        own = [f"{factory.client_id}-{number}" for number in (1, 2, 3)]
        assert broker.ids == own
        await broker.until(lambda: len(broker.engines) == 3)
        broker.drop()
        await watch.until(Reconnected, count=3)
        assert sorted(set(broker.ids[3:])) == own
        stamps = [each.stamp for each in await watch.until(Connected, count=3)]
        assert {each.client_id for each in stamps} == {factory.client_id}
        assert [each.connection_name for each in stamps] == [f"{factory.client_id}/{n}" for n in (1, 2, 3)]
        for connection in connections:
            await connection.close()
        await factory.close()


async def test_many_connections_at_once_have_one_each() -> None:
    async with classic() as broker, aio.ConnectionFactory(url(broker)) as factory:
        connections = await asyncio.gather(*(factory.connect() for _ in range(50)))
        assert sorted(broker.ids) == sorted(f"{factory.client_id}-{number}" for number in range(1, 51))
        assert broker.refused == 0
        await asyncio.gather(*(each.close() for each in connections))


async def test_a_connection_that_the_broker_still_counts_does_not_lock_its_client_out() -> None:
    """The broker notices no loss: the id of before is refused, and the next one is kept."""
    watch = Watch()
    async with classic(forgets=False) as broker:
        connection = await aio.connect(url(broker, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        client = (await watch.until(Connected))[0].stamp.client_id
        for lost in range(1, 4):
            broker.drop()
            await watch.until(Reconnected, count=lost)
        async with asyncio.timeout(IN_TIME):
            await sender.send(haclient.Message(body="after"))
        suffixes = [each.removeprefix(f"{client}-1") for each in broker.ids]
        assert suffixes == ["", "", "-2", "-2", "-3", "-3", "-4"]
        assert {each.stamp.client_id for each in watch.of(Reconnected)} == {client}
        await connection.close()


async def _durable(connection: aio.Connection) -> Any:
    def configure(receiver: Any) -> None:
        receiver.source.durability = 2

    return await connection.create_receiver("q", name="mine", configure=configure)


async def _confirming(connection: aio.Connection) -> Any:
    return await connection.create_receiver("q", confirm=True)


@pytest.mark.parametrize("create", [_durable, _confirming])
async def test_an_id_that_a_receiver_depends_on_is_asked_for_until_it_is_free(create: Any) -> None:
    watch = Watch()
    async with classic(forgets=False) as broker:
        connection = await aio.connect(url(broker, **FAST), on_event=watch)
        await create(connection)
        broker.drop()
        await broker.until(lambda: broker.refused >= 5)
        broker.taken.clear()
        await watch.until(Reconnected)
        assert len(set(broker.ids)) == 1
        await connection.close()


@pytest.mark.parametrize("reserved", [True, False])
def test_a_pinned_id_does_not_change(reserved: bool) -> None:
    ids = ContainerId("client", None, 7, lambda: reserved)
    ids._refused("client-7")
    ids._refused("client-7")  # of an attempt that was dialled before
    assert ids.value == ("client-7" if reserved else "client-7-2")


class _Full(Classic):
    """Reserves a time for its first client, which it knows by the container id."""

    def opened(self, engine: Any) -> None:
        if self.ids:
            super().opened(engine)
            return
        self.ids.append(str(engine.connection.remote_container))
        engine.open(properties={ESTABLISHMENT_FAILED: True})
        engine.close(proton.Condition(RESOURCE_LIMIT, "full", {proton.symbol("retry-after"): 200}))


class _Slow(Classic):
    """Takes its time to refuse every container id."""

    def opened(self, engine: Any) -> None:
        self.refuses_any = True
        asyncio.get_running_loop().call_later(0.1, super().opened, engine)


def test_an_id_for_which_a_member_has_reserved_a_time_does_not_change() -> None:
    """Another member refuses it meanwhile."""

    def serve(peer: Classic) -> PeerEngine:
        return PeerEngine(peer, settings())

    async def connect() -> None:
        async with (
            listening(serve, _Slow) as slow,
            listening(serve, _Full) as full,
            aio.connect(url(slow, full, stagger=0.01, **FAST)),
        ):
            assert slow.refused
            assert len(full.ids) > 1
            assert len(set(full.ids)) == 1

    # A slow machine would miss the reserved time.  Client and members share a loop: none is still at work.
    with virtual_time(settle=0.002) as clock:
        clock.run(connect())


MOVES = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30)


@given(st.text(min_size=1), st.integers(1, 10**6), MOVES)
def test_no_id_that_was_refused_comes_again_but_a_pinned_one(
    client: str, number: int, moves: list[tuple[bool, int]]
) -> None:
    """Also after refusals of attempts that were dialled with an earlier id."""
    pinned = False
    ids = ContainerId(client, None, number, lambda: pinned)
    given_id = ContainerId("made", client, number, lambda: pinned)
    used, refused = [ids.value], set[str]()
    for pinned, back in moves:
        of_attempt = used[max(len(used) - 1 - back, 0)]
        before = ids.value
        ids._refused(of_attempt)
        given_id._refused(client)
        if pinned or of_attempt != before:
            assert ids.value == before
        else:
            refused.add(before)
            used.append(ids.value)
        assert ids.value not in refused
        assert ids.value.startswith(f"{client}-{number}")
        assert given_id.value == client
    assert used[0] == f"{client}-{number}"


async def test_a_broker_that_refuses_every_id_costs_no_more_than_any_that_refuses() -> None:
    async with classic(refuses_any=True) as broker:
        with pytest.raises(DeadlineExceeded, match="Client: haclient-"):
            await aio.connect(url(broker, startup_deadline=0.3, **FAST))
        assert len(set(broker.ids)) == len(broker.ids) == broker.refused
        assert max(map(len, broker.ids)) - min(map(len, broker.ids)) <= len(f"-{broker.refused}")


async def test_what_was_cancelled_or_closed_is_not_kept() -> None:
    client = "cancelled-1"
    async with classic() as broker, aio.ConnectionFactory(url(broker, client_id=client, **FAST)) as factory:
        for _ in range(20):
            connecting = asyncio.ensure_future(factory.connect())
            await asyncio.sleep(0)
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            connection = await factory.connect()
            await connection.close()
    del connection
    gc.collect()
    kept = [each for each in OPEN_CONNECTIONS._engines if each.settings.container_id == client]
    assert [each for each in kept if each.close_reason is None] == []


async def test_a_given_id_that_this_process_has_there_fails_at_once(api: API) -> None:
    async with classic() as broker:
        factory = await api.factory(url(broker, client_id="orders-1", **FAST))
        first = await factory.connect()
        with pytest.raises(ConnectionGaveUp) as caught:
            await asyncio.wait_for(factory.connect(), IN_TIME)
        assert not isinstance(caught.value, DeadlineExceeded)
        assert (broker.refused, caught.value.condition) == (1, "amqp:invalid-field")
        text = str(caught.value)
        assert "this process has another connection with the container id of this one" in text
        assert "Client: orders-1 already connected" in text
        await first.close()
        second = await asyncio.wait_for(factory.connect(), IN_TIME)
        await second.close()
        await factory.close()


async def test_a_connection_that_is_being_closed_does_not_count(api: API) -> None:
    """The broker has not read its Close yet, and frees the id when it has."""
    async with classic() as broker:
        factory = await api.factory(url(broker, client_id="orders-1", close_timeout=0.2, **FAST))
        first = await factory.connect()
        for transport in broker.transports:
            transport.pause_reading()
        closing = asyncio.ensure_future(first.close())
        await asyncio.sleep(0.01)
        connecting = asyncio.ensure_future(factory.connect())
        await broker.until(lambda: broker.refused >= 2)
        broker.taken.clear()
        second = await asyncio.wait_for(connecting, IN_TIME)
        await closing
        await second.close()
        await factory.close()


@pytest.mark.parametrize("reconnect", [None, False])
async def test_a_program_for_proton_may_close_and_connect_again(reconnect: Any) -> None:
    said: list[str] = []

    def again(event: Any) -> None:
        if event.connection is not handler.connection:
            event.connection.close()
            return
        for transport in broker.transports:
            transport.pause_reading()
        event.connection.close()
        event.container.connect(url(broker, **FAST))

    async with classic() as broker:
        handler = Recorder(
            lambda container: container.connect(url(broker), reconnect=reconnect),
            connection_opened=again,
            transport_error=lambda event: said.append(str(event.transport.condition)),
        )
        async with asyncio.timeout(IN_TIME), running(handler):
            await broker.until(lambda: broker.refused >= 2)
            broker.taken.clear()
            await handler.until("connection_opened", times=2)
            for transport in broker.transports:
                transport.resume_reading()
    assert not any("this process has another connection" in each for each in said)


async def test_another_factory_of_this_process_is_told_as_well() -> None:
    with (
        in_thread(classic()) as broker,
        haclient.connect(url(broker, client_id="orders-1")),
        pytest.raises(ConnectionGaveUp, match="this process has another connection"),
    ):
        await asyncio.wait_for(aio.connect(url(broker, client_id="orders-1")), IN_TIME)


async def test_the_same_id_at_another_broker_does_not_count() -> None:
    """The id then belongs to another client, which may free it."""
    taken = {"that of another process": "orders-1"}
    async with (
        primary() as other,
        classic(taken=taken) as broker,
        aio.connect(url(other, client_id="orders-1")),
    ):
        with pytest.raises(DeadlineExceeded, match="until the member notices"):
            await aio.connect(url(broker, client_id="orders-1", startup_deadline=0.3, **FAST))
        assert broker.refused > 1


def _search_in_child(address: str, answers: Any) -> None:
    try:
        haclient.connect(address, client_id="orders-1", startup_deadline=0.3, **FAST)
    except HaclientError as error:
        answers.put(type(error).__name__)


def test_the_connections_of_the_parent_are_not_those_of_a_forked_child() -> None:
    context: Any = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with in_thread(classic()) as broker, haclient.connect(url(broker, client_id="orders-1")):
        child = context.Process(target=_search_in_child, args=(url(broker), answers))
        with OPEN_CONNECTIONS._lock:  # as a thread of the parent may have it at that moment
            child.start()
        child.join(IN_TIME)
        assert child.exitcode == 0
        assert answers.get() == "DeadlineExceeded"


def test_the_register_serves_many_threads() -> None:
    class Engine:
        def __init__(self, name: str) -> None:
            self.close_reason, self.peer = None, "10.0.0.1:5672"
            self.settings = type("Settings", (), {"container_id": name})

    def work(number: int) -> bool:
        engines: list[Any] = [Engine(str(number)) for _ in range(200)]
        for each in engines:
            OPEN_CONNECTIONS.add(each)
        return OPEN_CONNECTIONS.have_id_of(engines[0]) and not OPEN_CONNECTIONS.have_id_of(nobody)

    nobody: Any = Engine("nobody")
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(40)))
    gc.collect()
    left = [each for each in OPEN_CONNECTIONS._engines if isinstance(each, Engine)]
    assert left == []


@pytest.mark.parametrize("reconnect", [None, False])
async def test_two_connections_of_a_container_for_proton_fail_at_once(reconnect: Any) -> None:
    """A container has one id by design, with proton too, which reports the Close at once."""
    said: list[str] = []

    def first(container: Container) -> Any:
        return container.connect(url(broker), reconnect=reconnect)

    def second(event: Any) -> None:
        event.container.connect(url(broker))

    def failed(event: Any) -> None:
        said.append(str(event.transport.condition))
        handler.connection.close()

    async with classic() as broker:
        handler = Recorder(first, connection_opened=second, transport_error=failed)
        async with running(handler):
            await handler.until("transport_error")
    assert (len(broker.ids), len(set(broker.ids)), broker.refused) == (2, 1, 1)
    assert "amqp:invalid-field" in said[0]
    assert "this process has another connection with the container id of this one" in said[0]
