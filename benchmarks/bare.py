"""The engine without anything above it: what the ledger and discovery are compared with.

One connection, one session, one sending link, no cluster, no replay.  It keeps nothing of a
message once it is on the wire; with ``futures`` it resolves one future a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import proton

from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import Settings
from haclient.outcome import Outcome


class BareClient:
    """Connects, attaches, sends.  Both owner of its engine and of its link."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._open: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._done: asyncio.Future[None] | None = None
        self._left = 0
        self._may_send = asyncio.Event()
        self.engine: Engine
        self.link: SenderLink

    async def open(self, host: str, port: int) -> None:
        """Connect, Open, Begin, Attach; returns when there is credit."""
        await self._connect(host, port)
        await self.begin()

    async def connect(self, host: str, port: int) -> None:
        """Connect and Open; returns when the peer's Open has come."""
        await self._connect(host, port)
        await self._open

    async def begin(self) -> None:
        """Begin, Attach; returns when there is credit."""
        self.engine.begin()
        await self._ready

    async def _connect(self, host: str, port: int) -> None:
        settings = Settings(container_id="bare")
        _socket, self.engine = await self._loop.create_connection(
            lambda: Engine(self, settings, self._loop), host, port
        )
        self.engine.open()

    async def send_all(
        self, count: int, encode: Callable[[int], bytes], *, futures: bool
    ) -> list[asyncio.Future[Outcome]]:
        """Send ``count`` messages as credit allows and wait until all are settled."""
        self._left = count
        self._done = self._loop.create_future()
        kept: list[asyncio.Future[Outcome]] = []
        engine, link, create_future = self.engine, self.link, self._loop.create_future
        sent = 0
        while sent < count:
            credit = link.credit
            if credit == 0 or not engine.writable:
                self._may_send.clear()
                await self._may_send.wait()
                continue
            for number in range(sent, min(count, sent + credit)):
                future = None
                if futures:
                    future = create_future()
                    kept.append(future)
                link.send(encode(number), future)
                sent = number + 1
                if not engine.writable:
                    break
        await self._done
        return kept

    def abort(self) -> None:
        """Drop the connection."""
        self.engine.abort()

    # -- for the engine -------------------------------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """Open came."""
        if not self._open.done():
            self._open.set_result(None)

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Begin answered: attach."""
        self.link = engine.sender(session, "bare", self)
        self.link.endpoint.target.address = self._address
        engine.attach(self.link)

    def credit_given(self, link: SenderLink) -> None:
        """The first credit says that the link is usable."""
        if not self._ready.done():
            self._ready.set_result(None)
        self._may_send.set()

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """One message less to wait for."""
        if token is not None:
            token.set_result(outcome)
        self._left -= 1
        if self._left == 0 and self._done is not None:
            self._done.set_result(None)

    def writable_again(self, engine: Engine) -> None:
        """The socket takes bytes again."""
        self._may_send.set()

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """The connection is over."""
        if not self._ready.done():
            self._ready.set_exception(ConnectionError(str(reason)))

    def link_opened(self, link: SenderLink) -> None:
        """Credit follows."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Never in a benchmark."""

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Never from a broker."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """``ended`` follows."""


async def connect_and_send(host: str, port: int, address: str, encode: Callable[[int], bytes]) -> BareClient:
    """Everything from the TCP connect to one settled message."""
    client = BareClient(address)
    await client.open(host, port)
    await client.send_all(1, encode, futures=True)
    return client
