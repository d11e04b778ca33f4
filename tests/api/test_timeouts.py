"""Each call that waits has one deadline: its own ``timeout``, or an option's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import haclient
from haclient import Message, State
from haclient.api import blocking_sender
from haclient.api.send_futures import BlockingSendFuture
from haclient.errors import ConnectionClosed, DeadlineExceeded, LinkTimeout, SendTimeout
from haclient.testing.threads import in_thread
from tests.peers import BEHAVIOURS, Peer, Primary, primary, url
from tests.peers.apis import API

CREATE = pytest.mark.parametrize("create", ["create_sender", "create_receiver"])


@asynccontextmanager
async def connected(api: API, **options: Any) -> AsyncIterator[tuple[Any, Primary]]:
    async with primary() as peer:
        connection = await api.connect(url(peer), **options)
        try:
            yield connection, peer
        finally:
            await connection.close()


def stall(peer: Primary) -> Any:
    """Stop the peer's reading on its one connection; return the connection."""
    (transport,) = peer.transports
    transport.pause_reading()
    return transport


def assert_nothing_is_left(connection: Any) -> None:
    links = connection._core.links
    assert (links.all, links._names._used) == ({}, {})


@CREATE
async def test_a_link_that_the_primary_does_not_attach_in_time_is_given_up(api: API, create: str) -> None:
    async with connected(api) as (connection, peer):
        transport = stall(peer)
        with pytest.raises(LinkTimeout, match=r"'q' was not attached within 0.01 s$") as caught:
            await getattr(connection, create)("q", name="mine", timeout=0.01)
        assert (caught.value.connection_usable, caught.value.safe_to_retry) == (True, True)
        assert_nothing_is_left(connection)
        again = asyncio.ensure_future(getattr(connection, create)("q", name="mine", timeout=10))
        await asyncio.sleep(0)
        transport.resume_reading()
        link = await again
        if create == "create_sender":
            assert (await link.send(Message(body="one"), timeout=5)).accepted
        else:
            peer.put("q", "one")
            assert (await link.receive(timeout=5)).message.body == "one"
        await link.close()
        assert_nothing_is_left(connection)


@CREATE
async def test_a_link_created_in_an_outage_is_given_up_and_its_name_is_free(api: API, create: str) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer), backoff_base=0.001, backoff_max=0.001)
        host, port = peer.host, peer.port
        watching = connection.events()
    async for event in watching:
        if isinstance(event, haclient.events.Disconnected):
            break
    with pytest.raises(LinkTimeout, match=r"within 0.01 s: the connection has no primary"):
        await getattr(connection, create)("q", name="mine", timeout=0.01)
    assert_nothing_is_left(connection)
    again = asyncio.ensure_future(getattr(connection, create)("q", name="mine"))
    async with primary(host=host, port=port) as peer:
        await (await again).close()
        assert connection.state is State.CONNECTED
        await connection.close()


@CREATE
async def test_without_a_timeout_the_option_counts_and_infinity_is_none(api: API, create: str) -> None:
    async with connected(api, call_timeout=0.01) as (connection, peer):
        transport = stall(peer)
        with pytest.raises(LinkTimeout):
            await getattr(connection, create)("q")
        waiting = asyncio.ensure_future(getattr(connection, create)("q", timeout=math.inf))
        with pytest.raises(LinkTimeout):
            await getattr(connection, create)("another")
        assert not waiting.done()
        transport.resume_reading()
        await waiting


async def test_a_flush_without_a_timeout_has_that_of_the_option(api: API) -> None:
    async with connected(api, call_timeout=0.01) as (connection, peer):
        sender = await connection.create_sender("q", timeout=10)
        transport = stall(peer)
        future = await sender.submit(Message(body="one"))
        with pytest.raises(SendTimeout, match=r"1 messages are not settled after 0.01 s"):
            await sender.flush()
        flushing = asyncio.ensure_future(sender.flush(timeout=math.inf))
        with pytest.raises(SendTimeout):
            await sender.flush()
        assert not flushing.done()
        transport.resume_reading()
        await flushing
        assert (await future).accepted


async def test_an_infinite_timeout_of_a_send_or_receive_is_none(api: API) -> None:
    async with connected(api, send_timeout=0.01) as (connection, peer):
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("news")
        transport = stall(peer)
        sending = asyncio.ensure_future(sender.send(Message(body="one"), timeout=math.inf))
        receiving = asyncio.ensure_future(receiver.receive(timeout=math.inf))
        with pytest.raises(SendTimeout):
            await sender.send(Message(body="two"))
        assert not sending.done()
        transport.resume_reading()
        assert (await sending).accepted
        peer.put("news", "one")
        assert (await receiving).message.body == "one"


@CREATE
async def test_an_option_of_none_waits_until_the_connection_is_closed(api: API, create: str) -> None:
    async with connected(api, call_timeout=None) as (connection, peer):
        stall(peer)
        waiting = asyncio.ensure_future(getattr(connection, create)("q"))
        with pytest.raises(LinkTimeout):
            await getattr(connection, create)("another", timeout=0.01)
        assert not waiting.done()
        await connection.close()
        with pytest.raises(ConnectionClosed):
            await waiting


async def test_the_same_from_many_calls_at_once_leaves_nothing(api: API) -> None:
    async with connected(api) as (connection, peer):
        transport = stall(peer)
        calls = [connection.create_sender("q", name=f"link {number}", timeout=0.01) for number in range(20)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in found} == {LinkTimeout}
        assert_nothing_is_left(connection)
        transport.resume_reading()
        sender = await connection.create_sender("q")
        assert (await sender.send(Message(body="one"), timeout=5)).accepted
        await peer.until(lambda: [len(links) for links in peer.engines.values()] == [1])


async def test_a_connect_that_finds_no_primary_in_time_raises_and_leaves_nothing(api: API) -> None:
    async with BEHAVIOURS["refused"](Peer("127.0.0.1", 1)) as nobody:
        factory = await api.factory(url(nobody), backoff_base=0.001, backoff_max=0.001)
        for timeout in (0.01, 0):
            with pytest.raises(DeadlineExceeded):
                await factory.connect(timeout=timeout)
        assert not factory._core._connections
        await factory.close()


@pytest.mark.parametrize("timeout", [math.inf, 30])
async def test_a_timeout_of_connect_replaces_the_startup_deadline_and_no_later_one(
    api: API, timeout: float
) -> None:
    async with primary() as peer:
        factory = await api.factory(url(peer, startup_deadline=0.05, backoff_base=0.001, backoff_max=0.001))
        host, port = peer.host, peer.port
    connecting = asyncio.ensure_future(factory.connect(timeout=timeout))
    with pytest.raises(DeadlineExceeded):
        await factory.connect()
    assert not connecting.done()
    async with primary(host=host, port=port) as peer:
        connection = await connecting
        assert connection.state is State.CONNECTED
        await factory.close()


def test_a_blocking_send_that_waits_for_the_window_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(primary(grants=0)) as peer, haclient.connect(url(peer), window=1) as connection:
        sender = connection.create_sender("q")
        first = sender.submit(Message(body="fills the window"))
        clock, left = [100.0], list[float | None]()

        def waited(seconds: float | None, _function: object) -> None:
            left.append(seconds)
            clock[0] += 1.25

        def never(_future: object, timeout: float | None = None) -> None:
            left.append(timeout)
            raise TimeoutError

        monkeypatch.setattr(blocking_sender, "monotonic", lambda: clock[0], raising=False)
        with monkeypatch.context() as patched:
            patched.setattr(sender._thread, "call_within", waited)
            patched.setattr(BlockingSendFuture, "result", never)
            with pytest.raises(SendTimeout, match="within 3 s"):
                sender.send(Message(body="late"), timeout=3)
        assert left == [3, 1.75]
        first.cancel()
