"""The listener accepts sockets one at a time, and never stops accepting for good."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker_stub.admission import listener as module
from broker_stub.admission.handshakes import PendingHandshake
from broker_stub.admission.listener import Listener
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import until


class Door:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.begin_delays: list[float] = []
        self.exhausted = 0
        self.made: list[asyncio.Protocol] = []
        self.listener = Listener(self._make, asyncio.get_running_loop(), self, timeout=30.0)
        self.silent: list[PendingHandshake] = []

    def _make(self) -> asyncio.Protocol:
        self.made.append(asyncio.Protocol())
        return self.made[-1]

    def accept_delay(self, now: float) -> float:
        return self.delays.pop() if self.delays else 0.0

    def begin_delay(self, now: float) -> float:
        return self.begin_delays.pop() if self.begin_delays else 0.0

    def wait_for(self, silent: PendingHandshake, now: float) -> None:
        self.silent.append(silent)

    def spoke(self, silent: PendingHandshake, now: float) -> None:
        self.silent.remove(silent)

    def done(self, handshake: PendingHandshake) -> None:
        self.silent.remove(handshake)

    def abort_oldest(self, why: str) -> None:
        self.exhausted += 1


@asynccontextmanager
async def opened(address: Endpoint = Endpoint("127.0.0.1", 0)) -> AsyncIterator[Door]:  # noqa: B008
    door = Door()
    await door.listener.listen(address)
    try:
        yield door
    finally:
        door.listener.close()


def dial(port: int, count: int = 1, *, say: bytes = b"AMQP") -> list[socket.socket]:
    dialled = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for each in dialled:
        each.sendall(say)
    return dialled


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
        """A listening socket that twice lacks a file descriptor."""

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
    door.listener = Listener(door._make, asyncio.get_running_loop(), door, timeout=30.0)
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
        for client in clients:
            client.sendall(b"A")
        assert len(clients) == 2
        await until(lambda: len(door.made) == 2)
        for each in clients:
            each.close()


async def test_closing_leaves_no_accepted_socket_behind() -> None:
    async with opened() as door:
        [client] = dial(door.listener.port)
        door.listener._ready(door.listener._sockets[0])
    await until(lambda: not door.listener._connecting)
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    client.close()


# -- clients that send nothing -----------------------------------------------------------------------


async def test_a_silent_socket_gets_no_protocol_before_its_first_byte() -> None:
    async with opened() as door:
        [silent] = dial(door.listener.port, say=b"")
        await until(lambda: door.silent)
        [spoken] = dial(door.listener.port)
        await until(lambda: len(door.made) == 1)
        silent.sendall(b"A")
        await until(lambda: len(door.made) == 2)
        assert not door.silent
        for each in (silent, spoken):
            each.close()


async def test_an_iteration_accepts_many_silent_sockets() -> None:
    async with opened() as door:
        sockets = dial(door.listener.port, 12, say=b"")
        door.listener._ready(door.listener._sockets[0])
        assert len(door.silent) == len(sockets)
        for each in sockets:
            each.close()
        await until(lambda: not door.silent)
        assert not door.made, "whoever only looks whether the port is open costs no engine"


async def test_those_that_speak_at_once_begin_one_in_an_iteration_and_when_they_may() -> None:
    async with opened() as door:
        sockets = dial(door.listener.port, 12, say=b"")
        await until(lambda: len(door.silent) == len(sockets))
        door.begin_delays = [0.01] * 3
        for each in sockets:
            each.sendall(b"A")
        begun: list[int] = []
        begin = door.listener._begin_next

        def counted() -> None:
            begun.append(len(door.listener._spoken))
            begin()

        door.listener._begin_next = counted  # type: ignore[method-assign]
        await until(lambda: len(door.made) == len(sockets))
        assert door.begin_delays == []
        assert len(begun) == len(sockets) + 3
        for each in sockets:
            each.close()


async def test_a_silent_socket_ends_after_the_time_out_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "broker_stub")
    async with opened() as door:
        door.listener._timeout = 0.02
        [client] = dial(door.listener.port, say=b"")
        await until(lambda: "closed 1 connections without a first byte" in caplog.text)
        assert "the client sent no AMQP Open" in caplog.text
        assert client.recv(1) == b""
        assert not door.silent
        client.close()


async def test_closing_ends_silent_sockets_and_those_that_wait_to_begin() -> None:
    async with opened() as door:
        silent, spoken = dial(door.listener.port, 2, say=b"")
        await until(lambda: len(door.silent) == 2)
        door.begin_delays = [60.0]
        spoken.sendall(b"A")
        await until(lambda: door.listener._spoken)
    for each in (silent, spoken):
        with contextlib.suppress(ConnectionResetError):
            assert each.recv(1) == b""
        each.close()
    assert not door.silent
