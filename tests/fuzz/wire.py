"""An event loop that never waits, and a transport without a socket, whose peer is a script.

Equal inputs behave equally: time passes only by steps of the script.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from haclient.factory import factory_core
from tests.fuzz.scram import Prover
from tests.fuzz.script import Kind, Step, wire
from tests.fuzz.target import Defect

_MOST_TURNS = 100
"""Loop iterations after each arrival: more than the longest chain of tasks needs for an answer."""
_MOST_SECONDS = 60.0


def fixed_names() -> AbstractContextManager[object]:
    """Give clients and their links the same names in every run, so that recorded answers match."""
    same = SimpleNamespace(uuid4=lambda: uuid.UUID(int=1))
    return mock.patch.object(factory_core, "uuid", same)


class Loop(asyncio.SelectorEventLoop):
    """Runs ready callbacks, with its own clock.

    :ivar defects: the uncaught exceptions.
    """

    def __init__(self) -> None:
        super().__init__(_Selector())
        self.now = 1000.0
        self.defects: list[str] = []
        self.wires: list[Wire] = []
        """The connections opened by a client's attempts."""
        self.set_exception_handler(lambda _, context: self.defects.append(_text(context)))

    def time(self) -> float:
        return self.now

    def turn(self) -> None:
        """Run callbacks until none is ready.

        Like ``run_forever``, but without a stop handle and without idle iterations.
        """
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook
        )  # type: ignore[attr-defined]
        self._thread_id = threading.get_ident()
        asyncio._set_running_loop(self)
        try:
            for _ in range(_MOST_TURNS):
                self._run_once()  # type: ignore[attr-defined]
                if not self._ready:  # type: ignore[attr-defined]
                    break
        finally:
            asyncio._set_running_loop(None)
            self._thread_id = None
            sys.set_asyncgen_hooks(*hooks)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and run every timer at its time."""
        end = self.now + min(seconds, _MOST_SECONDS)
        while self._scheduled and (when := self._scheduled[0].when()) <= end:  # type: ignore[attr-defined]
            self.now = max(self.now, when)
            self.turn()
        self.now = end
        self.turn()

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        return None

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], *, sock: socket.socket, **_: Any
    ) -> Any:
        protocol = protocol_factory()
        sock.close()
        made = Wire(self, protocol)
        self.wires.append(made)
        protocol.connection_made(made)
        return made, protocol


class _Selector(selectors.BaseSelector):
    """A selector without events."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def select(self, timeout: float | None = None) -> list[Any]:
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return {}


class Wire(asyncio.Transport):
    """One side of a connection; a script plays the peer.

    :ivar written: the number of bytes that the code has sent.
    """

    def __init__(self, loop: Loop, protocol: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._loop, self._protocol = loop, protocol
        self._closing = self._lost = False
        self._congested = False
        self.written = 0
        self.sent = bytearray()
        """The bytes written while ``keep`` was set."""
        self.keep = False
        self.prover: Prover | None = None
        """Makes the frames of ``Kind.PROOF`` steps; requires ``keep``."""

    # -- the code's side ----------------------------------------------------------------------

    def write(self, data: Any) -> None:
        self.written += len(data)
        if self.keep:
            self.sent += data

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        self.close()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        return None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None

    def is_reading(self) -> bool:
        return not self._closing

    # -- the script's side --------------------------------------------------------------------

    def play(self, steps: Iterable[Step]) -> None:
        """Play these steps as the peer, and then drop the connection."""
        self.say(steps)
        self.drop()

    def say(self, steps: Iterable[Step]) -> None:
        """Play these steps as the peer, and stay connected."""
        waiting = b""
        for step in steps:
            if step.kind is Kind.PROOF:
                self._arrive(waiting)
                waiting = wire(self._proof(step))
                continue
            if step.kind in (Kind.FRAME, Kind.SASL, Kind.RAW):
                if step.kind is Kind.SASL and self.prover is not None:
                    self.prover.said(step.body)
                waiting += wire(step)
                if not step.at_once:
                    self._arrive(waiting)
                    waiting = b""
                continue
            self._arrive(waiting)
            waiting = b""
            self._other(step)
        self._arrive(waiting)

    def _proof(self, step: Step) -> Step:
        body = b"" if self.prover is None else self.prover.frame(bytes(self.sent), step.body)
        return Step(Kind.SASL, body)

    def drop(self) -> None:
        """Lose the connection."""
        self._closing = True
        self._loop.call_soon(self._lose)
        self._loop.turn()

    def _arrive(self, data: bytes) -> None:
        if data:
            self._loop.call_soon(self._read, data)
        self._loop.turn()

    def _read(self, data: bytes) -> None:
        if not self._closing:
            self._protocol.data_received(data)

    def _other(self, step: Step) -> None:
        if step.kind is Kind.TIME:
            self._loop.advance((len(step.body) + sum(step.body[:4])) / 100)
        elif step.kind is Kind.CONGESTION:
            self._loop.call_soon(self._congest, bool(step.body[:1] and step.body[0] & 1))
        else:
            self._loop.call_soon(self._end)
        self._loop.turn()

    def _end(self) -> None:
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def _congest(self, stop: bool) -> None:
        if stop != self._congested and not self._lost:
            self._congested = stop
            (self._protocol.pause_writing if stop else self._protocol.resume_writing)()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)


class DefectLog(logging.Handler):
    """Collects log records with tracebacks: exceptions that the code did not expect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        for name in ("haclient", "broker_stub", "asyncio"):
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.propagate = False
            logger.setLevel(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:  # an error without a traceback is expected, such as a client that gives up
            self.records.append(self.format(record))

    def close(self) -> None:
        for name in ("haclient", "broker_stub", "asyncio"):
            logger = logging.getLogger(name)
            logger.removeHandler(self)
            logger.propagate = True
            logger.setLevel(logging.NOTSET)
        super().close()

    def check(self, loop: Loop) -> None:
        """Check that nothing was logged or left uncaught.

        :raises Defect: with the log records or exceptions.
        """
        found = self.records + loop.defects
        if found:
            self.records, loop.defects = [], []
            raise Defect("\n".join(found))


def _text(context: dict[str, Any]) -> str:
    error = context.get("exception")
    if error is None:
        return str(context.get("message"))
    logging.getLogger("asyncio").error("uncaught", exc_info=error)
    return f"{context.get('message')}: {error!r}"
