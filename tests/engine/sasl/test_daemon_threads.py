"""Calls that hang take few threads, and no program waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import threading
import time
from collections.abc import Iterator

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

    for number in range(3 * MOST):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await called.run(lambda number=number: hang(number))  # type: ignore[misc]
    assert threads() == MOST
    assert not called._calls, "a cancelled call that waited is forgotten"
    last = asyncio.create_task(called.run(lambda: "answer"))
    await asyncio.sleep(0.01)
    assert not last.done()
    released.set()
    assert await last == "answer"
    assert len(begun) == MOST


async def test_a_child_process_has_threads_of_its_own(released: threading.Event) -> None:
    called = DaemonThreads(NAME)
    for _ in range(MOST):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await called.run(lambda: released.wait(60))
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.events._set_running_loop(None)
            answer = asyncio.new_event_loop().run_until_complete(called.run(lambda: 7))
            os._exit(answer)
        finally:
            os._exit(1)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7


async def test_a_function_for_credentials_that_hangs_leaves_the_executor_to_the_application() -> None:
    released = threading.Event()
    called = 0

    def ask() -> haclient.Credentials:
        nonlocal called
        called += 1
        released.wait(60)
        return haclient.Credentials()

    async with primary() as peer:
        for _ in range(2 * MOST):
            with pytest.raises(haclient.errors.DeadlineExceeded):
                await aio.connect(url(peer), credentials=ask, startup_deadline=0.02)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 30) == "free"
        released.set()
        async with aio.connect(url(peer), credentials=ask):
            pass
    assert called >= MOST


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
