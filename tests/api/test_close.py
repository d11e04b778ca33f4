"""``close()`` returns within a second in every state, whatever the peer does."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock, call

import psutil
import pytest

from haclient import Message, State, aio
from haclient.core import episode
from haclient.core.attempt import Attempt
from haclient.core.connection import ConnectionCore
from haclient.core.link_set import LinkSet
from haclient.engine.links import SenderLink
from haclient.engine.protocol import Engine
from haclient.errors import ConnectionClosed, ConnectionGaveUp, HaclientError, LinkClosed
from haclient.events import AttemptStarted, BackingOff, Closed, Disconnected
from haclient.outcome import ACCEPTED
from tests.peers import BEHAVIOURS, Peer, primary, url
from tests.peers.apis import API
from tests.peers.cutting import cut
from tests.peers.process import primary_process
from tests.peers.watch import Watch

NOBODY = Peer("127.0.0.1", 1)
# The bound that ``close`` promises.
A_SECOND = 1.0


def sockets_to(peer: Peer) -> list[Any]:
    """Return the connections of this process to a peer, as the kernel lists them."""
    found = psutil.Process().net_connections("tcp")
    return [each for each in found if each.raddr and each.raddr[:2] == (peer.host, peer.port)]


async def assert_quick(close: Callable[[], Awaitable[Any]]) -> None:
    begin = time.monotonic()
    async with asyncio.timeout(10):
        await close()
    assert time.monotonic() - begin < A_SECOND


@pytest.mark.parametrize("name", ["syn_drop", "silence", "stopped_process"])
async def test_a_factory_closes_while_a_connection_hangs_at_its_first_member(api: API, name: str) -> None:
    watch = Watch()
    async with BEHAVIOURS[name](NOBODY) as peer:
        factory = await api.factory(url(peer), on_event=watch)
        connecting = asyncio.ensure_future(factory.connect())
        await watch.until(AttemptStarted)
        await assert_quick(factory.close)
        with pytest.raises(ConnectionClosed):
            await connecting
    assert len(await watch.until(Closed)) == 1


async def test_a_factory_closes_while_a_connection_backs_off(api: API) -> None:
    watch = Watch()
    async with BEHAVIOURS["refused"](NOBODY) as peer:
        factory = await api.factory(url(peer), on_event=watch, backoff_base=30, backoff_max=60)
        connecting = asyncio.ensure_future(factory.connect())
        await watch.until(BackingOff)
        await assert_quick(factory.close)
        with pytest.raises(ConnectionClosed):
            await connecting


@pytest.mark.parametrize("name", ["syn_drop", "silence", "stopped_process", "refused"])
async def test_a_connection_closes_while_it_searches_for_another_primary(api: API, name: str) -> None:
    watch = Watch()
    async with BEHAVIOURS[name](NOBODY) as peer:
        async with primary() as good:
            connection = await api.connect(url(good, peer), on_event=watch, backoff_base=0.001)
        await watch.until(Disconnected)
        await watch.until(AttemptStarted, count=3)
        assert connection.state is State.RECONNECTING
        await assert_quick(connection.close)
    assert connection.state is State.CLOSED


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
async def test_a_connection_closes_while_a_send_waits_for_credit(api: API, stopped: bool) -> None:
    with primary_process(grants=0) as process:
        connection = await api.connect(url(*process.peers))
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send(Message(body="blocked")))
        await until_unsettled(sender, 1)
        if stopped:
            process.signal(signal.SIGSTOP)
        await assert_quick(connection.close)
        with pytest.raises(ConnectionClosed) as caught:
            await sending
    assert caught.value.delivered is False
    assert caught.value.safe_to_retry


async def test_a_connection_closes_while_the_window_is_full(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer), window=1)
        sender = await connection.create_sender("q")
        first = await sender.submit(Message(body="fills the window"))
        second = asyncio.ensure_future(sender.send(Message(body="waits for room")))
        flushing = asyncio.ensure_future(sender.flush())
        await asyncio.sleep(0)
        await assert_quick(connection.close)
        for waiting in (first, second, flushing):
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(waiting, 5)


async def test_a_message_that_was_on_the_wire_may_have_been_delivered(api: API) -> None:
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send(Message(body="on the wire")))
        await peer.until(lambda: peer.received)
        await assert_quick(connection.close)
        with pytest.raises(ConnectionClosed) as caught:
            await sending
    assert caught.value.delivered is None
    assert not caught.value.safe_to_retry


async def test_a_connection_closes_while_a_receive_waits(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q")
        receiving = asyncio.ensure_future(receiver.receive())
        await peer.until(lambda: peer.credit)
        await assert_quick(connection.close)
        with pytest.raises(ConnectionClosed):
            await receiving


async def test_a_connection_to_a_stopped_peer_closes(api: API) -> None:
    with primary_process() as process:
        connection = await api.connect(url(*process.peers))
        process.signal(signal.SIGSTOP)
        await assert_quick(connection.close)
    assert connection.state is State.CLOSED


@pytest.mark.slow
@pytest.mark.parametrize("turns", range(1, 5))
@pytest.mark.parametrize("closed", ["connection", "factory"])
async def test_a_close_that_is_cancelled_closes_the_socket_now(closed: str, turns: int) -> None:
    """A peer that never answers the Close would keep the socket for ever."""
    with primary_process() as process:
        (peer,) = process.peers
        factory = aio.ConnectionFactory(url(peer, close_timeout=600))
        connection = await factory.connect()
        process.signal(signal.SIGSTOP)
        closing = asyncio.ensure_future((factory if closed == "factory" else connection).close())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert sockets_to(peer)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(0)
        assert not sockets_to(peer)
        assert connection.state is State.CLOSED
        await factory.close()


@pytest.mark.slow
@pytest.mark.parametrize("turns", [1, 2, 4])
@pytest.mark.parametrize("closed", ["connection", "factory"])
@pytest.mark.parametrize("searching", [False, True], ids=["connected", "searching"])
async def test_a_close_that_is_cancelled_publishes_closed_once(
    closed: str, turns: int, searching: bool
) -> None:
    """Without the event an iterator of events hangs, and a gauge counts the connection for ever."""
    watch = Watch()
    with primary_process() as process:
        (peer,) = process.peers
        # A long backoff: a search that ends by itself would prove nothing.
        factory = aio.ConnectionFactory(
            url(peer, close_timeout=600, backoff_base=60, backoff_max=60), on_event=watch
        )
        connection = await factory.connect()
        events = connection.events()
        if searching:
            cut(connection)
            await watch.until(Disconnected)
        process.signal(signal.SIGSTOP)
        closing = asyncio.ensure_future((factory if closed == "factory" else connection).close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        async with asyncio.timeout(10):
            seen = [event async for event in events]
        assert [type(event) for event in seen if isinstance(event, Closed)] == [Closed]
        await asyncio.gather(connection.close(), connection.close())
        await factory.close()
        assert len(await watch.until(Closed)) == 1
        assert not ours()


async def test_of_two_closes_at_once_neither_cuts_the_other_short(api: API) -> None:
    async with primary() as peer:
        peer.put("q", *range(200))
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q", credit=200)
        for delivery in await receiver.receive_many(200, min_count=200, timeout=20):
            await delivery.accept()
        await asyncio.gather(connection.close(), connection.close())
        await peer.until(lambda: len(peer.outcomes) == 200)
        assert set(peer.outcomes) == {ACCEPTED}


def ours() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("haclient")]


def boom(*_: object) -> None:
    raise RuntimeError("a defect")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Engine, "begin"),
        (episode, "_announced_fleet"),
        (ConnectionCore, "adopt"),
        (LinkSet, "on_connected"),
    ],
)
async def test_a_defect_while_it_connects_leaves_no_socket(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with primary() as peer:
        monkeypatch.setattr(where, name, boom)
        with pytest.raises(ConnectionGaveUp):
            await aio.connect(url(peer, max_attempts=1))
        await asyncio.sleep(0)
        assert not sockets_to(Peer(peer.host, peer.port))


async def test_a_defect_at_the_close_of_a_primary_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        await connection.create_sender("q")
        (before,) = sockets_to(Peer(peer.host, peer.port))
        with monkeypatch.context() as patch:
            patch.setattr(SenderLink, "kill", boom)
            watching = connection.events()
            peer.close()
            async for event in watching:
                if isinstance(event, Disconnected):
                    break
            await asyncio.sleep(0)
        assert before not in sockets_to(Peer(peer.host, peer.port))


def test_the_end_of_a_loop_closes_the_socket() -> None:
    """``asyncio.run`` cancels the application's remaining tasks, in any order."""
    with primary_process() as process, asyncio.Runner() as runner:
        (peer,) = process.peers
        connection = runner.run(aio.connect(url(peer)).__aenter__())
        assert sockets_to(peer)
        runner.close()
        assert not sockets_to(peer)
    connection._closed = True  # without this, its collection warns


async def test_a_session_that_is_found_after_the_close_is_given_up() -> None:
    """A member admits a parked client at the moment at which the application closes."""
    async with primary() as peer:
        connection = await aio.connect(url(peer))
        await connection.close()
        attempt = Mock(spec=Attempt)
        connection._core.adopt(attempt)
        assert attempt.method_calls == [call.cancel()]
        assert connection.state is State.CLOSED


async def test_an_idle_connection_closes_with_a_close(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        assert len(peer.engines) == 1
        await assert_quick(connection.close)
        await peer.until(lambda: not peer.engines)
        await assert_quick(connection.close)  # a second close does no harm


@pytest.mark.parametrize("closed", ["receiver", "connection"])
async def test_what_was_accepted_before_a_close_reaches_the_primary(api: API, closed: str) -> None:
    """``accept`` does not wait for an answer, and the close follows it on the wire."""
    async with primary() as peer:
        peer.put("q", *range(200))
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q", credit=200)
        for delivery in await receiver.receive_many(200, min_count=200, timeout=20):
            await delivery.accept()
        await (receiver if closed == "receiver" else connection).close()
        await peer.until(lambda: len(peer.outcomes) == 200)
        assert set(peer.outcomes) == {ACCEPTED}
        await connection.close()


async def test_everything_on_a_closed_connection_raises(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        receiver = await connection.create_receiver("q")
        await connection.close()
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: sender.send(Message()),
            lambda: sender.submit(Message()),
            receiver.receive,
            lambda: connection.create_sender("q"),
            lambda: connection.create_receiver("q"),
        ]
        for call in calls:
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(result_of(call), 5)


async def result_of(call: Callable[[], Awaitable[Any]]) -> Any:
    result = await call()
    return await result if asyncio.isfuture(result) else result


async def test_closing_a_link_fails_who_waits_on_it_and_leaves_the_rest(api: API) -> None:
    async with connected(api, grants=0) as (connection, _):
        sender = await connection.create_sender("q")
        receiver = await connection.create_receiver("q")
        waiting = [
            asyncio.ensure_future(sender.send(Message(body="blocked"))),
            asyncio.ensure_future(receiver.receive()),
        ]
        await until_unsettled(sender, 1)
        await sender.close()
        await receiver.close()
        for each in waiting:
            with pytest.raises(LinkClosed):
                await asyncio.wait_for(each, 5)
        assert connection.state is State.CONNECTED
        await connection.create_receiver("another")


@asynccontextmanager
async def connected(api: API, **facts: Any) -> AsyncIterator[tuple[Any, Any]]:
    async with primary(**facts) as peer:
        connection = await api.connect(url(peer))
        try:
            yield connection, peer
        finally:
            await connection.close()


async def until_unsettled(sender: Any, count: int) -> None:
    """Poll, since a sender does not report that a message waits for credit."""
    async with asyncio.timeout(10):
        while sender.unsettled < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_every_error_of_a_closed_connection_is_one_of_ours() -> None:
    assert issubclass(ConnectionClosed, HaclientError)


async def test_what_was_settled_before_a_close_arrives_at_a_slow_peer(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        receiver = await connection.create_receiver("q")
        peer.put("q", *range(20))
        deliveries = [await receiver.receive() for _ in range(20)]
        (transport,) = peer.transports
        transport.pause_reading()
        for delivery in deliveries:
            await delivery.accept()
        closing = asyncio.ensure_future(connection.close())
        peer.put("q", *range(20))
        await asyncio.sleep(0.05)  # a slow peer is the case under test
        transport.resume_reading()
        await closing
        await peer.until(lambda: not peer.engines)
    assert peer.outcomes == [ACCEPTED] * 20
