"""A member that serves, with queues in memory, and records everything a test may ask about.

It drops duplicates by ``_AMQ_DUPL_ID``, delivers in order, and requeues unsettled messages when a link
or a connection ends. It is neither fast nor complete: see ``broker_stub`` for that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import proton

from haclient.core.failures import ESTABLISHMENT_FAILED
from haclient.engine import codec, unsettled
from haclient.engine.links import Link, ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.settings import SaslServer
from haclient.engine.wire import attach_frame
from haclient.outcome import ACCEPTED, Outcome, OutcomeState
from haclient.testing.peers.listening import ANONYMOUS, Peer, PeerEngine, listening, settings

_GIVEN_BACK = (OutcomeState.RELEASED, OutcomeState.MODIFIED)


@dataclass(frozen=True, slots=True)
class Source:
    """The source that a receiver's Attach requested.

    :ivar is_null: whether the Attach had no source.
    """

    link: str
    address: str | None
    filters: dict[str, Any]
    capabilities: tuple[str, ...]
    durability: int
    expiry: int
    is_null: bool


def value(data: proton.Data) -> Any:
    """Return the value in proton's buffer."""
    data.rewind()
    return data.get_object() if data.next() else None


@dataclass(slots=True)
class Primary(Peer):
    """A member that serves.

    :ivar properties: the properties of its Open, such as ``haclient:generation``; by default only its
        product and ``haclient:ids-live-with-messages``.
    :ivar container_id: the container id of its Open.
    :ivar grants: credit for each sender of a client; 0 stops all senders.
    :ivar outcome: the outcome of each received message; ``None`` leaves it unsettled, and grants no
        more credit.
    :ivar refuses: the links to refuse, by address, with the condition.
    :ivar ignores: the addresses whose Attach it does not answer; ``waiting`` has those links.
    :ivar refuses_opens: if set, the condition that refuses every connection; ``refused`` counts them.
    :ivar refuses_by: whether it refuses them by a Detach, an End or a Close, or drops the connection.
    :ivar attaches: the address of each Attach, and its arrival by the loop's clock.
    :ivar max_frame_size: the largest frame it accepts, in bytes.
    :ivar max_message_size: the largest message it announces, in bytes; it accepts larger ones.
    :ivar channel_max: the highest session number it accepts.
    :ivar begin_after: seconds from a client's Begin to the answer.
    :ivar opening: the number of connections in their handshake, and the highest such number.
    :ivar queues: the encoded messages waiting for delivery, by address.
    :ivar received: the received messages, encoded, without duplicates.
    :ivar copies: the number of dropped duplicates.
    :ivar outcomes: the outcomes that clients gave to deliveries, in order.
    :ivar credit: the credit of the client's receivers, after each change.
    :ivar filters: the answer to a receiver's filters: the same, nothing, or others.
    :ivar shares: whether it announces shared subscriptions: in its Open (``offered``) and in answers.
    :ivar sends_settled: whether it settles each message when it sends it.
    :ivar drains: whether it answers a drain.
    :ivar drops_at_detach: whether it drops every connection once, instead of answering a Detach.
    :ivar sources: the sources that receivers of a client requested.
    :ivar detached: each link that a client ended: its name, and whether it was closed.
    :ivar subscriptions: the names of the links whose sources are durable.
    :ivar confirms: whether it answers rcv-settle-mode *second* with the same.
    :ivar unconfirmed: the deliveries waiting for ``confirm``: link, delivery, data, and the client's
        outcome.
    :ivar resumes: the state that its answer to an unsettled map has for each tag; by default none.
    :ivar asked: the unsettled maps of the attaches that have one.
    :ivar engines: the open connections, with their links.
    """

    properties: dict[str, Any] = field(
        default_factory=lambda: {"product": "haclient-broker-stub", "haclient:ids-live-with-messages": True}
    )
    sasl: SaslServer = ANONYMOUS
    container_id: str = "peer"
    heartbeat: float = 0.0
    grants: int = 100
    outcome: Outcome | None = ACCEPTED
    refuses: dict[str, proton.Condition] = field(default_factory=dict)
    ignores: set[str] = field(default_factory=set)
    waiting: list[tuple[PeerEngine, Link]] = field(default_factory=list)
    refuses_opens: proton.Condition | None = None
    refused: int = 0
    refuses_by: Literal["detach", "end", "close", "drop"] = "detach"
    attaches: list[tuple[str, float]] = field(default_factory=list)
    max_frame_size: int = 65536
    max_message_size: int = 0
    channel_max: int = 65535
    begin_after: float = 0.0
    opening: int = 0
    most_opening: int = 0
    queues: defaultdict[str, deque[bytes]] = field(default_factory=lambda: defaultdict(deque))
    received: list[bytes] = field(default_factory=list)
    copies: int = 0
    outcomes: list[Outcome | None] = field(default_factory=list)
    credit: list[int] = field(default_factory=list)
    filters: Literal["echo", "ignore", "change"] = "echo"
    shares: bool = True
    offered: tuple[str, ...] = ("SHARED-SUBS",)
    sends_settled: bool = False
    drains: bool = True
    drops_at_detach: bool = False
    sources: list[Source] = field(default_factory=list)
    detached: list[tuple[str, bool]] = field(default_factory=list)
    subscriptions: set[str] = field(default_factory=set)
    confirms: bool = True
    unconfirmed: list[tuple[SenderLink, Any, bytes, Outcome]] = field(default_factory=list)
    resumes: dict[bytes, int] = field(default_factory=dict)
    asked: list[dict[bytes, int | None]] = field(default_factory=list)
    engines: dict[PeerEngine, list[Link]] = field(default_factory=dict)
    _out: dict[SenderLink, dict[int, bytes]] = field(default_factory=dict)
    _source: dict[SenderLink, str] = field(default_factory=dict)
    _number: int = 0
    _seen: set[str] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    # -- for tests ----------------------------------------------------------------------------

    @property
    def bodies(self) -> list[Any]:
        """Return the bodies of the received messages."""
        return [codec.decode(data).body for data in self.received]

    @property
    def unsettled(self) -> int:
        """Return the number of unsettled deliveries at clients."""
        return sum(len(each) for each in self._out.values())

    @property
    def draining(self) -> bool:
        """Return whether a client has requested a drain."""
        return any(
            link.drain for links in self.engines.values() for link in links if isinstance(link, SenderLink)
        )

    def put(self, address: str, *bodies: Any) -> None:
        """Queue messages for receivers."""
        self.put_encoded(address, *(bytes(proton.Message(body=body).encode()) for body in bodies))

    def put_encoded(self, address: str, *messages: bytes) -> None:
        """Queue encoded messages unchanged, including invalid ones."""
        self.queues[address].extend(messages)
        self._deliver()

    def drop(self) -> None:
        """Reset every connection, as a dying process does."""
        for engine in tuple(self.engines):
            engine.abort()

    def close(self, condition: proton.Condition | None = None) -> None:
        """Close every connection with this condition."""
        for engine in tuple(self.engines):
            engine.close(condition)

    def end_sessions(self, condition: proton.Condition | None = None) -> None:
        """End every session that has a link."""
        for engine, links in self.engines.items():
            for session in {link.endpoint.session for link in links}:
                session.condition = condition
                session.close()
            engine.wake()

    def grant(self, credit: int) -> None:
        """Grant every sender of a client this many more credits."""
        for links in self.engines.values():
            for link in links:
                if isinstance(link, ReceiverLink):
                    link.grant(credit)

    def detach(self, condition: proton.Condition) -> None:
        """Close every link."""
        for links in self.engines.values():
            for link in links:
                link.close(condition)

    def end_session(self, address: str, condition: proton.Condition | None) -> None:
        """End the session of an address's receivers."""
        for engine, links in self.engines.items():
            for link in [each for each in links if self._source.get(each) == address]:
                session = link.endpoint.session
                if condition is not None:
                    session.condition = condition
                self._requeue(link)
                links.remove(link)
                session.close()
                engine.wake()

    async def until(self, true: Callable[[], Any], timeout: float = 10.0) -> None:
        """Wait until a condition of this peer holds."""
        async with asyncio.timeout(timeout):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    # -- one connection -----------------------------------------------------------------------

    def opened(self, engine: PeerEngine) -> None:
        if self.refuses_opens is not None:
            engine.open(properties={ESTABLISHMENT_FAILED: True})
            engine.close(self.refuses_opens)
            self.refused += 1
            self._changed.set()
            return
        self.engines[engine] = []
        self.opening += 1
        self.most_opening = max(self.most_opening, self.opening)
        engine.transport.channel_max = self.channel_max
        engine.open(properties=self.properties, offered=self.offered if self.shares else ())
        self._changed.set()

    def session_opened(self, engine: PeerEngine, session: proton.Session) -> None:
        if self.begin_after:
            asyncio.get_running_loop().call_later(self.begin_after, self._begin, engine, session)
        else:
            self._begin(engine, session)

    def _begin(self, engine: PeerEngine, session: proton.Session) -> None:
        if engine in self.engines:
            self.opening -= 1
            session.open()
            engine.wake()

    def link_requested(self, engine: PeerEngine, link: Link) -> None:
        endpoint = link.endpoint
        node = endpoint.remote_target if isinstance(link, ReceiverLink) else endpoint.remote_source
        self.attaches.append((str(node.address), asyncio.get_running_loop().time()))
        self._changed.set()
        if node.address in self.ignores:
            self.waiting.append((engine, link))
            self._changed.set()
            return
        self._answer(engine, link)

    def answer_one(self) -> None:
        """Answer the first ignored Attach."""
        engine, link = self.waiting.pop(0)
        self._answer(engine, link)
        engine.wake()

    def _answer(self, engine: PeerEngine, link: Link) -> None:
        endpoint = link.endpoint
        refusal = self.refuses.get(endpoint.remote_source.address) or self.refuses.get(
            endpoint.remote_target.address
        )
        if refusal is not None:
            self._refuse(engine, link, refusal)
            return
        if isinstance(link, SenderLink) and not self._grant_source(link):
            self._refuse(engine, link, proton.Condition("amqp:not-found", "no such subscription"))
            return
        link.owner = self  # type: ignore[assignment]
        self.engines[engine].append(link)
        if isinstance(link, ReceiverLink):
            endpoint.source.address = endpoint.remote_source.address
        endpoint.target.address = endpoint.remote_target.address
        states: dict[bytes, int] = {}
        if isinstance(link, SenderLink) and link.is_asked_to_confirm and self.confirms:
            link.confirm_outcomes()
            if link.peer_unsettled:
                self.asked.append(attach_frame.states(link.peer_unsettled))
                states = {tag: self.resumes[tag] for tag in self.asked[-1] if tag in self.resumes}
        own = engine.settings
        engine.settings = replace(own, max_message_size=self.max_message_size)
        unsettled.attach(engine, link, states)
        engine.settings = own
        if isinstance(link, SenderLink):
            self._out[link] = {}
            self._source[link] = str(endpoint.remote_source.address)
        else:
            link.grant(self.grants)
        self._changed.set()

    def _grant_source(self, link: SenderLink) -> bool:
        endpoint = link.endpoint
        asked, granted = endpoint.remote_source, endpoint.source
        capabilities = value(asked.capabilities)
        source = Source(
            endpoint.name,
            asked.address,
            {str(name): each for name, each in (value(asked.filter) or {}).items()},
            tuple(map(str, capabilities or ())),
            asked.durability,
            asked.expiry_policy,
            not asked.type,
        )
        self.sources.append(source)
        if source.is_null:
            granted.type = proton.Terminus.SOURCE
            granted.address = f"subscription {endpoint.name}"
            return endpoint.name in self.subscriptions
        granted.address = asked.address
        granted.durability, granted.expiry_policy = asked.durability, asked.expiry_policy
        if asked.durability:
            self.subscriptions.add(endpoint.name)
        if source.filters and self.filters != "ignore":
            granted.filter.put_object(
                {
                    proton.symbol(name): each
                    if self.filters == "echo"
                    else proton.Described(each.descriptor, "other")
                    for name, each in source.filters.items()
                }
            )
        if capabilities is not None and self.shares:
            granted.capabilities.put_object(capabilities)
        return True

    def _refuse(self, engine: PeerEngine, link: Link, refusal: proton.Condition) -> None:
        match self.refuses_by:
            case "detach":
                engine.refuse(link, refusal)
            case "end":
                link.endpoint.session.condition = refusal
                link.endpoint.session.close()
                engine.wake()
            case "close":
                engine.close(refusal)
            case "drop":
                engine.abort()

    def peer_closed(self, engine: PeerEngine, condition: proton.Condition | None) -> None:
        """Handle the client's Close."""

    def writable_again(self, engine: PeerEngine) -> None:
        self._deliver()

    def ended(self, engine: PeerEngine, reason: CloseReason) -> None:
        for link in self.engines.pop(engine, ()):
            self._requeue(link)
        self._deliver()
        self._changed.set()

    # -- links --------------------------------------------------------------------------------

    def link_opened(self, link: Link) -> None:
        """Do nothing: only the client opens links."""

    def link_closed(self, link: Link, condition: proton.Condition | None) -> None:
        closed = bool(link.endpoint.state & proton.Endpoint.REMOTE_CLOSED)
        self.detached.append((link.endpoint.name, closed))
        if closed:
            self.subscriptions.discard(link.endpoint.name)
        if self.drops_at_detach:
            self.drops_at_detach = False
            for engine in self.engines:
                engine._socket.abort()  # type: ignore[union-attr]
        for links in self.engines.values():
            if link in links:
                links.remove(link)
        self._requeue(link)
        self._deliver()
        self._changed.set()

    def delivered(self, link: ReceiverLink, delivery: Any, data: bytes) -> None:
        duplicate_id = None
        with contextlib.suppress(proton.MessageException):  # one part of a message that a program streams
            duplicate_id = codec.duplicate_id_of(data)
        if duplicate_id in self._seen:
            self.copies += 1
        else:
            self.received.append(data)
        if duplicate_id is not None:
            self._seen.add(duplicate_id)
        if self.outcome is not None and delivery is not None:
            link.settle(delivery, self.outcome)
        if self.outcome is not None and link.credit * 2 <= self.grants:
            link.grant(self.grants - link.credit)
        self._changed.set()

    def credit_given(self, link: SenderLink) -> None:
        self.credit.append(link.credit)
        self._deliver()
        if link.drain and self.drains:
            link.drained()
        self._changed.set()

    def settled(self, link: SenderLink, token: int, outcome: Outcome | None) -> None:
        data = self._out[link].pop(token)
        self.outcomes.append(outcome)
        if outcome is not None and outcome.state in _GIVEN_BACK:
            self.queues[self._source[link]].appendleft(data)
            self._deliver()
        self._changed.set()

    def outcome_given(self, link: SenderLink, delivery: Any, token: int, outcome: Outcome) -> None:
        self.unconfirmed.append((link, delivery, self._out[link].pop(token), outcome))
        self.outcomes.append(outcome)
        self._changed.set()

    def confirm(self, state: OutcomeState | None = None) -> None:
        """Settle the unconfirmed deliveries with their clients' outcomes, or with ``state``."""
        unconfirmed, self.unconfirmed = self.unconfirmed, []
        for link, delivery, _, outcome in unconfirmed:
            link.confirm(delivery, state or outcome.state)

    # -- internals ---------------------------------------------------------------------------------

    def _deliver(self) -> None:
        for engine, links in tuple(self.engines.items()):
            for link in (each for each in links if isinstance(each, SenderLink)):
                queue = self.queues[self._source[link]]
                while queue and link.credit > 0 and engine.writable:
                    self._number += 1
                    data = queue.popleft()
                    if not self.sends_settled:
                        self._out[link][self._number] = data
                    link.send(data, self._number, settled=self.sends_settled)

    def _requeue(self, link: Link) -> None:
        source = self._source.pop(link, "")
        for data in reversed(self._out.pop(link, {}).values()):
            self.queues[source].appendleft(data)


@asynccontextmanager
async def primary(*, host: str | None = None, port: int = 0, **facts: Any) -> AsyncIterator[Primary]:
    """Start a primary; ``facts`` are the fields of ``Primary``."""

    def make(host: str, port: int) -> Primary:
        return Primary(host, port, **facts)

    def serve(peer: Primary) -> PeerEngine:
        changes = {
            "sasl_server": peer.sasl,
            "container_id": peer.container_id,
            "heartbeat": peer.heartbeat,
            "max_frame_size": peer.max_frame_size,
        }
        return PeerEngine(peer, settings(**changes))

    async with listening(serve, make, host=host, port=port) as peer:
        yield peer
