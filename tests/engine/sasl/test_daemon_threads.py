"""Calls that hang take few threads, and no program waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

import haclient
from haclient import aio
from haclient.engine.sasl.daemon_threads import DaemonThreads
from tests.api.concurrency.test_processes import run
from tests.peers import primary, url

NAME = "haclient test"
MOST = 8


def threads() -> int:
    return sum(each.name == NAME for each in threading.enumerate())


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Ends the calls that hang, at the end of the test."""
    event = threading.Event()
    yield event
    event.set()
    end = time.monotonic() + 30.0
    while threads() and time.monotonic() < end:
        time.sleep(0.001)
    assert threads() == 0, "a thread ends when there is nothing to call"


async def test_each_caller_gets_its_own_answer_whoever_else_cancels() -> None:
    called = DaemonThreads(NAME)
    rng = random.Random()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")

    async def ask(number: int) -> int | str:
        variable.set(number)

        def answer() -> int:
            time.sleep(rng.random() * 0.002)
            if number % 5 == 0:
                raise KeyError(number)
            return variable.get()

        try:
            return await called.run(answer)
        except KeyError as error:
            return str(error)

    tasks = [asyncio.create_task(ask(number)) for number in range(200)]
    await asyncio.sleep(rng.random() * 0.02)
    cancelled = set(rng.sample(range(200), 60))
    for number in cancelled:
        tasks[number].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    for number, result in enumerate(found):
        expected = str(number) if number % 5 == 0 else number
        assert result == expected or (number in cancelled and isinstance(result, asyncio.CancelledError))


async def test_calls_that_hang_are_bounded_and_those_that_nobody_waits_for_are_not_made(
    released: threading.Event,
) -> None:
    called = DaemonThreads(NAME)
    begun: list[int] = []

    def hang(number: int) -> None:
        begun.append(number)
        released.wait(60)

    def begin(numbers: range) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(called.run(partial(hang, number))) for number in numbers]

    hanging = begin(range(MOST))
    async with asyncio.timeout(30):
        while len(begun) < MOST:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
    waiting = begin(range(MOST, 3 * MOST))
    last = asyncio.create_task(called.run(lambda: "answer"))
    await asyncio.sleep(0)
    assert len(called._calls) == 2 * MOST + 1
    for task in (*hanging, *waiting):
        task.cancel()
    await asyncio.wait((*hanging, *waiting))
    assert len(called._calls) == 1, "a cancelled call that waited is forgotten"
    assert threads() == MOST
    released.set()
    assert await last == "answer"
    assert len(begun) == MOST


async def test_a_function_for_credentials_that_hangs_leaves_the_executor_to_the_application() -> None:
    released = threading.Event()
    called = 0

    def ask() -> haclient.Credentials:
        nonlocal called
        called += 1
        released.wait(60)
        return haclient.Credentials()

    async with primary() as peer:
        factory = aio.ConnectionFactory(url(peer, startup_deadline=0.02), credentials=ask)
        async with asyncio.timeout(30):
            while called < MOST:
                with pytest.raises(haclient.errors.DeadlineExceeded):
                    await factory.connect()
            assert await asyncio.to_thread(lambda: "free") == "free"
        await factory.close()
        released.set()


FORKS = """
import asyncio, os, threading
from haclient.engine.sasl.daemon_threads import DaemonThreads
called = DaemonThreads("test")
begun = threading.Semaphore(0)
def hang():
    begun.release()
    threading.Event().wait()
async def parent():
    hanging = [asyncio.create_task(called.run(hang)) for _ in range(8)]
    await asyncio.sleep(0)
    for _ in hanging:
        begun.acquire()
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)
asyncio.run(parent())
if os.fork() == 0:
    print(asyncio.run(called.run(lambda: "the child's")), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_child_process_has_threads_of_its_own_when_all_of_its_parent_hang() -> None:
    ended = run(FORKS)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the child's\n", "")


PROGRAM = """
import sys, threading
import haclient
def ask():
    threading.Event().wait()
try:
    haclient.connect(sys.argv[1], credentials=ask, startup_deadline=0.2)
except haclient.errors.DeadlineExceeded:
    print("no answer")
"""


def test_a_program_ends_while_its_function_for_credentials_hangs() -> None:
    ended = run(PROGRAM, "amqp://127.0.0.1:1")
    assert (ended.returncode, ended.stdout.strip()) == (0, "no answer")
    assert "Traceback" not in ended.stderr
