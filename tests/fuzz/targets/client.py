"""A client of a lying primary: a call ends with a result or a documented error, and the client closes.

Rules: no traceback is logged, and no exception stays uncaught. A call raises only ``HaclientError``
subclasses or its timeout. After ``close`` the client has no task and no timer left.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import proton

from haclient import aio
from haclient.engine.extra_sessions import ExtraSessions
from haclient.errors import HaclientError
from tests.fuzz.script import parse
from tests.fuzz.target import Defect, Target
from tests.fuzz.wire import DefectLog, Loop, Wire, fixed_names

_URL = "amqp://127.0.0.1,127.0.0.2/?heartbeat=2&max_attempts=6"
_COLLECT_EVERY = 500


class Client(Target):
    name = "client"
    scripted = True

    def __init__(self) -> None:
        self._names = fixed_names()
        self._names.__enter__()
        self._log = DefectLog()
        self._loop = Loop()
        asyncio.set_event_loop(self._loop)
        self._runs = 0

    def run(self, data: bytes) -> None:
        loop = self._loop
        loop.wires.clear()
        running = loop.create_task(self._program())
        loop.turn()
        if not loop.wires:
            raise Defect("the client has not dialled")
        self._play(loop.wires[0], data)
        loop.advance(1)
        for wire in tuple(loop.wires[1:]):
            wire.drop()
        running.cancel()
        loop.turn()
        self._check(running)
        self._runs += 1
        if not self._runs % _COLLECT_EVERY:
            gc.collect()

    async def _program(self) -> None:
        await program(_URL)

    def _play(self, wire: Wire, data: bytes) -> None:
        wire.play(parse(data))

    def _check(self, running: asyncio.Task[None]) -> None:
        loop = self._loop
        left = [task.get_name() for task in asyncio.all_tasks(loop)]
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.advance(60)
        timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        self._log.check(loop)
        if left:
            raise Defect(f"after close there is {left}")
        if timers:
            raise Defect(f"after close there is {timers}")
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error

    def planted(self) -> AbstractContextManager[object]:
        """A session that the primary ends raises an error in the client."""

        def wrong(*_: object) -> None:
            raise KeyError("session")

        return mock.patch.object(ExtraSessions, "ended_by_peer", wrong)

    def close(self) -> None:
        self._names.__exit__(None, None, None)
        self._log.close()
        self._loop.close()


async def program(url: str) -> None:
    """The client's program. The seeds record the same program with an honest member."""
    connection = await _or_none(aio.connect(url))
    if connection is None:
        return
    async with connection:
        await asyncio.gather(_send(connection), _receive(connection))
        await _others(connection)


async def _send(connection: aio.Connection) -> None:
    sender = await _or_none(connection.create_sender("orders", timeout=30))
    if sender is not None:
        await _or_none(sender.send("one", timeout=5))
        await _or_none(sender.send_many([b"two", "three"], timeout=5))
        await _or_none(sender.close())


async def _receive(connection: aio.Connection) -> None:
    receiver = await _or_none(connection.create_receiver("orders", credit=3, timeout=30))
    if receiver is None:
        return
    for settle in ("accept", "release", "reject"):
        delivery = await _or_none(receiver.receive(timeout=5))
        if delivery is not None:
            await _or_none(getattr(delivery, settle)())
    await _or_none(receiver.close())


async def _others(connection: aio.Connection) -> None:
    """Attach unusual links."""
    sender = await _or_none(connection.create_sender(None, timeout=5))
    if sender is not None:
        await _or_none(sender.send(proton.Message(address="topics/a.b", body="x" * 700), timeout=5))
    for options in ({"browse": True}, {"selector": "a = 1"}):
        receiver = await _or_none(connection.create_receiver("orders", credit=2, timeout=5, **options))
        if receiver is not None:
            await _or_none(receiver.receive(timeout=5))
            await _or_none(receiver.drain(timeout=5))
            await _or_none(receiver.close())
    await _or_none(connection.subscribe("topics", name="n", shared=True, strict=False, timeout=5))


async def _or_none(call: Any) -> Any:
    try:
        return await call
    except (HaclientError, TimeoutError):
        return None


TARGET = Client
