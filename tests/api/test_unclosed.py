"""Unclosed objects: a sender keeps its connection; an unreachable connection is closed with a warning."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import haclient
from haclient import Message, aio
from haclient.events import Closed, Reconnected
from haclient.testing.threads import in_thread
from tests.dropin.waiting import wait_until
from tests.peers import primary, url
from tests.peers.apis import API

ROOT = Path(__file__).parents[2]
FAST: dict[str, Any] = {"backoff_base": 0.001, "backoff_max": 0.01}


# -- references that keep a connection ------------------------------------------------------------


async def test_a_program_that_keeps_only_the_sender_goes_on(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer), **FAST)
        sender = await connection.create_sender("q")
        kept = weakref.ref(getattr(connection, "inner", connection))
        del connection
        gc.collect()
        peer.drop()
        assert (await sender.send(Message(body="after a failover"), timeout=10)).accepted
        await _close(kept)


async def test_a_program_that_keeps_only_the_receiver_goes_on(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer), **FAST)
        receiver = await connection.create_receiver("q")
        kept = weakref.ref(getattr(connection, "inner", connection))
        del connection
        gc.collect()
        peer.drop()
        peer.put("q", "one")
        await (await receiver.receive(timeout=10)).accept()
        await _close(kept)


async def test_a_program_that_keeps_only_the_events_goes_on(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer), **FAST)
        events = connection.events()
        await connection.create_receiver("q")  # a round trip: the iterator has begun
        kept = weakref.ref(getattr(connection, "inner", connection))
        del connection
        gc.collect()
        peer.drop()
        async with asyncio.timeout(10):
            while not isinstance(await anext(events), Reconnected):
                pass
        await _close(kept)


async def test_a_program_that_keeps_only_a_future_gets_its_outcome(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        future = await sender.submit(Message(body="waits for credit"))
        kept = weakref.ref(getattr(connection, "inner", connection))
        del connection, sender
        gc.collect()
        peer.grant(1)
        assert (await asyncio.wait_for(future, 10)).accepted
        await _close(kept)


async def _close(kept: weakref.ref[Any]) -> None:
    connection = kept()
    assert connection is not None
    closing = connection.close()
    if closing is not None:
        await closing


# -- collected objects -----------------------------------------------------------------------------


def blocking_connection(where: str) -> object:
    connection = haclient.connect(where, client_id="orders")
    connection.create_sender("q").send(Message(body="one"), timeout=10)
    return connection


def blocking_factory(where: str) -> object:
    factory = haclient.ConnectionFactory(where, client_id="orders")
    with factory.connect() as connection:
        connection.create_sender("q").send(Message(body="one"), timeout=10)
    return factory


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (blocking_connection, "<haclient.Connection orders/1: "),
        (blocking_factory, "<haclient.ConnectionFactory orders of amqp://"),
    ],
)
def test_what_was_never_closed_is_closed_with_a_warning(
    make: Callable[[str], object], text: str, warned: list[Any]
) -> None:
    with in_thread(primary()) as peer:
        thing = make(url(peer))
        (thread,) = [each for each in threading.enumerate() if each.name == "haclient"]
        del thing
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()
        wait_until(lambda: not peer.transports)
    assert_warned(warned, text)


async def test_an_asyncio_connection_that_was_never_closed_is_closed_with_a_warning(
    warned: list[Any],
) -> None:
    seen: list[Any] = []
    async with primary() as peer:
        connection = await aio.connect(url(peer), client_id="orders", on_event=seen.append)
        await (await connection.create_sender("q")).send(Message(body="one"), timeout=10)
        del connection
        gc.collect()
        await peer.until(lambda: not peer.engines)
        async with asyncio.timeout(10):
            while not any(isinstance(each, Closed) for each in seen):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert_warned(warned, "<haclient.aio.Connection orders/1: connected to amqp://")


async def test_the_other_connections_of_a_factory_go_on(api: API, warned: list[Any]) -> None:
    async with primary() as peer:
        factory = await api.factory(url(peer), client_id="orders")
        connection, other = await factory.connect(), await factory.connect()
        del connection
        gc.collect()
        await peer.until(lambda: len(peer.engines) == 1)
        assert (await (await other.create_sender("q")).send(Message(), timeout=10)).accepted
        await factory.close()
    assert_warned(warned, "Connection orders/1: ")


async def test_what_never_connected_or_is_closed_says_nothing(api: API, warned: list[Any]) -> None:
    await api.factory("amqp://127.0.0.1")
    async with primary() as peer:
        connection = await api.connect(url(peer))
        await connection.close()
        del connection
        factory = await api.factory(url(peer))
        await (await factory.connect()).close()
        await factory.close()
        del factory
        gc.collect()
    assert warned == []


def test_tracemalloc_shows_where_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[Any] = []
    gc.collect()
    with in_thread(primary()) as peer:
        tracemalloc.start(10)
        try:
            connection = blocking_connection(url(peer))
            monkeypatch.setattr("warnings.warn", lambda *_, source, **__: sources.append(source))
            del connection
            gc.collect()
            wait_until(lambda: sources)
            traceback = tracemalloc.get_object_traceback(sources[0])
        finally:
            tracemalloc.stop()
        wait_until(lambda: not peer.transports)
    assert traceback is not None
    assert any(frame.filename == __file__ for frame in traceback)
    monkeypatch.undo()
    sources[0]._closed = True  # it was resurrected, and is collected once more


BLOCKING = """
import sys, haclient
connection = haclient.connect(sys.argv[1], credentials=lambda: (None, None))
factory = haclient.ConnectionFactory(sys.argv[1])
other = factory.connect()
sender = other.create_sender("q")
"""
ASYNCIO = """
import asyncio, sys, haclient.aio
async def main():
    global connection, factory, other
    connection = await haclient.aio.connect(sys.argv[1], credentials=lambda: (None, None))
    factory = haclient.aio.ConnectionFactory(sys.argv[1])
    other = await factory.connect()
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "aio"])
def test_the_end_of_the_process_is_quiet(program: str) -> None:
    with in_thread(primary()) as peer:
        ended = subprocess.run(
            [sys.executable, "-W", "always::ResourceWarning:haclient", "-c", program, url(peer)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (0, "")
        assert "haclient" not in ended.stderr, ended.stderr
        assert "Traceback" not in ended.stderr, ended.stderr


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts of warnings; in a ``__del__`` they cannot be raised."""
    texts: list[str] = []

    def note(text: str, kind: type[Warning], **_: object) -> None:
        assert kind is ResourceWarning
        texts.append(text)

    gc.collect()  # leftovers of other tests
    monkeypatch.setattr("warnings.warn", note)
    return texts


def assert_warned(warned: list[str], text: str) -> None:
    (found,) = warned
    assert text in found
    assert found.endswith("was never closed: call close(), or use it in a 'with' block")
