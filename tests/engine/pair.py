"""Two engines and a TCP connection between them, with owners that record everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import proton

from haclient.engine import unsettled
from haclient.engine.links import Link, ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.settings import Settings
from haclient.outcome import Outcome
from haclient.testing.peers.listening import Peer, PeerEngine, listening, settings


@dataclass(slots=True, eq=False)
class Owner:
    """Owns one side and its links.  A server opens and begins, and grants ``grants``.

    :ivar refusal: refuse links for this reason.
    :ivar deliveries: deliveries and their data, in order.
    :ivar confirms: answer rcv-settle-mode *second* with the same.
    :ivar given: the peer's outcomes on such a link: the link, the delivery, its token and outcome.
    :ivar states: the unsettled map of the answers to attaches.
    :ivar confirmed_tokens: the tokens and outcomes that the peer confirmed, in order.
    :ivar outcomes: tokens and their outcomes, in order.
    """

    server: bool = False
    grants: int = 10
    confirms: bool = True
    states: Mapping[bytes, int] = field(default_factory=dict)
    refusal: proton.Condition | None = None
    engine: Engine | None = None
    session: proton.Session | None = None
    links: list[Link] = field(default_factory=list)
    deliveries: list[tuple[ReceiverLink, Any, bytes]] = field(default_factory=list)
    given: list[tuple[SenderLink, Any, Any, Outcome]] = field(default_factory=list)
    confirmed_tokens: list[tuple[Any, Outcome | None]] = field(default_factory=list)
    outcomes: list[tuple[Any, Outcome | None]] = field(default_factory=list)
    links_opened: list[Link] = field(default_factory=list)
    links_closed: list[tuple[Link, proton.Condition | None]] = field(default_factory=list)
    closed_with: list[proton.Condition | None] = field(default_factory=list)
    close_reasons: list[CloseReason] = field(default_factory=list)
    writable: int = 0
    drained: list[int] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, true: Callable[[], Any], timeout: float = 10.0) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(timeout):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    def opened(self, engine: Engine) -> None:
        self.engine = engine
        if self.server:
            engine.open()
        self._changed.set()

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        self.session = session
        if self.server:
            session.open()
            engine.wake()
        self._changed.set()

    def link_requested(self, engine: Engine, link: Link) -> None:
        if self.refusal is not None:
            engine.refuse(link, self.refusal)
            return
        self.links.append(link)
        link.owner = self  # type: ignore[assignment]
        link.endpoint.source.address = link.endpoint.remote_source.address
        link.endpoint.target.address = link.endpoint.remote_target.address
        if isinstance(link, SenderLink) and link.is_asked_to_confirm and self.confirms:
            link.confirm_outcomes()
        unsettled.attach(engine, link, self.states)
        if isinstance(link, ReceiverLink):
            link.grant(self.grants)
        self._changed.set()

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        self.closed_with.append(condition)
        self._changed.set()

    def writable_again(self, engine: Engine) -> None:
        self.writable += 1
        self._changed.set()

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        self.close_reasons.append(reason)
        self._changed.set()

    def link_opened(self, link: Link) -> None:
        self.links_opened.append(link)
        self._changed.set()

    def link_closed(self, link: Link, condition: proton.Condition | None) -> None:
        self.links_closed.append((link, condition))
        self._changed.set()

    def credit_given(self, link: SenderLink) -> None:
        if link.drain:
            self.drained.append(link.credit)
            link.drained()
        self._changed.set()

    def settled(self, link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        self.outcomes.append((token, outcome))
        self._changed.set()

    def outcome_given(self, link: SenderLink, delivery: Any, token: Any, outcome: Outcome) -> None:
        self.given.append((link, delivery, token, outcome))
        self._changed.set()

    def confirmed(self, link: ReceiverLink, token: Any, outcome: Outcome | None) -> None:
        self.confirmed_tokens.append((token, outcome))
        self._changed.set()

    def delivered(self, link: ReceiverLink, delivery: Any, data: bytes) -> None:
        self.deliveries.append((link, delivery, data))
        self._changed.set()


@dataclass(slots=True)
class Pair:
    """Both sides of one connection, up to an answered Begin."""

    client: Owner
    server: Owner
    peer: Peer

    async def sender(self, *, grants: int = 10) -> tuple[SenderLink, ReceiverLink]:
        """Attach a link from client to server; return both of its ends."""
        self.server.grants = grants
        link = self._engine.sender(self._session, "s", self.client)
        link.endpoint.target.address = "q"
        await self._attach(link)
        await self.client.until(lambda: link.credit == grants)
        made = self.server.links[-1]
        assert isinstance(made, ReceiverLink)
        return link, made

    async def receiver(
        self, *, grants: int = 10, confirm: bool = False, asked: Mapping[bytes, int] | None = None
    ) -> tuple[ReceiverLink, SenderLink]:
        """Attach a link from server to client; return both of its ends.

        :param confirm: ask for rcv-settle-mode *second*.
        :param asked: the unsettled map of the attach.
        """
        link = self._engine.receiver(self._session, "r", self.client)
        link.endpoint.source.address = "q"
        if confirm:
            link.request_confirmations()
        unsettled.attach(self._engine, link, asked or {})
        await self.client.until(lambda: link in self.client.links_opened)
        made = self.server.links[-1]
        assert isinstance(made, SenderLink)
        link.grant(grants)
        await self.server.until(lambda: made.credit == grants)
        return link, made

    async def _attach(self, link: Link) -> None:
        self._engine.attach(link)
        await self.client.until(lambda: link in self.client.links_opened)

    @property
    def _engine(self) -> Engine:
        assert self.client.engine is not None
        return self.client.engine

    @property
    def _session(self) -> proton.Session:
        assert self.client.session is not None
        return self.client.session


def client_settings(**changes: Any) -> Settings:
    """Return the settings of a client without heartbeats."""
    return Settings(**{"container_id": "client", "heartbeat": 0.0, **changes})


async def opened(owner: Owner, host: str, port: int, **changes: Any) -> Engine:
    """Connect a client engine and ask for a session."""
    loop = asyncio.get_running_loop()
    _, engine = await loop.create_connection(
        lambda: Engine(owner, client_settings(**changes), loop), host, port
    )
    engine.open()
    engine.begin()
    return engine


@asynccontextmanager
async def serving(**changes: Any) -> AsyncIterator[tuple[Peer, list[Owner]]]:
    """Start a listening peer; each connection gets an owner, and they are listed in order."""
    owners: list[Owner] = []

    def serve(_: Peer) -> PeerEngine:
        owners.append(Owner(server=True))
        return PeerEngine(owners[-1], settings(**changes))

    async with listening(serve) as peer:
        yield peer, owners


@asynccontextmanager
async def pair(
    client: dict[str, Any] | None = None, server: dict[str, Any] | None = None
) -> AsyncIterator[Pair]:
    """Open a connection; the arguments override the default settings."""
    async with serving(**(server or {})) as (peer, owners):
        owner = Owner()
        engine = await opened(owner, peer.host, peer.port, **(client or {}))
        try:
            await owner.until(lambda: owner.session)
            yield Pair(owner, owners[0], peer)
        finally:
            engine.abort()
            await asyncio.sleep(0)
