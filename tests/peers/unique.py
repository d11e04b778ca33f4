"""A broker that enforces unique connections, at any number of ports.

    broker = Broker("one")
    async with broker.listen() as first, broker.listen() as second: ...

It serves only sessions. Two brokers with the same name are a split pair.

Source: OASIS, "AMQP Enforcing Connection Uniqueness Version 1.0".
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import proton

from haclient.cli.probe import SOLE_CONNECTION
from haclient.core.failures import ESTABLISHMENT_FAILED
from haclient.engine import peer_fields
from haclient.engine.links import Link
from haclient.engine.owner import CloseReason
from haclient.testing.peers.listening import Peer, PeerEngine, listening, settings


@dataclass(slots=True)
class Broker:
    """One process.

    :param name: the container id of its Open.
    :param product: the product in the properties of its Open.
    :param enforces: whether it offers to enforce uniqueness.
    :param stalls: whether it stops answering a connection that requests uniqueness.
    :param refuses_with: the condition for a second connection.
    :ivar taken: the container ids of the connections that requested uniqueness; ``seen``: the ids of
        all.
    """

    name: str
    product: str = "test"
    enforces: bool = True
    stalls: bool = False
    refuses_with: proton.Condition = field(
        default_factory=lambda: proton.Condition(
            "amqp:invalid-field", "taken", {proton.symbol("invalid-field"): proton.symbol("container-id")}
        )
    )
    taken: dict[Any, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def listen(self) -> AbstractAsyncContextManager[Peer]:
        """Listen at one more port."""
        return listening(lambda _: PeerEngine(self, settings(container_id=self.name)))

    def opened(self, engine: Any) -> None:
        """Refuse a container id in use, if the client requests uniqueness."""
        client = peer_fields.container_id(engine.connection) or ""
        asked = SOLE_CONNECTION in peer_fields.desired_capabilities(engine.connection)
        self.seen.append(client)
        if asked and self.stalls:
            return
        if asked and self.enforces and client in self.taken.values():
            engine.open(properties={ESTABLISHMENT_FAILED: True})
            engine.close(self.refuses_with)
            return
        if asked:
            self.taken[engine] = client
        offered = (SOLE_CONNECTION,) if self.enforces else ()
        engine.open(offered=offered, properties={"product": self.product})

    def session_opened(self, engine: Any, session: proton.Session) -> None:
        """Answer the Begin."""
        session.open()
        engine.wake()

    def link_requested(self, engine: Any, link: Link) -> None:
        """Ignore links, as none is expected."""

    def peer_closed(self, engine: Any, condition: proton.Condition | None) -> None:
        """Close: the engine answers the Close."""
        engine.close()

    def writable_again(self, engine: Any) -> None:
        """Do nothing: no write is pending."""

    def ended(self, engine: Any, reason: CloseReason) -> None:
        """Free the container id."""
        self.taken.pop(engine, None)
