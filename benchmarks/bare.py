"""The bare engine, with which ledger and discovery are compared.

One connection, one session, one sending link, no cluster, no replay. Nothing of a message is kept once it is
sent; with ``futures``, one future per message is resolved.
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
    """Connects, attaches, sends; owner of both its engine and its link."""

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
        """Connect, Open, Begin, Attach; return when there is credit."""
        await self._connect(host, port)
        await self.begin()

    async def connect(self, host: str, port: int) -> None:
        """Connect and Open; return when the peer's Open has arrived."""
        await self._connect(host, port)
        await self._open

    async def begin(self) -> None:
        """Begin, Attach; return when there is credit."""
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
        """Note the peer's Open."""
        if not self._open.done():
            self._open.set_result(None)

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Attach the link after the answered Begin."""
        self.link = engine.sender(session, "bare", self)
        self.link.endpoint.target.address = self._address
        engine.attach(self.link)

    def credit_given(self, link: SenderLink) -> None:
        """Note the first credit, which shows that the link is usable."""
        if not self._ready.done():
            self._ready.set_result(None)
        self._may_send.set()

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Count a settled message."""
        if token is not None:
            token.set_result(outcome)
        self._left -= 1
        if self._left == 0 and self._done is not None:
            self._done.set_result(None)

    def writable_again(self, engine: Engine) -> None:
        """Send again: the socket accepts bytes."""
        self._may_send.set()

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Fail if the connection ends before the link is usable."""
        if not self._ready.done():
            self._ready.set_exception(ConnectionError(str(reason)))

    def link_opened(self, link: SenderLink) -> None:
        """Ignored: credit follows."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Ignored: it does not happen in a benchmark."""

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Ignored: a broker never requests links."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Ignored: ``ended`` follows."""


async def connect_and_send(host: str, port: int, address: str, encode: Callable[[int], bytes]) -> BareClient:
    """Everything from the TCP connect to one settled message."""
    client = BareClient(address)
    await client.open(host, port)
    await client.send_all(1, encode, futures=True)
    return client
