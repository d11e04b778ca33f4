"""``flush`` waits for every earlier send; a ``with`` block flushes at its end, ``close`` does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from haclient import Message, State, aio
from haclient.core.sender import SenderCore
from haclient.errors import (
    ConnectionClosed,
    ConnectionGaveUp,
    HaclientError,
    LinkClosed,
    MessageNotAccepted,
    SendTimeout,
)
from haclient.outcome import ACCEPTED, RELEASED
from haclient.testing.virtual_clock import virtual_time
from tests.peers import Primary, primary, url
from tests.peers.apis import API, Threaded, on_thread

FAST: dict[str, Any] = {"backoff_base": 0.001, "backoff_max": 0.001}


@asynccontextmanager
async def connected(api: API, *, grants: int = 0, **options: Any) -> AsyncIterator[tuple[Any, Primary]]:
    async with primary(grants=grants) as peer:
        connection = await api.connect(url(peer), **options)
        try:
            yield connection, peer
        finally:
            await connection.close()


async def send(sender: Any, *bodies: object) -> list[Any]:
    return [await sender.submit(Message(body=body)) for body in bodies]


async def leave(thing: Any, error: BaseException | None = None) -> None:
    """Leave the block of a ``with`` statement."""
    kind = None if error is None else type(error)
    if isinstance(thing, Threaded):
        await on_thread(thing.inner.__exit__, kind, error, None)
    else:
        await thing.__aexit__(kind, error, None)


async def begin(call: Coroutine[Any, Any, None], sender: Any) -> asyncio.Task[None]:
    """Begin a call, and wait until one more flush of a sender runs."""
    before = len(sender._core._flushing)
    task = asyncio.ensure_future(call)
    await until_flushing(sender, before + 1)
    return task


async def until_flushing(sender: Any, count: int = 1) -> None:
    """Poll, since a sender does not report that a flush waits."""
    async with asyncio.timeout(10):
        while len(sender._core._flushing) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def settle(core: SenderCore, number: int) -> None:
    """Settle a message on the wire, as the engine does."""
    link = core._link
    assert link is not None
    delivery = list(link.unsettled)[number]
    core.settled(link, link.unsettled.pop(delivery), ACCEPTED)


# -- flush ------------------------------------------------------------------------------------


async def test_a_flush_does_not_wait_for_what_is_sent_after_it(api: API) -> None:
    async with connected(api) as (connection, peer):
        sender = await connection.create_sender("q")
        before = await send(sender, 1, 2)
        flushing = await begin(sender.flush(timeout=30), sender)
        peer.grant(2)
        await peer.until(lambda: peer.bodies == [1, 2])
        await send(sender, *range(50))
        await flushing
        assert [future.done() for future in before] == [True, True]
        assert sender.unsettled == 50


async def test_a_flush_ends_beside_a_task_that_keeps_sending(api: API) -> None:
    async with connected(api, grants=10, window=5) as (connection, _):
        sender = await connection.create_sender("q")

        async def keep_sending() -> None:
            while True:
                await sender.submit(Message(body="more"))

        sending = asyncio.ensure_future(keep_sending())
        for _ in range(10):
            await sender.flush(timeout=30)
        sending.cancel()
        await asyncio.wait([sending])


async def test_a_flush_waits_for_each_message_whatever_their_order() -> None:
    async with primary(outcome=None) as peer, aio.connect(url(peer)) as connection:
        sender = await connection.create_sender("q")
        await send(sender, 1, 2, 3)
        await peer.until(lambda: len(peer.received) == 3)
        first = await begin(sender.flush(), sender)
        await send(sender, 4)
        await peer.until(lambda: len(peer.received) == 4)
        second = await begin(sender.flush(), sender)
        for done, number in ((False, 2), (False, 1)):
            settle(sender._core, number)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert first.done() is done
        settle(sender._core, 0)
        await first
        assert not second.done()
        settle(sender._core, 0)
        await second
        assert not sender._core._flushing


async def test_a_flush_without_messages_returns_and_one_of_rejected_messages_too(api: API) -> None:
    async with connected(api, grants=10) as (connection, peer):
        sender = await connection.create_sender("q")
        await sender.flush(timeout=0)
        peer.outcome = RELEASED
        (future,) = await send(sender, 1)
        await sender.flush(timeout=30)
        with pytest.raises(MessageNotAccepted):
            await future
        await sender.close()
        await sender.flush(timeout=30)


async def test_a_flush_does_not_wait_for_a_send_that_timed_out(api: API) -> None:
    async with connected(api) as (connection, _):
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send(Message(body=1), timeout=0.05))
        await asyncio.sleep(0)
        await sender.flush(timeout=30)
        with pytest.raises(SendTimeout):
            await sending


async def test_a_flush_raises_when_the_connection_gives_up_with_messages(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer), max_attempts=2, **FAST)
        sender = await connection.create_sender("q")
        futures = await send(sender, *range(50))
        flushing = await begin(sender.flush(timeout=30), sender)
    found = await asyncio.gather(*futures, flushing, return_exceptions=True)
    assert all(isinstance(error, ConnectionGaveUp) for error in found)
    for _ in range(2):
        with pytest.raises(ConnectionGaveUp):
            await sender.flush()
    assert connection.state is State.FAILED
    await leave(sender)
    await leave(connection)


async def test_a_flush_raises_nothing_of_a_connection_that_gave_up_without_messages(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer), max_attempts=2, **FAST)
        sender = await connection.create_sender("q")
        receiver = await connection.create_receiver("q")
        await sender.send(Message(body=1))
    with pytest.raises(ConnectionGaveUp):
        await receiver.receive(timeout=30)
    await sender.flush()


async def test_a_flush_raises_when_the_link_is_detached_with_messages(api: API) -> None:
    async with connected(api) as (connection, peer):
        sender = await connection.create_sender("q")
        await send(sender, 1)
        flushing = await begin(sender.flush(timeout=30), sender)
        await sender.close()
        with pytest.raises(LinkClosed):
            await flushing
        with pytest.raises(LinkClosed):
            await sender.flush()
        assert len(peer.engines) == 1


async def test_cancelled_messages_are_none_that_failed() -> None:
    async with primary(outcome=None) as peer, aio.connect(url(peer)) as connection:
        sender = await connection.create_sender("q")
        (future,) = await send(sender, "on the wire")
        await peer.until(lambda: peer.received)
        future.cancel()
        flushing = await begin(sender.flush(), sender)
        await sender.close()
        await flushing
        await sender.flush()


# -- the end of a block -----------------------------------------------------------------------


@asynccontextmanager
async def blocks(api: API, **options: Any) -> AsyncIterator[tuple[dict[str, Any], list[Any], Primary]]:
    """A factory, one of its connections and one of two senders, with messages that wait for credit."""
    async with primary(grants=0) as peer:
        factory = await api.factory(url(peer), **options)
        connection = await factory.connect()
        senders = [await connection.create_sender(address, timeout=20) for address in ("one", "two")]
        futures = [*await send(senders[0], *range(50)), *await send(senders[1], *range(50))]
        found = {"factory": factory, "connection": connection, "sender": senders[0]}
        try:
            yield found, futures, peer
        finally:
            await factory.close()
            await asyncio.gather(*futures, return_exceptions=True)


BLOCK = pytest.mark.parametrize("block", ["factory", "connection", "sender"])


def of_block(block: str, futures: list[Any]) -> list[Any]:
    return futures[:50] if block == "sender" else futures


@BLOCK
async def test_the_end_of_a_block_flushes(api: API, block: str) -> None:
    async with blocks(api) as (found, futures, peer):
        leaving = await begin(leave(found[block]), found["sender"])
        peer.grant(50)
        await leaving
        assert {(await future).state for future in of_block(block, futures)} == {ACCEPTED.state}
        assert found["connection"].state is (State.CONNECTED if block == "sender" else State.CLOSED)
        assert (found["sender"].unsettled, len(peer.received)) == (0, 100)


@BLOCK
async def test_a_connection_that_gives_up_while_the_end_of_a_block_flushes_is_its_error(
    api: API, block: str
) -> None:
    async with primary(grants=0) as peer:
        factory = await api.factory(url(peer), max_attempts=2, **FAST)
        connection = await factory.connect()
        sender = await connection.create_sender("q")
        futures = await send(sender, *range(50))
        found = {"factory": factory, "connection": connection, "sender": sender}
        leaving = await begin(leave(found[block]), sender)
    with pytest.raises(ConnectionGaveUp):
        await leaving
    await assert_failed(futures)
    await factory.close()


@BLOCK
async def test_an_exception_closes_without_a_flush(api: API, block: str) -> None:
    async with blocks(api) as (found, futures, _):
        await leave(found[block], ValueError("the block's own"))
        await assert_failed(of_block(block, futures))


@BLOCK
async def test_a_block_that_cannot_flush_in_time_says_so_and_is_closed(api: API, block: str) -> None:
    async with blocks(api, call_timeout=0.05) as (found, futures, peer):
        count = 50 if block == "sender" else 100
        with pytest.raises(
            SendTimeout, match=rf"^{count} messages are not settled after 0.05 s: the primary gives no credit"
        ):
            await leave(found[block])
        for future in of_block(block, futures):
            with pytest.raises(LinkClosed if block == "sender" else ConnectionClosed):
                await future
        await peer.until(lambda: block == "sender" or not peer.engines)


@pytest.mark.parametrize(
    ("block", "closed"),
    [
        ("factory", "factory"),
        ("connection", "factory"),
        ("connection", "connection"),
        ("sender", "factory"),
        ("sender", "connection"),
        ("sender", "sender"),
    ],
)
async def test_what_is_closed_in_the_block_is_left_quietly(api: API, block: str, closed: str) -> None:
    async with blocks(api) as (found, futures, _):
        await found[closed].close()
        await leave(found[block])
        await assert_failed(of_block(block, futures))


async def assert_failed(futures: list[Any]) -> None:
    found = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(error, HaclientError) for error in found)


async def test_a_sender_that_was_closed_in_the_block_of_its_connection_is_not_waited_for(api: API) -> None:
    async with connected(api) as (connection, _):
        sender = await connection.create_sender("q")
        (future,) = await send(sender, 1)
        await sender.close()
        await leave(connection)
        with pytest.raises(LinkClosed):
            await future


@pytest.mark.parametrize("when", ["in_the_block", "in_the_flush"])
@BLOCK
async def test_a_cancelled_block_closes_at_once(block: str, when: str) -> None:
    async with primary(grants=0) as peer, aio.ConnectionFactory(url(peer)) as factory:
        connection = await factory.connect()
        sender = await connection.create_sender("q")
        found = {"factory": factory, "connection": connection, "sender": sender}
        (future,) = await send(sender, 1)

        async def use() -> None:
            async with found[block]:
                if when == "in_the_block":
                    await asyncio.Event().wait()

        using = asyncio.ensure_future(use())
        await (asyncio.sleep(0) if when == "in_the_block" else until_flushing(sender))
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        with pytest.raises(LinkClosed if block == "sender" else ConnectionClosed):
            await future
        assert not sender._core._flushing


def test_the_senders_of_a_factory_are_flushed_at_once_under_one_deadline() -> None:
    async def leave_with_messages() -> None:
        async with primary(grants=0) as peer, aio.ConnectionFactory(url(peer), call_timeout=20) as factory:
            for _ in range(3):
                connection = await factory.connect()
                for address in ("one", "two"):
                    await send(await connection.create_sender(address), 1)
            began.append(clock.elapsed)

    began: list[float] = []
    with virtual_time() as clock:
        with pytest.raises(SendTimeout, match="6 messages are not settled after 20"):
            clock.run(leave_with_messages())
        assert clock.elapsed - began[0] == pytest.approx(20, abs=1)


@BLOCK
async def test_close_waits_for_nothing(api: API, block: str) -> None:
    async with blocks(api, call_timeout=None) as (found, futures, _):
        await found[block].close()
        await assert_failed(of_block(block, futures))
