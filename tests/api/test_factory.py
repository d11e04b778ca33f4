"""One factory, many connections; callbacks and iterators; the wrong thread and the wrong process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import haclient
from haclient import Message, State, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.errors import ConnectionClosed, HaclientError, ReceiveTimeout, WrongThread
from haclient.events import AttemptStarted, Closed, Connected, Disconnected, Event, Reconnected
from haclient.testing.threads import in_thread
from tests.peers import BEHAVIOURS, Peer, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

NOBODY = Peer("127.0.0.1", 1)
FIFTY = 50


# -- many connections -------------------------------------------------------------------------


@pytest.mark.slow
async def test_fifty_connections_share_what_one_of_them_found_out(api: API) -> None:
    watch = Watch()
    async with (
        primary(begin_after=0.01) as good,
        BEHAVIOURS["close_forced"](good) as passive,
        BEHAVIOURS["redirect_in_open"](good) as redirecting,
    ):
        factory = await api.factory(url(passive, redirecting, good), on_event=watch)
        connections = await asyncio.gather(*(factory.connect() for _ in range(FIFTY)))
        assert {connection.state for connection in connections} == {State.CONNECTED}
        assert len(good.engines) == FIFTY
        # One search dialled all members; the other connections followed its result.
        assert len(passive.accepted) == len(redirecting.accepted) == 1
        assert factory.topology.primary == Endpoint(good.host, good.port)
        assert all(connection.factory._core is factory._core for connection in connections)
        assert good.most_opening <= 4
        # The same after all connections are lost at once.
        good.most_opening = 0
        good.drop()
        await watch.until(Reconnected, count=FIFTY)
        assert good.most_opening <= 4
        await factory.close()
        assert {connection.state for connection in connections} == {State.CLOSED}
        await good.until(lambda: not good.engines)


async def test_max_dials_bounds_what_hangs_at_the_members(api: API) -> None:
    watch = Watch()
    async with BEHAVIOURS["silence"](NOBODY) as one, BEHAVIOURS["silence"](NOBODY) as other:
        factory = await api.factory(url(one, other, max_dials=2, stagger=0.01), on_event=watch)
        connecting = [asyncio.ensure_future(factory.connect()) for _ in range(10)]
        await watch.until(AttemptStarted, count=2)
        await asyncio.sleep(0.3)  # time for thirty more
        assert len(one.accepted) == len(other.accepted) == 1
        await factory.close()
        for each in connecting:
            with pytest.raises(ConnectionClosed):
                await each


async def test_a_connection_of_a_factory_closes_alone(api: API) -> None:
    async with primary() as good:
        factory = await api.factory(url(good))
        one, other = await factory.connect(), await factory.connect()
        await one.close()
        assert (one.state, other.state) == (State.CLOSED, State.CONNECTED)
        await other.create_sender("q")
        await factory.close()
        assert other.state is State.CLOSED


# -- events -----------------------------------------------------------------------------------


async def test_a_slow_callback_does_not_stall_recovery(api: API) -> None:
    go_on = threading.Event()
    seen: list[Event] = []

    def slow(event: Event) -> None:
        go_on.wait(20)
        seen.append(event)

    async with primary() as good:
        connection = await api.connect(url(good), on_event=slow)
        good.drop()
        sender = await connection.create_sender("q")
        assert (await sender.send(Message(body="recovered"), timeout=10)).accepted
        assert seen == []
        go_on.set()
        await connection.close()
    kinds = [type(event) for event in seen]
    assert [kind for kind in kinds if kind in (Connected, Disconnected, Reconnected)] == [
        Connected,
        Disconnected,
        Reconnected,
    ]


async def test_a_raising_callback_is_logged_and_called_again(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()

    def raising(event: Event) -> None:
        watch(event)
        raise RuntimeError("in the application's callback")

    async with primary() as good:
        connection = await api.connect(url(good), on_event=raising)
        good.drop()
        await watch.until(Reconnected)
        await connection.close()
    await watch.until(Closed)
    assert "in the application's callback" in caplog.text


async def test_the_event_iterator_has_the_life_of_one_connection_and_ends(api: API) -> None:
    async with primary() as good:
        factory = await api.factory(url(good))
        connection, other = await factory.connect(), await factory.connect()
        events = connection.events()
        await other.close()
        # A round trip, so that the iterator has begun where events are made.
        await connection.create_sender("q")
        good.drop()
        seen: list[Any] = []
        async with asyncio.timeout(10):
            async for event in events:
                seen.append(event)
                if isinstance(event, Reconnected):
                    await connection.close()
        await factory.close()
    assert [type(event) for event in seen if isinstance(event, (Disconnected, Reconnected, Closed))] == [
        Disconnected,
        Reconnected,
        Closed,
    ]
    assert {event.stamp.connection for event in seen} == {1}
    numbers = [event.stamp.sequence for event in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_the_event_iterator_of_a_closed_connection_is_at_its_end(api: API) -> None:
    async with primary() as good:
        factory = await api.factory(url(good))
        connection = await factory.connect()
        await connection.close()
        async with asyncio.timeout(10):
            assert [event async for event in connection.events()] == []
        await factory.close()


# -- threads and processes --------------------------------------------------------------------


def test_use_after_a_fork_raises_wrong_thread() -> None:
    with in_thread(primary()) as good, haclient.connect(url(good)) as connection:
        sender = connection.create_sender("q")
        calls = [
            lambda: sender.send(Message()),
            lambda: sender.submit(Message()),
            lambda: connection.create_receiver("q"),
            connection.factory.connect,
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its warning is the case under test
            child = os.fork()
        if child == 0:
            os._exit(sum(not raises_wrong_thread(call) for call in calls))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert sender.send(Message(body="the parent goes on"), timeout=5).accepted


@pytest.mark.parametrize("client_id", ["", "me"])
def test_a_forked_process_is_another_client_than_its_parent_and_its_siblings(client_id: str) -> None:
    """Otherwise they would back off in step, and steal each other's links."""
    with in_thread(primary()) as good:
        factory = aio.ConnectionFactory(url(good), **({"client_id": client_id} if client_id else {}))
        seen = [asyncio.run(identity(factory)), *(in_a_fork(lambda: identity(factory)) for _ in range(2))]
        client_ids, links, drawn = (set(each) for each in zip(*seen, strict=True))
        assert len(drawn) == len(links) == 3
        assert client_ids == {client_id} if client_id else len(client_ids) == 3


def test_two_processes_with_one_client_id_give_links_other_names() -> None:
    with in_thread(primary()) as good:
        names = {asyncio.run(identity(aio.ConnectionFactory(url(good), client_id="me")))[1] for _ in range(2)}
        assert len(names) == 2


async def identity(factory: aio.ConnectionFactory) -> tuple[str, str, float]:
    """Return its client id, the name of a link, and numbers of its random source."""
    async with asyncio.timeout(20), factory.connect() as connection:
        sender = await connection.create_sender("q")
        return factory.client_id, sender._core.name, factory._core.shared().rng.random()


def in_a_fork(asked: Callable[[], Any]) -> Any:
    """Return the result of a coroutine function in a child process."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.write(writable, json.dumps(asyncio.run(asked())).encode())
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        found = answer.read()
    os.waitpid(child, 0)
    return json.loads(found)


def raises_wrong_thread(call: Any) -> bool:
    try:
        call()
    except WrongThread:
        return True
    except BaseException:  # noqa: BLE001 - in a forked child nothing may escape
        return False
    return False


def test_a_blocking_call_on_the_loop_thread_raises_wrong_thread() -> None:
    with in_thread(primary(grants=0)) as good, haclient.connect(url(good)) as connection:
        sender = connection.create_sender("q")
        raised: list[bool] = []
        called = threading.Event()

        def when_settled(_: object) -> None:
            calls = [lambda: sender.send(Message()), connection.close, connection.factory.connect]
            raised.extend(raises_wrong_thread(call) for call in calls)
            called.set()

        sender.submit(Message()).add_done_callback(when_settled)
        engine, _ = next(iter(good.engines.items()))
        engine._loop.call_soon_threadsafe(good.grant, 1)
        assert called.wait(10)
        assert raised == [True, True, True]
        assert connection.state is State.CONNECTED


def test_a_factory_that_was_closed_says_so() -> None:
    with in_thread(primary()) as good:
        factory = haclient.ConnectionFactory(url(good))
        connection = factory.connect()
        factory.close()
        assert connection.state is State.CLOSED
        factory.close()
        with pytest.raises(ConnectionClosed):
            factory.connect()


def test_several_threads_may_use_one_connection() -> None:
    with in_thread(primary(grants=20)) as good, haclient.connect(url(good, window=10)) as connection:
        sender = connection.create_sender("q")

        def send(thread: int) -> None:
            for number in range(50):
                sender.send(Message(body=[thread, number]), timeout=10)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        bodies = [tuple(body) for body in good.bodies]
        assert sorted(bodies) == [(thread, number) for thread in range(8) for number in range(50)]
        for thread in range(8):
            assert [number for who, number in bodies if who == thread] == list(range(50))


async def test_a_configure_that_raises_fails_its_link_alone(api: API) -> None:
    def configure(_endpoint: object) -> None:
        raise ValueError("in the application's configure")

    async with primary() as good:
        connection = await api.connect(url(good))
        for create in (connection.create_sender, connection.create_receiver):
            with pytest.raises(ValueError, match="application's configure"):
                await create("q", configure=configure)
        good.drop()
        sender = await connection.create_sender("q")
        assert (await sender.send(Message(), timeout=10)).accepted
        await connection.close()


@pytest.mark.slow
def test_a_thread_that_calls_while_another_closes_gets_an_error() -> None:
    """Whenever the close happens, no call waits for ever, and no coroutine stays unawaited."""
    with in_thread(primary()) as good:
        for _ in range(30):
            connection = haclient.connect(url(good))
            sender, receiver = connection.create_sender("q"), connection.create_receiver("r")
            ended: list[type[BaseException]] = []

            def use(call: Callable[[], object], ended: list[type[BaseException]] = ended) -> None:
                try:
                    while True:
                        call()
                except HaclientError as error:
                    ended.append(type(error))

            calls: list[Callable[[], object]] = [
                lambda sender=sender: sender.send(Message()),
                lambda sender=sender: sender.submit(Message()),
                lambda receiver=receiver: receiver.receive(timeout=0.0001),
                lambda connection=connection: connection.create_sender("q").close(),
            ]
            calls[2] = ignoring_timeouts(calls[2])
            threads = [threading.Thread(target=use, args=(call,)) for call in calls]
            for thread in threads:
                thread.start()
            connection.close()
            for thread in threads:
                thread.join(10)
                assert not thread.is_alive()
            assert ended == [ConnectionClosed] * len(calls)


def ignoring_timeouts(call: Callable[[], object]) -> Callable[[], object]:
    def without_timeouts() -> None:
        with contextlib.suppress(ReceiveTimeout):
            call()

    return without_timeouts


def test_a_future_that_is_cancelled_while_it_is_settled_harms_nobody() -> None:
    with in_thread(primary()) as good, haclient.connect(url(good)) as connection:
        sender = connection.create_sender("q")
        for number in range(2000):
            future = sender.submit(Message(body=number))
            if number % 2:
                future.cancel()
        sender.flush(timeout=20)
        assert connection._core.session_number == 1
        assert {number for number in good.bodies if number % 2 == 0} == set(range(0, 2000, 2))


async def test_two_event_loops_have_a_factory_each() -> None:
    async with primary() as good:
        async with aio.connect(url(good)) as one, aio.connect(url(good)) as other:
            assert one.factory is not other.factory
        assert {one.state, other.state} == {State.CLOSED}
