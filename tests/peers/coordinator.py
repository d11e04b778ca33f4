"""A primary that coordinates transactions (AMQP 1.0 part 4).

Like Artemis it stores a message with an unknown transaction as if it had none.

    async with coordinator(drops_after=3) as peer:
        ...
        assert peer.stored == []

It knows only the transactions of the connection that declared them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import proton
from proton import Described, Terminus, ulong

from haclient.engine import codec
from haclient.engine.links import Link, ReceiverLink
from haclient.engine.owner import CloseReason
from haclient.outcome import ACCEPTED, Outcome, OutcomeState
from haclient.testing.peers.listening import PeerEngine, listening, settings
from tests.peers.primary import Primary

_DECLARED, _TRANSACTIONAL = 0x33, 0x34
_DECLARE, _DISCHARGE = "amqp:declare:list", "amqp:discharge:list"
_REFUSED = Outcome(OutcomeState.REJECTED, condition="amqp:transaction:rollback", description="rolled back")


@dataclass(slots=True)
class Coordinator(Primary):
    """A member that serves transactions.

    :ivar drops_after: reset every connection once after this many messages; ``None`` for never.
    :ivar answers: whether it answers declares and discharges, by name (``declare``, ``discharge``).
    :ivar refuses_commits: whether it rolls back instead of committing.
    :ivar keeps_socket: never close a socket.
    :ivar declared: the number of declared transactions; their ids are ``tx-1``, ``tx-2`` and so on.
    :ivar discharges: the id of each discharge, and whether it was an abort.
    :ivar sent: the bodies in each open transaction.
    :ivar stored: the permanently stored bodies.
    :ivar strays: the stored bodies whose transaction was not open.
    """

    drops_after: int | None = None
    answers: set[str] = field(default_factory=lambda: {"declare", "discharge"})
    refuses_commits: bool = False
    keeps_socket: bool = False
    declared: int = 0
    discharges: list[tuple[Any, bool]] = field(default_factory=list)
    sent: dict[bytes, list[Any]] = field(default_factory=dict)
    stored: list[Any] = field(default_factory=list)
    strays: list[Any] = field(default_factory=list)
    arrived: int = 0
    _of: defaultdict[PeerEngine, set[bytes]] = field(default_factory=lambda: defaultdict(set))

    def link_requested(self, engine: PeerEngine, link: Link) -> None:
        link.endpoint.target.copy(link.endpoint.remote_target)
        Primary.link_requested(self, engine, link)

    def ended(self, engine: PeerEngine, reason: CloseReason) -> None:
        for name in self._of.pop(engine, ()):
            self.sent.pop(name, None)
        Primary.ended(self, engine, reason)

    def delivered(self, link: ReceiverLink, delivery: Any, data: bytes) -> None:
        body = codec.decode(data).body
        if link.endpoint.remote_target.type == Terminus.COORDINATOR:
            self._control(link, proton.Delivery(delivery), body)
        else:
            self._take(link, delivery, body)
        if link.credit * 2 <= self.grants:
            link.grant(self.grants - link.credit)
        self._changed.set()

    def _control(self, link: ReceiverLink, delivery: proton.Delivery, body: Described) -> None:
        asked = "declare" if str(body.descriptor) == _DECLARE else "discharge"
        if asked == "declare":
            self.declared += 1
        else:
            assert str(body.descriptor) == _DISCHARGE
            self.discharges.append((bytes(body.value[0]), body.value[1]))
        if asked not in self.answers:
            return
        if asked == "declare":
            name = b"tx-%d" % self.declared
            self.sent[name] = []
            self._of[link._engine].add(name)  # type: ignore[index]
            _settle(link, delivery, _DECLARED, [name])
            return
        name, failed = self.discharges[-1]
        bodies = self.sent.pop(name, None)
        if bodies is None or (self.refuses_commits and not failed):
            link.settle(delivery._impl, _REFUSED)
            return
        if not failed:
            self.stored += bodies
        link.settle(delivery._impl, ACCEPTED)

    def _take(self, link: ReceiverLink, pointer: Any, body: Any) -> None:
        self.arrived += 1
        delivery = proton.Delivery(pointer)
        if delivery.remote_state == _TRANSACTIONAL:
            name = bytes(delivery.remote.data[0])
            if name in self.sent:
                self.sent[name].append(body)
            else:
                self.stored.append(body)
                self.strays.append(body)
            _settle(link, delivery, _TRANSACTIONAL, [name, Described(ulong(proton.Delivery.ACCEPTED), [])])
        else:
            self.stored.append(body)
            link.settle(pointer, ACCEPTED)
        if self.arrived == self.drops_after:
            self.drop()


def _settle(link: ReceiverLink, delivery: proton.Delivery, state: int, data: list[Any]) -> None:
    """Settle with a state that the engine has no outcome for."""
    link.unsettled.discard(delivery._impl)
    delivery.local.data = data
    delivery.update(state)
    delivery.settle()
    link._engine.wake()


@asynccontextmanager
async def coordinator(**facts: Any) -> AsyncIterator[Coordinator]:
    """Start a coordinator; ``facts`` are the fields of ``Coordinator``."""

    def make(host: str, port: int) -> Coordinator:
        return Coordinator(host, port, **facts)

    def serve(peer: Coordinator) -> PeerEngine:
        accepted = settings(sasl_server=peer.sasl, heartbeat=peer.heartbeat)
        return PeerEngine(peer, accepted, hold=peer.keeps_socket)

    async with listening(serve, make) as peer:
        yield peer
