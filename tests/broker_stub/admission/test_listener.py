"""Sockets are accepted one at a time, and accepting never stops for good."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker_stub.admission import listener as module
from broker_stub.admission.listener import Listener
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import until


class Door:
    """A listener that writes down what it does."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.exhausted = 0
        self.made: list[asyncio.Protocol] = []
        self.listener = Listener(
            self._make, asyncio.get_running_loop(), accept_delay=self._room, exhausted=self._exhaust
        )

    def _make(self) -> asyncio.Protocol:
        self.made.append(asyncio.Protocol())
        return self.made[-1]

    def _room(self) -> float:
        return self.delays.pop() if self.delays else 0.0

    def _exhaust(self) -> None:
        self.exhausted += 1


@asynccontextmanager
async def opened(address: Endpoint = Endpoint("127.0.0.1", 0)) -> AsyncIterator[Door]:  # noqa: B008
    door = Door()
    await door.listener.listen(address)
    try:
        yield door
    finally:
        door.listener.close()


def dial(port: int, count: int = 1) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


async def test_an_iteration_of_the_loop_accepts_one_and_the_next_ones_the_rest() -> None:
    async with opened() as door:
        sockets = dial(door.listener.port, 12)
        turns = []
        ready = door.listener._ready
        loop = asyncio.get_running_loop()

        def counted(listening: socket.socket) -> None:
            before = len(door.listener._connecting)
            ready(listening)
            turns.append(len(door.listener._connecting) - before)

        [listening] = door.listener._sockets
        loop.add_reader(listening, counted, listening)
        await until(lambda: len(door.made) == len(sockets))
        assert max(turns) == 1
        for each in sockets:
            each.close()


async def test_it_rests_when_there_is_no_room_and_goes_on_afterwards() -> None:
    async with opened() as door:
        door.delays = [0.05, 0.05]
        [client] = dial(door.listener.port)
        await until(lambda: len(door.made) == 1)
        assert door.delays == []
        client.close()


async def test_without_file_descriptors_it_makes_room_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Exhausted:
        """A listening socket for which there are no descriptors, twice."""

        def __init__(self, real: socket.socket) -> None:
            self.real, self.left = real, 2

        def accept(self) -> tuple[socket.socket, object]:
            if self.left:
                self.left -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self.real.accept()

        def fileno(self) -> int:
            return self.real.fileno()

        def close(self) -> None:
            self.real.close()

    monkeypatch.setattr(module, "_listening", lambda *args, made=module._listening: Exhausted(made(*args)))
    door = Door()
    door.listener = Listener(
        door._make, asyncio.get_running_loop(), accept_delay=door._room, exhausted=door._exhaust
    )
    await door.listener.listen(Endpoint("127.0.0.1", 0))
    [client] = dial(door.listener._sockets[0].real.getsockname()[1])
    await until(lambda: len(door.made) == 1)
    assert door.exhausted == 2
    assert caplog.text.count("cannot accept: Too many open files") == 1
    client.close()
    door.listener.close()


async def test_a_taken_address_is_an_error_and_leaves_nothing_open() -> None:
    async with opened() as door:
        with pytest.raises(OSError, match="in use"):
            await Door().listener.listen(Endpoint("127.0.0.1", door.listener.port))


async def test_a_name_with_two_addresses_is_listened_on_at_both(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    stream = (socket.AF_INET, socket.SOCK_STREAM, 0, "")

    async def both(*_: object, **__: object) -> list[object]:
        return [(*stream, ("127.0.0.1", 0)), (*stream, ("127.0.0.2", 0))]

    monkeypatch.setattr(loop, "getaddrinfo", both)
    async with opened(Endpoint("both", 0)) as door:
        clients = [socket.create_connection(each.getsockname()) for each in door.listener._sockets]
        assert len(clients) == 2
        await until(lambda: len(door.made) == 2)
        for each in clients:
            each.close()


async def test_closing_leaves_no_accepted_socket_behind() -> None:
    async with opened() as door:
        [client] = dial(door.listener.port)
        door.listener._ready(door.listener._sockets[0])
    await until(lambda: not door.listener._connecting)
    assert client.recv(1) == b""
    client.close()
