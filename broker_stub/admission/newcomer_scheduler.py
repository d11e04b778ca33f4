"""Takes what newcomers send in small portions, so that those already in do not wait for all of them.

Theory of operation
-------------------
One turn of the event loop reads every socket that has something to read.  In a storm that is a hundred
newcomers at a time, and whoever is in already waits for the whole turn.  So what happens on the socket of
a connection that is not in yet only goes into a queue: its bytes, its end of file, its loss.  Each turn of
the loop spends one portion (``portion``) on that queue, and between two portions the loop looks at
all sockets again.  What one sends that is in goes to its engine at once.

A client that is refused or parked is not in: its heartbeats, its answer to the Close and its end are heard
here as well.  So is the Attach of one that was just admitted, which is dearer than its Open.  And so is the
end of one that was in, for a thousand of them may end at once.

Rules
-----
* One connection's bytes keep their order, and come before its end.
* At least one is heard in a turn, however long that takes: a password's check does not stop halfway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from broker_stub.admission.time_slice import Portion
from haclient.engine.protocol import Engine


class Gates:
    """The connections of one member that are to be heard.  Belongs to its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Gate] = deque()
        self._next: asyncio.Handle | None = None

    def put(self, gate: Gate) -> None:
        """This one is to be heard; the end of one that is in, such as a backup, before all newcomers."""
        if gate.open:
            self._waiting.appendleft(gate)
        else:
            self._waiting.append(gate)
        if self._next is None:
            self._next = self._loop.call_soon(self._hear)

    def _hear(self) -> None:
        portion = Portion()
        while self._waiting:
            self._waiting.popleft().hear()
            if portion.is_used_up:
                break
        self._next = self._loop.call_soon(self._hear) if self._waiting else None


class Gate(asyncio.Protocol):
    """The protocol of one connection's socket.

    :param is_in: whether it is a newcomer no more.
    :ivar open: whether what it sends goes to the engine at once.
    """

    __slots__ = ("_data", "_engine", "_eof", "_gates", "_is_in", "_lost", "_queued", "_socket", "open")

    def __init__(self, engine: Engine, gates: Gates, is_in: Callable[[], bool]) -> None:
        self._engine = engine
        self._gates = gates
        self._is_in = is_in
        self.open = False
        self._data: list[bytes] = []
        self._eof = False
        self._lost: tuple[Exception | None] | None = None
        self._queued = False
        self._socket: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket was accepted."""
        # uvloop's transports derive from nothing of asyncio's, so this cannot be an isinstance.
        self._socket = cast("asyncio.Transport", transport)
        self._engine.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came from the peer."""
        if self.open:
            self._engine.data_received(data)
        else:
            self._data.append(data)
            self._queue()

    def eof_received(self) -> bool:
        """asyncio: the peer will send no more.  The socket stays open until that was heard."""
        self._eof = True
        self._queue()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is closed."""
        self._lost = (exc,)
        self._queue()

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._gates.put(self)

    def hear(self) -> None:
        """It is this one's turn."""
        self._queued = False
        engine, socket = self._engine, self._socket
        self._hear_data()
        if self._eof and engine.ending is None and socket is not None:
            self._eof = False
            engine.eof_received()
            socket.close()
        if self._lost is not None:
            engine.connection_lost(*self._lost)
        self.open = self._is_in()

    def _hear_data(self) -> None:
        data, self._data = self._data, []
        if data and self._engine.ending is None:
            self._engine.data_received(data[0] if len(data) == 1 else b"".join(data))

    def pause_writing(self) -> None:
        """asyncio: the socket's buffer is full."""
        self._engine.pause_writing()

    def resume_writing(self) -> None:
        """asyncio: the socket's buffer has room again."""
        self._engine.resume_writing()
