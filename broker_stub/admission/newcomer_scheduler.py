"""Reads newcomers' bytes in small time slices, so that established connections need not wait for all of them.

Theory of operation
-------------------
One iteration of the event loop reads every readable socket. In a storm that is a hundred newcomers at a time,
and established connections wait for the whole iteration. So the events of a newcomer's socket (bytes, end of
file, loss) only enter a queue. Each iteration spends one ``TimeSlice`` on that queue, and between two slices
the loop polls all sockets again. The bytes of an established connection go to its engine at once.

A refused or parked client counts as a newcomer: its heartbeats, its answer to the Close and its end are
scheduled here as well. The Attach of a newly admitted client is scheduled too, because it costs more than its
Open. So is the end of an established connection, because a thousand may end at once.

Rules
-----
* A slice is processor time: on a busy machine newcomers get the same share of the member's time.
* Work that has begun is finished: the slice only decides whether the next piece begins.
* One connection's bytes keep their order, and precede its end.
* Every slice runs at least one connection, however long it takes: a password check cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from haclient.engine.protocol import Engine

# Processor seconds: one or two steps of a handshake. A message of an established connection takes a few
# iterations of the loop; between two slices an iteration costs some twenty microseconds more.
TIME_SLICE = 0.0005


class TimeSlice:
    """The time slice of one iteration, which starts on construction."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.thread_time() + TIME_SLICE

    @property
    def is_used_up(self) -> bool:
        """Return whether the remaining connections must wait for the next iteration."""
        return time.thread_time() >= self._end


class NewcomerScheduler:
    """The queue of a member's connections with unread events; belongs to its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[ScheduledProtocol] = deque()
        self._next: asyncio.Handle | None = None

    def enqueue(self, protocol: ScheduledProtocol) -> None:
        """Queue a connection; an ended established one, such as a backup's, goes before all newcomers."""
        if protocol.passes_through:
            self._waiting.appendleft(protocol)
        else:
            self._waiting.append(protocol)
        if self._next is None:
            self._next = self._loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        time_slice = TimeSlice()
        while self._waiting:
            self._waiting.popleft().run_once()
            if time_slice.is_used_up:
                break
        self._next = self._loop.call_soon(self._run_slice) if self._waiting else None


class ScheduledProtocol(asyncio.Protocol):
    """The asyncio protocol of one connection's socket.

    :param is_established: returns whether the connection is no longer a newcomer.
    :ivar passes_through: true if its bytes go to the engine at once.
    """

    __slots__ = (
        "_data",
        "_engine",
        "_eof",
        "_is_established",
        "_lost",
        "_queued",
        "_scheduler",
        "_socket",
        "passes_through",
    )

    def __init__(
        self, engine: Engine, scheduler: NewcomerScheduler, is_established: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._is_established = is_established
        self.passes_through = False
        self._data: list[bytes] = []
        self._eof = False
        self._lost: tuple[Exception | None] | None = None
        self._queued = False
        self._socket: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the accepted socket to the engine."""
        # uvloop's transports do not derive from asyncio's, so this cannot be an isinstance check.
        self._socket = cast("asyncio.Transport", transport)
        self._engine.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the engine, or queue them."""
        if self.passes_through:
            self._engine.data_received(data)
        else:
            self._data.append(data)
            self._queue()

    def eof_received(self) -> bool:
        """Queue the end of file; the socket stays open until the engine has seen it."""
        self._eof = True
        self._queue()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Queue the loss of the socket."""
        self._lost = (exc,)
        self._queue()

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self._scheduler.enqueue(self)

    def run_once(self) -> None:
        """Pass the queued events to the engine."""
        self._queued = False
        engine, socket = self._engine, self._socket
        self._feed_data()
        if self._eof and engine.close_reason is None and socket is not None:
            self._eof = False
            engine.eof_received()
            socket.close()
        if self._lost is not None:
            engine.connection_lost(*self._lost)
        self.passes_through = self._is_established()

    def _feed_data(self) -> None:
        data, self._data = self._data, []
        if data and self._engine.close_reason is None:
            self._engine.data_received(data[0] if len(data) == 1 else b"".join(data))

    def pause_writing(self) -> None:
        """Report a full socket buffer to the engine."""
        self._engine.pause_writing()

    def resume_writing(self) -> None:
        """Report to the engine that the socket buffer has space again."""
        self._engine.resume_writing()
