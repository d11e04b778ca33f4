"""Calls inside callbacks: ``on_event``, ``on_encode``, ``configure``, ``credentials``."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any

import pytest

import haclient
from haclient import Credentials, Message, OutgoingMessage, aio
from haclient.errors import WrongThread
from haclient.events import Connected, Event
from haclient.testing.threads import in_thread
from tests.peers import primary, url
from tests.peers.apis import API


def test_on_event_may_make_blocking_calls_and_close_the_connection() -> None:
    connections: queue.Queue[haclient.Connection] = queue.Queue()
    done = threading.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, Connected):
            connection = connections.get(timeout=10)
            connection.create_sender("q").send(Message(body="from on_event"), timeout=10)
            connection.close()
            done.set()

    with in_thread(primary()) as peer:
        connections.put(haclient.connect(url(peer), on_event=on_event))
        assert done.wait(20)
        assert peer.bodies == ["from on_event"]


async def test_on_event_runs_on_a_thread_of_its_own_and_posts_to_the_loop() -> None:
    loop, seen = asyncio.get_running_loop(), asyncio.Queue[tuple[Event, int]]()

    def on_event(event: Event) -> None:
        loop.call_soon_threadsafe(seen.put_nowait, (event, threading.get_ident()))

    async with primary() as peer, aio.connect(url(peer), on_event=on_event):
        _, thread = await asyncio.wait_for(seen.get(), 10)
        assert thread != threading.get_ident()


def test_a_blocking_on_encode_may_send_and_what_it_sends_is_first() -> None:
    """A message sent before another one: a claim check, an announcement."""

    def on_encode(outgoing: OutgoingMessage) -> None:
        if outgoing.message.subject == "second":
            futures.append(sender.submit(Message(body="before")))

    futures: list[Any] = []
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        sender = connection.create_sender("q", on_encode=on_encode)
        thread = threading.Thread(
            target=sender.send, args=(Message(subject="second", body="after"),), daemon=True
        )
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        assert [future.result(10).accepted for future in futures] == [True]
        assert peer.bodies == ["before", "after"]


async def test_on_encode_runs_where_the_call_is_made(api: API) -> None:
    threads: list[int] = []

    def on_encode(_: OutgoingMessage) -> None:
        threads.append(threading.get_ident())

    async with primary() as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q", on_encode=on_encode)
        await sender.send(Message())
        here = threading.get_ident()
        loop_thread = None if api.name == "aio" else connection.inner._factory._thread._thread.ident
        assert (threads == [here]) == (api.name == "aio")
        assert loop_thread not in threads
        await connection.close()


async def test_what_on_encode_raises_is_raised_by_the_call_and_nothing_is_sent(api: API) -> None:
    def on_encode(outgoing: OutgoingMessage) -> None:
        if outgoing.message.body == "bad":
            raise ValueError("in the application's on_encode")

    async with primary() as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q", on_encode=on_encode)
        for call in (sender.send, sender.submit):
            with pytest.raises(ValueError, match="application's on_encode"):
                await call(Message(body="bad"))
        assert (await sender.send(Message(body="good"))).accepted
        assert peer.bodies == ["good"]
        await connection.close()


def test_a_blocking_call_in_configure_raises_wrong_thread() -> None:
    raised: list[BaseException] = []

    def configure(_: object) -> None:
        try:
            connection.create_sender("another")
        except WrongThread as error:
            raised.append(error)

    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        connection.create_sender("q", configure=configure)
        connection.create_receiver("q", configure=configure)
        assert len(raised) == 2


async def test_credentials_are_asked_for_on_a_thread_that_may_block(api: API) -> None:
    threads: list[str] = []

    def credentials() -> Credentials:
        threads.append(threading.current_thread().name)
        return Credentials(user=None, password=None)

    async with primary() as peer:
        connection = await api.connect(url(peer), credentials=credentials)
        (name,) = threads
        assert name not in ("haclient", threading.main_thread().name)
        await connection.close()


async def test_credentials_of_a_coroutine_function_are_asked_for_on_the_loop() -> None:
    threads: list[int] = []

    async def credentials() -> Credentials:
        await asyncio.sleep(0)
        threads.append(threading.get_ident())
        return Credentials(user=None, password=None)

    async with primary() as peer, aio.connect(url(peer), credentials=credentials):
        assert threads == [threading.get_ident()]
