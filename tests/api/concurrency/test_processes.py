"""Other processes: forks, ``multiprocessing``, and the end of this process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import haclient
from haclient import Message, aio
from haclient.errors import WrongThread
from haclient.testing.threads import in_thread
from tests.peers import primary, url
from tests.peers.apis import API

ROOT = Path(__file__).parents[3]


def forked(child: Callable[[], object]) -> int:
    """Return the exit code of a child that runs a function and collects its garbage; 70 if it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads here are the case under test
        number = os.fork()
    if number == 0:
        code = 70
        try:
            code = int(bool(child()))
            gc.collect()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def send_one(where: str, body: str) -> bool:
    """Send one message, in a new process."""
    with haclient.connect(where) as connection, connection.create_sender("q") as sender:
        return sender.send(Message(body=body), timeout=10).accepted


# -- forks ----------------------------------------------------------------------------------------


def test_a_child_connects_anew_and_its_end_leaves_the_parent_alone() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        sender = connection.create_sender("q")
        assert forked(lambda: not send_one(url(peer), "child")) == 0
        assert sender.send(Message(body="parent"), timeout=10).accepted
        assert connection._core.session_number == 1, "the connection was lost"
        assert peer.bodies == ["child", "parent"]


async def test_an_asyncio_connection_is_refused_in_a_child_and_goes_on_in_the_parent() -> None:
    with in_thread(primary()) as peer:
        async with aio.connect(url(peer)) as connection:
            sender = await connection.create_sender("q")

            async def use() -> bool:
                try:
                    await sender.send(Message(body="child"))
                except WrongThread:
                    return True
                return False

            def child() -> bool:
                step = use()
                try:
                    step.send(None)  # as the parent's loop, which goes on in the child, would
                except StopIteration as end:
                    return not end.value
                return True

            assert forked(child) == 0
            assert (await sender.send(Message(body="parent"), timeout=10)).accepted
            assert peer.bodies == ["parent"]


# -- multiprocessing ------------------------------------------------------------------------------


async def test_what_belongs_to_a_process_cannot_be_pickled(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer))
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        peer.put("q", "one")
        delivery = await receiver.receive()
        for each in (connection, sender, receiver, delivery):
            inner = getattr(each, "inner", each)
            with pytest.raises(
                TypeError, match=f"a {type(inner).__name__} cannot be pickled: give the other"
            ):
                pickle.dumps(inner)
        await connection.close()


def test_worker_processes_connect_by_the_url() -> None:
    with in_thread(primary()) as peer:
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawned) as pool:
            assert list(pool.map(send_one, [url(peer)] * 2, ["one", "two"], timeout=60)) == [True, True]
        assert peer.bodies == ["one", "two"]


# -- the end of the interpreter -------------------------------------------------------------------


BLOCKING = """
import sys, haclient
connection = haclient.connect(sys.argv[1])
sender, receiver = connection.create_sender("q"), connection.create_receiver("q")
future = sender.submit(haclient.Message(body="one"))
"""
ASYNCIO = """
import asyncio, sys, haclient.aio
async def main():
    global connection, sender, future
    connection = await haclient.aio.connect(sys.argv[1])
    sender = await connection.create_sender("q")
    future = await sender.submit(haclient.Message(body="one"))
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "aio"])
def test_a_process_that_closes_nothing_ends_without_a_traceback(program: str) -> None:
    with in_thread(primary(outcome=None)) as peer:
        ended = run(program, url(peer))
        assert (ended.returncode, ended.stdout) == (0, "")
        (line,) = ended.stderr.splitlines()
        assert "/1: the connection ended, and 1 messages have no outcome: " in line


def test_an_exit_handler_flushes_and_closes() -> None:
    program = f"{BLOCKING}\nimport atexit\natexit.register(lambda: (sender.flush(), connection.close()))"
    with in_thread(primary()) as peer:
        ended = run(program, url(peer))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert peer.bodies == ["one"]


DAEMON = """
import sys, threading, haclient
def serve():
    with haclient.connect(sys.argv[1]) as connection:
        attached = connection.create_receiver("q")
        receiving.set()
        for delivery in attached:
            pass
receiving = threading.Event()
threading.Thread(target=serve, daemon=True).start()
receiving.wait(20)
"""


def test_a_daemon_thread_that_receives_ends_quietly_with_the_process() -> None:
    """The process closes its connection, and the thread closes it too."""
    with in_thread(primary()) as peer:
        ended = run(DAEMON, url(peer))
        assert (ended.returncode, ended.stderr) == (0, "")


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process, which ends soon."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
