"""Objects of the asyncio API belong to one event loop; a factory to one loop at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from haclient import Message, aio
from haclient.errors import WrongThread
from haclient.events import Disconnected
from haclient.testing.peers.listening import Peer
from haclient.testing.threads import in_thread, loop_in_thread
from tests.dropin.waiting import on_its_thread
from tests.peers import primary, url

CALLS: dict[str, Callable[[Any, Any, Any, Any], Awaitable[object]]] = {
    "create_sender": lambda connection, *_: connection.create_sender("q"),
    "create_receiver": lambda connection, *_: connection.create_receiver("q"),
    "close of a connection": lambda connection, *_: connection.close(),
    "send": lambda _, sender, *__: sender.send(Message()),
    "submit": lambda _, sender, *__: sender.submit(Message()),
    "submit_nowait": lambda _, sender, *__: sender.submit_nowait(Message()),
    "send_many": lambda _, sender, *__: sender.send_many([Message()]),
    "flush": lambda _, sender, *__: sender.flush(),
    "close of a sender": lambda _, sender, *__: sender.close(),
    "receive": lambda _, __, receiver, ___: receiver.receive(),
    "receive_many": lambda _, __, receiver, ___: receiver.receive_many(1),
    "accept_many": lambda _, __, receiver, delivery: receiver.accept_many([delivery]),
    "drain": lambda _, __, receiver, ___: receiver.drain(),
    "add_credit": lambda _, __, receiver, ___: receiver.add_credit(1),
    "detach": lambda _, __, receiver, ___: receiver.detach(),
    "subscribe": lambda connection, *_: connection.subscribe("news"),
    "unsubscribe": lambda connection, *_: connection.unsubscribe("news"),
    "close of a receiver": lambda _, __, receiver, ___: receiver.close(),
    "accept": lambda *all_: all_[3].accept(),
    "connect of a factory": lambda connection, *_: connection.factory.connect(),
    "the next event": lambda connection, *_: anext(connection.events()),
}


async def opened(peer: Any) -> tuple[aio.Connection, aio.Sender, aio.Receiver, aio.Delivery]:
    """Create one object of each kind."""
    connection = await aio.connect(url(peer))
    sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
    on_its_thread(peer, lambda: peer.put("q", "one"))
    return connection, sender, receiver, await receiver.receive(timeout=10)


@contextmanager
def primary_in_thread() -> Iterator[Peer]:
    with in_thread(primary()) as peer:
        yield peer


def test_a_call_on_another_loop_is_refused_and_changes_nothing() -> None:
    with primary_in_thread() as peer, loop_in_thread("another loop") as other:

        async def run() -> None:
            connection, sender, receiver, delivery = await opened(peer)
            for call in CALLS.values():

                async def on_the_other(call: Any = call) -> None:
                    with pytest.raises(WrongThread, match="event loop"):
                        await call(connection, sender, receiver, delivery)

                await asyncio.to_thread(other.call, on_the_other())
            assert (await sender.send(Message(), timeout=10)).accepted
            await delivery.accept()
            await connection.close()

        asyncio.run(run())


def test_an_iterator_over_events_is_used_on_the_loop_of_its_connection_alone() -> None:
    """On another loop ``anext`` would wait for ever, and ``close`` would not end the iteration."""
    with primary_in_thread() as peer, loop_in_thread("another loop") as other:

        async def run() -> None:
            async with aio.connect(url(peer, backoff_base=0.001)) as connection:
                events = connection.events()
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)

                async def on_the_other() -> None:
                    with pytest.raises(WrongThread, match="event loop"):
                        await anext(events)
                    with pytest.raises(WrongThread, match="event loop"):
                        await events.close()

                await asyncio.to_thread(other.call, on_the_other())
                assert not events.closed
                on_its_thread(peer, peer.drop)
                assert isinstance(await asyncio.wait_for(waiting, 10), Disconnected)
                await events.close()

        asyncio.run(run())


def test_what_another_run_left_open_says_so() -> None:
    with primary_in_thread() as peer, asyncio.Runner() as before:
        left = before.run(opened(peer))

        async def use(call: Callable[..., Awaitable[object]]) -> None:
            with pytest.raises(WrongThread, match="event loop"):
                await call(*left)

        for call in CALLS.values():
            asyncio.run(use(call))
        before.run(left[0].close())


def test_a_factory_serves_one_run_after_the_other() -> None:
    with primary_in_thread() as peer:
        factory = aio.ConnectionFactory(url(peer))

        async def visit() -> None:
            async with factory.connect() as connection, connection.create_sender("q") as sender:
                await sender.send(Message(), timeout=10)

        for _ in range(3):
            asyncio.run(visit())
        asyncio.run(factory.close())
        assert len(peer.accepted) == 3


async def test_a_coroutine_on_another_loop_is_posted_to_the_loop_of_its_connection() -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        sender, loop = await connection.create_sender("q"), asyncio.get_running_loop()

        def on_a_thread() -> bool:
            return (
                asyncio.run_coroutine_threadsafe(sender.send(Message(body="one")), loop).result(10).accepted
            )

        assert await asyncio.to_thread(on_a_thread)
        assert peer.bodies == ["one"]
