"""A broker that imitates ActiveMQ Classic 5.17.6 where it differs from others.

It allows each container id once, and announces the prefixes of topics and queues. A name without a
prefix creates a queue. An Attach is answered with the requested capabilities, known or unknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import proton

from haclient.core.failures import ESTABLISHMENT_FAILED
from haclient.engine import peer_fields
from haclient.engine.owner import CloseReason
from haclient.testing.peers.listening import PeerEngine, listening, settings
from tests.peers.primary import Primary

_TAKEN = {proton.symbol("invalid-field"): proton.symbol("container-id")}
TOPIC_PREFIX, QUEUE_PREFIX = "topic://", "queue://"


@dataclass(slots=True)
class Classic(Primary):
    """One broker.

    :ivar forgets: whether the end of a connection frees its container id.
    :ivar refuses_any: whether it refuses every container id as in use.
    :ivar ids: the container id of each Open, refused or not; ``taken``: the ids in use.
    """

    properties: dict[str, Any] = field(
        default_factory=lambda: {
            proton.symbol("product"): "ActiveMQ",
            proton.symbol("version"): "5.17.6",
            proton.symbol("topic-prefix"): TOPIC_PREFIX,
            proton.symbol("queue-prefix"): QUEUE_PREFIX,
        }
    )
    offered: tuple[str, ...] = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY")
    forgets: bool = True
    refuses_any: bool = False
    ids: list[str] = field(default_factory=list)
    taken: dict[Any, str] = field(default_factory=dict)

    def opened(self, engine: PeerEngine) -> None:
        """Refuse a container id that is in use."""
        client = peer_fields.container_id(engine.connection) or ""
        self.ids.append(client)
        if self.refuses_any or client in self.taken.values():
            text = f"Broker: member-0 - Client: {client} already connected from tcp://10.9.9.9:1"
            engine.open(properties={ESTABLISHMENT_FAILED: True})
            engine.close(proton.Condition("amqp:invalid-field", text, _TAKEN))
            self.refused += 1
            self._changed.set()
            return
        self.taken[engine] = client
        Primary.opened(self, engine)

    def ended(self, engine: PeerEngine, reason: CloseReason) -> None:
        """Free the container id."""
        if self.forgets:
            self.taken.pop(engine, None)
        Primary.ended(self, engine, reason)


@asynccontextmanager
async def classic(**facts: Any) -> AsyncIterator[Classic]:
    """Start a broker; ``facts`` are the fields of ``Classic``."""

    def make(host: str, port: int) -> Classic:
        return Classic(host, port, **facts)

    async with listening(lambda peer: PeerEngine(peer, settings()), make) as peer:
        yield peer
