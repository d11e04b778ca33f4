"""On uvloop a literal address needs no thread: the pool resolves names, and one lookup may block all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from haclient.core.attempt import _connect_socket

uvloop = pytest.importorskip("uvloop")

_PROGRAM = """
import asyncio, pathlib, sys
import uvloop
from haclient import aio
from haclient.errors import HaclientError

async def main():
    try:
        await aio.connect(sys.argv[1], timeout=0.2)
    except HaclientError as error:
        assert "refused" in str(error.attempts), error.attempts
    print(len(list(pathlib.Path("/proc/self/task").iterdir())), "encodings.idna" in sys.modules)

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


@contextlib.contextmanager
def client(family: socket.AddressFamily = socket.AF_INET) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.setblocking(False)
        yield made


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"]
)
def test_it_connects(family: socket.AddressFamily, host: str) -> None:
    async def main() -> None:
        with socket.create_server((host, 0), family=family) as server, client(family) as connection:
            await _connect_socket(asyncio.get_running_loop(), connection, server.getsockname()[:2])
            assert connection.getpeername() == server.getsockname()

    run(main())


def test_nobody_there_is_the_error_that_it_is() -> None:
    async def main() -> None:
        with client() as taken, client() as connection:
            taken.bind(("127.0.0.1", 0))  # bound, and it does not listen
            with pytest.raises(ConnectionRefusedError):
                await _connect_socket(asyncio.get_running_loop(), connection, taken.getsockname())

    run(main())


def test_a_call_that_is_cancelled_leaves_the_descriptor_to_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as server, contextlib.ExitStack() as others:
            server.bind(("127.0.0.1", 0))
            server.listen(0)
            waiting: asyncio.Task[None] | None = None
            while waiting is None or waiting.done():  # until the kernel's queue is full
                connection = others.enter_context(client())
                waiting = asyncio.create_task(_connect_socket(loop, connection, server.getsockname()))
                await asyncio.wait([waiting], timeout=0.2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not loop.remove_writer(connection)

    run(main())


def test_a_client_that_fails_over_between_addresses_has_no_thread_but_its_own() -> None:
    with client() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"amqp://127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, url], capture_output=True, text=True, check=True, timeout=60
        )
    assert done.stdout.split() == ["1", "False"]
