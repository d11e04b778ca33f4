"""Takes the bytes of newcomers in small portions, so that those already in do not wait for all of them.

Theory of operation
-------------------
One turn of the event loop reads every socket that has something to read.  In a storm that is a hundred
handshakes at a time, and whoever is in already waits for the whole turn.  So until its Open has come, a
connection's bytes only go into a queue; in each turn of the loop ``_BUDGET`` seconds are spent on it, and
between two portions the loop looks at all sockets again.  When the Open has come and nothing is left in
the queue, the engine is the socket's protocol, and the gate is gone.

Rules
-----
* One connection's bytes keep their order, and come before its end.
* At least one newcomer is heard in a turn, however long that takes: a password's check does not stop halfway.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from haclient.engine.protocol import Engine

# Processor seconds a turn: a few handshakes' worth of work, and little beside a message's own way.
_BUDGET = 0.001


class Gates:
    """The newcomers of one member that have sent something.  Belongs to its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Gate] = deque()
        self._next: asyncio.Handle | None = None

    def put(self, gate: Gate) -> None:
        """This one is to be heard."""
        self._waiting.append(gate)
        if self._next is None:
            self._next = self._loop.call_soon(self._hear)

    def _hear(self) -> None:
        end = time.thread_time() + _BUDGET
        while self._waiting:
            self._waiting.popleft().hear()
            if time.thread_time() >= end:
                break
        self._next = self._loop.call_soon(self._hear) if self._waiting else None


class Gate(asyncio.Protocol):
    """One newcomer's protocol until its Open has come.

    :param is_open: whether it has.
    """

    __slots__ = ("_data", "_engine", "_gates", "_is_open", "_socket")

    def __init__(self, engine: Engine, gates: Gates, is_open: Callable[[], bool]) -> None:
        self._engine = engine
        self._gates = gates
        self._is_open = is_open
        self._data: list[bytes] = []
        self._socket: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket was accepted."""
        # uvloop's transports derive from nothing of asyncio's, so this cannot be an isinstance.
        self._socket = cast("asyncio.Transport", transport)
        self._engine.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came from the peer."""
        if not self._data:
            self._gates.put(self)
        self._data.append(data)

    def hear(self) -> None:
        """It is this one's turn."""
        data, self._data = self._data, []
        if not data or self._engine.ending is not None:
            return
        self._engine.data_received(data[0] if len(data) == 1 else b"".join(data))
        if self._is_open() and self._socket is not None and not self._socket.is_closing():
            self._socket.set_protocol(self._engine)

    def eof_received(self) -> bool:
        """asyncio: the peer will send no more."""
        self.hear()
        return self._engine.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is closed."""
        self.hear()
        self._engine.connection_lost(exc)

    def pause_writing(self) -> None:
        """asyncio: the socket's buffer is full."""
        self._engine.pause_writing()

    def resume_writing(self) -> None:
        """asyncio: the socket's buffer has room again."""
        self._engine.resume_writing()
