"""Messages without an outcome are reported: each end of a sender or a connection counts them."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import haclient
from haclient import aio
from haclient.errors import ConnectionGaveUp
from haclient.events import Closed, Event, GaveUp, Unsettled
from haclient.testing.threads import in_thread
from tests.dropin.waiting import wait_until
from tests.peers import primary, url
from tests.peers.apis import API
from tests.peers.process import primary_process
from tests.peers.watch import Watch

ROOT = Path(__file__).parents[2]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def without_stamp(event: Unsettled) -> tuple[Any, ...]:
    return event.count, event.reason, event.address


@pytest.mark.parametrize("closed", ["connection", "factory"])
async def test_a_close_counts_the_messages_without_an_outcome(
    api: API, closed: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    async with primary(outcome=None) as peer:
        factory = await api.factory(url(peer), client_id="orders", on_event=watch)
        connection = await factory.connect()
        sender, other = await connection.create_sender("q"), await connection.create_sender("r")
        for _ in range(5):
            await sender.submit("one")
        await other.submit("two")
        await (connection if closed == "connection" else factory).close()
        await factory.close()
    await watch.until(Closed)
    assert [without_stamp(each) for each in watch.of(Unsettled)] == [(6, "it was closed", None)]
    assert isinstance(watch.events[-1], Closed)  # which ends iterators of events
    text = "orders/1: the connection ended, and 6 messages have no outcome: it was closed"
    assert warnings_of(caplog) == [text]


async def test_the_close_of_a_sender_counts_its_messages_and_no_others(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer), client_id="orders", on_event=watch)
        sender, other = await connection.create_sender("q"), await connection.create_sender("r")
        for _ in range(3):
            await sender.submit("one")
        await other.submit("two")
        await sender.close()
        await sender.close()
        await connection.close()
    await watch.until(Closed)
    texts = [
        "orders/1: the sender to 'q' ended, and 3 messages have no outcome: the sender for 'q' is closed",
        "orders/1: the connection ended, and 1 messages have no outcome: it was closed",
    ]
    assert warnings_of(caplog) == texts
    assert [each.count for each in watch.of(Unsettled)] == [3, 1]


async def test_what_is_settled_withdrawn_or_flushed_is_not_counted(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer), on_event=watch)
        sender = await connection.create_sender("q")
        futures = [await sender.submit(number) for number in range(4)]
        futures.pop().cancel()
        peer.grant(10)
        await sender.flush()
        await connection.close()
    await watch.until(Closed)
    assert watch.of(Unsettled) == []
    assert warnings_of(caplog) == []


async def test_a_connection_that_gives_up_counts_them_too(api: API, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer, deadline=0.2), client_id="orders", on_event=watch)
        sender = await connection.create_sender("q")
        future = await sender.submit("one")
        await peer.until(lambda: peer.received)
    with pytest.raises(ConnectionGaveUp):
        await asyncio.wait_for(asyncio.wrap_future(future) if api.name == "blocking" else future, 20)
    await watch.until(GaveUp)
    assert [each.count for each in watch.of(Unsettled)] == [1]
    assert isinstance(watch.events[-1], GaveUp)
    assert "orders/1: the connection ended, and 1 messages have no outcome: no primary was found" in (
        warnings_of(caplog)
    )
    await connection.close()


async def test_a_link_that_the_primary_ends_counts_them_too(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer), client_id="orders", on_event=watch)
        sender = await connection.create_sender("q")
        await sender.submit("one")
        await peer.until(lambda: peer.received)
        peer.detach(proton.Condition("amqp:resource-deleted"))
        (ended,) = await watch.until(Unsettled)
        assert (ended.count, ended.address) == (1, "q")
        assert "amqp:resource-deleted" in ended.reason
        await connection.close()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=5), st.integers(0, 2**32))
def test_the_counts_of_all_ends_are_what_was_submitted_less_what_was_settled(
    messages: list[int], seed: int
) -> None:
    """Each message is counted once, in whatever order the objects are closed."""
    seen: list[Event] = []

    async def run() -> None:
        async with primary(outcome=None) as peer:
            factory = aio.ConnectionFactory(url(peer), on_event=seen.append)
            connections = [await factory.connect() for _ in range(2)]
            senders = []
            for number, count in enumerate(messages):
                sender = await connections[number % 2].create_sender(f"q{number}")
                for _ in range(count):
                    await sender.submit("x")
                senders.append(sender)
            closing: list[Any] = [*senders, *connections]
            rng = random.Random(seed)
            for each in rng.sample(closing, rng.randint(0, len(closing))):
                await each.close()
            await factory.close()

    asyncio.run(run())
    wait_until(lambda: len([each for each in seen if isinstance(each, Closed)]) == 2)
    assert sum(each.count for each in seen if isinstance(each, Unsettled)) == sum(messages)


# -- programs that close nothing -------------------------------------------------------------------

BLOCKING = """
import sys, haclient
connection = haclient.connect(sys.argv[1], client_id="orders", close_timeout=0.1)
sender = connection.create_sender("q")
for number in range(50):
    sender.submit(number)
"""
ASYNCIO = """
import asyncio, sys, haclient.aio
async def main():
    connection = await haclient.aio.connect(sys.argv[1], client_id="orders", close_timeout=0.1)
    sender = await connection.create_sender("q")
    for number in range(50):
        await sender.submit(number)
asyncio.run(main())
"""
DROP_IN = """
import sys, haclient.utils
from proton import Message
from haclient.reactor import Container
container = Container()
container.container_id = "orders"
connection = haclient.utils.BlockingConnection(sys.argv[1], timeout=5, container=container)
sender = connection.create_sender("q")
for number in range(50):
    sender.link.send(Message(body=number))
"""


def run_to_its_end(program: str, *options: str) -> str:
    """Run a program against a broker that settles nothing, and return its output."""
    with in_thread(primary(outcome=None)) as peer:
        ended = subprocess.run(
            [sys.executable, *options, "-c", program, url(peer)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    return ended.stderr


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO, DROP_IN], ids=["blocking", "aio", "drop-in"])
def test_a_program_that_ends_without_a_close_says_how_many(program: str) -> None:
    said = run_to_its_end(program)
    assert said.count("orders/1: the connection ended, and 50 messages have no outcome") == 1, said


def test_a_task_that_closes_when_the_program_ends_has_closed() -> None:
    """``asyncio.run`` cancels the application's tasks and the client's own together."""
    program = """
import asyncio, sys, haclient.aio
async def work(submitted):
    async with haclient.aio.connect(sys.argv[1], client_id="orders", close_timeout=0.1) as connection:
        sender = await connection.create_sender("q")
        for number in range(50):
            await sender.submit(number)
        submitted.set()
        await asyncio.sleep(600)
async def main():
    submitted = asyncio.Event()
    task = asyncio.create_task(work(submitted))
    await submitted.wait()
asyncio.run(main())
"""
    said = run_to_its_end(program, "-W", "always::ResourceWarning")
    assert said == "orders/1: the connection ended, and 50 messages have no outcome: it was closed\n"


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "aio"])
def test_a_program_that_closes_nothing_gets_a_resource_warning(program: str) -> None:
    said = run_to_its_end(program, "-W", "always::ResourceWarning")
    text = "ResourceWarning: orders/1: the connection was never closed, and 50 messages have no outcome"
    assert text in said


def test_the_drop_in_counts_them_at_its_close() -> None:
    said = run_to_its_end(DROP_IN + "connection.close()")
    assert said.count("orders/1: the connection ended, and 50 messages have no outcome") == 1, said


def test_a_stopped_broker_changes_nothing() -> None:
    seen: list[Event] = []
    with primary_process() as process:
        connection = haclient.connect(url(*process.peers, close_timeout=0.1), on_event=seen.append)
        sender = connection.create_sender("q")
        process.signal(signal.SIGSTOP)
        for number in range(500):
            sender.submit(number)
        connection.close()
        wait_until(lambda: any(isinstance(each, Closed) for each in seen))
    assert [each.count for each in seen if isinstance(each, Unsettled)] == [500]
