"""A member that parks clients while it is passive, and serves them once it is promoted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import proton

from haclient.core.failures import ESTABLISHMENT_FAILED
from haclient.engine.links import Link
from haclient.engine.owner import CloseReason
from haclient.engine.settings import PARK
from haclient.testing.peers.listening import PeerEngine, listening, settings
from tests.peers.primary import Primary

GENERATION = "haclient:generation"


@dataclass(slots=True)
class Member(Primary):
    """A member of a pair.

    :ivar serving: whether it is primary.
    :ivar offers: whether it parks clients on request; an ordinary broker does not.
    :ivar generation: sent in each Attach on a connection that was parked.
    :ivar parked: the parked connections, and each one's Begin.
    :ivar asked: the number of requests to be parked; ``refused``: the number of refused Opens.
    """

    serving: bool = False
    offers: bool = True
    generation: int | None = None
    parked: dict[PeerEngine, proton.Session | None] = field(default_factory=dict)
    was_parked: set[PeerEngine] = field(default_factory=set)
    refusal: proton.Condition = field(default_factory=lambda: proton.Condition("amqp:connection:forced"))
    asked: int = 0
    refused: int = 0

    def promote(self) -> None:
        """Become primary: answer the Begins."""
        self.serving = True
        for engine in tuple(self.parked):
            self.let_in(engine)

    def let_in(self, engine: PeerEngine) -> None:
        """Answer the Begin of a parked connection."""
        session = self.parked.pop(engine)
        assert session is not None
        session.open()
        engine.wake()

    def close_parked(self, condition: proton.Condition) -> None:
        """Close every parked connection."""
        for engine in tuple(self.parked):
            del self.parked[engine]
            engine.close(condition)

    def opened(self, engine: PeerEngine) -> None:
        wants = PARK in map(str, engine.connection.remote_desired_capabilities or ())
        self.asked += wants
        if self.serving:
            Primary.opened(self, engine)
        elif wants and self.offers:
            self.engines[engine] = []
            self.parked[engine] = None
            self.was_parked.add(engine)
            engine.open(offered=(PARK,), properties=self.properties)
        else:
            self.refused += 1
            engine.open(properties={ESTABLISHMENT_FAILED: True})
            engine.close(self.refusal)
        self._changed.set()

    def session_opened(self, engine: PeerEngine, session: proton.Session) -> None:
        if engine in self.parked:
            self.parked[engine] = session
            self._changed.set()
        elif engine in self.engines:
            Primary.session_opened(self, engine, session)

    def link_requested(self, engine: PeerEngine, link: Link) -> None:
        if engine in self.was_parked and self.generation is not None:
            link.endpoint.properties = {proton.symbol(GENERATION): proton.ulong(self.generation)}
        Primary.link_requested(self, engine, link)

    def ended(self, engine: PeerEngine, reason: CloseReason) -> None:
        self.parked.pop(engine, None)
        Primary.ended(self, engine, reason)


@asynccontextmanager
async def member(*, host: str | None = None, port: int = 0, **facts: Any) -> AsyncIterator[Member]:
    """Start a member; ``facts`` are the fields of ``Member``."""

    def make(host: str, port: int) -> Member:
        return Member(host, port, **facts)

    def serve(peer: Member) -> PeerEngine:
        return PeerEngine(peer, settings(sasl_server=peer.sasl, heartbeat=peer.heartbeat))

    async with listening(serve, make, host=host, port=port) as peer:
        yield peer
