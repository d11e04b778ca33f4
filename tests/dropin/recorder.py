"""Handlers that record events, and containers that run beside a test.

Container and peers share the test's event loop, so a handler may act on a peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from proton.handlers import MessagingHandler

from haclient.reactor import Container
from haclient.testing.peers.listening import Peer, url

FAST: dict[str, Any] = {"backoff_base": 0.01, "backoff_max": 0.05}
PATIENCE = 20.0

_NOTED = frozenset(
    {
        "connection_opened",
        "session_opened",
        "link_opened",
        "sendable",
        "accepted",
        "released",
        "rejected",
        "settled",
        "message",
        "disconnected",
        "connection_closed",
        "connection_error",
        "link_error",
        "transport_error",
        "timer_task",
    }
)


class Recorder(MessagingHandler):
    """Records events, and runs the test's function for an event by its name.

    :param connect: its action at the start.
    :param does: any event by its name without ``on_``, or an argument of proton's handler.
    :ivar seen: the names of the usual events, and of events with a function of the test, in order.
    """

    def __init__(self, connect: Callable[[Container], Any], *, prefetch: int = 10, **does: Any) -> None:
        options = {name: does.pop(name) for name in ("auto_accept", "auto_settle") if name in does}
        super().__init__(prefetch=prefetch, **options)
        self.does = does
        self.seen: list[str] = []
        self.connection: Any = None
        self.sender: Any = None
        self._changed = asyncio.Event()
        self._connect = connect
        for name in (_NOTED | does.keys()) - {"start"}:
            setattr(self, f"on_{name}", partial(self.note, name))

    def on_start(self, event: Any) -> None:
        self.connection = self._connect(event.container)
        self.note("start", event)

    def note(self, name: str, event: Any) -> None:
        self.seen.append(name)
        self._changed.set()
        if name in self.does:
            self.does[name](event)

    async def until(self, name: str, times: int = 1) -> None:
        """Wait until an event was seen ``count`` times."""
        async with asyncio.timeout(PATIENCE):
            while self.seen.count(name) < times:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def running(handler: MessagingHandler) -> AsyncIterator[Container]:
    """Run a container beside the test; it must end by itself, or is cancelled after a failure."""
    container = Container(handler)
    task = asyncio.create_task(container.run_async())
    try:
        yield container
        async with asyncio.timeout(PATIENCE):
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def sending(*peers: Peer, **options: Any) -> Callable[[Container], Any]:
    """Connect, with a sender."""

    def connect(container: Container) -> Any:
        fast = {} if "reconnect" in options else FAST
        connection = container.connect(url(*peers), **{**fast, **options})
        container.create_sender(connection, "orders")
        return connection

    return connect


def receiving(*peers: Peer, **options: Any) -> Callable[[Container], Any]:
    """Connect, with a receiver."""

    def connect(container: Container) -> Any:
        connection = container.connect(url(*peers), **FAST, **options)
        container.create_receiver(connection, "orders")
        return connection

    return connect


def plain(address: str) -> Callable[[Container], Any]:
    """Connect once, with a sender."""

    def connect(container: Container) -> Any:
        connection = container.connect(address, reconnect=False)
        container.create_sender(connection, "orders")
        return connection

    return connect
