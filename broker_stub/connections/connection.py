"""One client connection: who it is, and the links it attaches.

Rules
-----
* Until its Open has come a client has ``handshake_timeout``, and after a Close the same; then
  the socket is cut.
* Who is served, parked or refused, the ``entrance`` decides when the Open has come; a refusal is an
  Open and a Close at once.
* What a client that is parked begins and attaches is answered when it is served.  What its Open was
  told of the generation is old by that time, so every Attach tells it.
* A connection that follows (another site's link) is a client's, whoever it is: it manages nothing.
* A link is accepted with what it will be, or refused with the condition and the reason; the
  connection goes on either way.
* Nothing that one client does reaches another one: its links, its temporary queues and its
  congestion are its own.
* A receiver from an exchange gets a temporary queue of its own, bound with the key in its address
  ``exchange/key``; without one with ``#`` to a topic exchange and with nothing to a fanout
  exchange, while a direct exchange wants a key.  The queue ends with the link, so what comes
  between a failover and the new attach is not for this receiver; who wants that binds a queue.

Sources: AMQP 1.0 part 2, sections 2.4 (connections), 2.5 (sessions), 2.6 (links); part 3,
sections 3.5.3 and 3.5.4 (source and target); DESIGN section 6 (parking).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

import proton
from proton import Terminus

from broker_stub.admission import auth
from broker_stub.admission.controller import Decision
from broker_stub.connections import terminus
from broker_stub.connections.incoming_links import AnonymousProducer, Producer, RequestHandler, RequestLink
from broker_stub.connections.outgoing_links import Subscription
from broker_stub.queueing.exchanges import ExchangeType, Route
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.queue import Queue
from broker_stub.replication import backup
from broker_stub.replication.replica import Replica
from broker_stub.sites.modes import FOLLOW, REPLICATION_QUEUE
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.protocol import Ending, Engine
from haclient.engine.settings import MOST_HELD, NUMBER, PARK

if TYPE_CHECKING:
    from broker_stub.broker import Broker

logger = logging.getLogger("broker_stub.connections.connection")

# As much as the engine gives the socket in one turn: more would only wait inside proton.
_BURST = 256 * 1024
# How often a connection that is held up looks whether its peer has read on, in seconds.
_CONGESTION_PAUSE = 0.002
_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
_UNAUTHORIZED = "amqp:unauthorized-access"
_GENERATION = proton.symbol("haclient:generation")
# A container id is the client's choice, and as long as it likes.
_LONGEST_ID = 300
_OFFERED = ("ANONYMOUS-RELAY",)
_DEFAULT_KEYS = {ExchangeType.TOPIC: "#", ExchangeType.FANOUT: ""}


class ClientConnection:
    """What the broker knows of one client (the ``EngineOwner`` of its engine)."""

    __slots__ = (
        "_accepted_at",
        "_broker",
        "_burst",
        "_closing",
        "_deadline",
        "_engine",
        "_exchange_queues",
        "_held",
        "_linked",
        "_loop",
        "_parked",
        "_producers",
        "_replica",
        "_resumption",
        "_sessions",
        "_subscriptions",
        "_temporary",
        "_unparked",
        "admin",
        "congested",
        "opened_at",
        "replicates",
        "user",
        "uses_queues",
        "wants_park",
    )

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.user: str | None = None
        self.admin = False
        self.opened_at: float | None = None
        self.congested = False
        self.replicates = False
        """Whether it is a backup's (``haclient:replicate``): served by the primary only."""
        self.uses_queues = False
        """Whether it has sent to or taken from a queue that outlives it."""
        self.wants_park = False
        """Whether it asked to be parked rather than refused."""
        self._parked = False
        self._unparked = False
        self._linked = False
        self._held: list[SenderLink | ReceiverLink] = []
        self._accepted_at = loop.time()
        self._broker = broker
        self._loop = loop
        self._engine: Engine | None = None
        self._burst = 0
        self._closing = False
        self._producers: set[Producer | AnonymousProducer | RequestLink] = set()
        self._sessions: list[proton.Session] = []
        self._subscriptions: set[Subscription] = set()
        self._replica: Replica | None = None
        self._temporary: set[Queue] = set()
        self._exchange_queues: dict[Subscription, Queue] = {}
        """The queues that were made for receivers from exchanges."""
        self._resumption: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self, engine: Engine) -> None:
        """The socket was accepted."""
        self._engine = engine
        self._give_up_later("no AMQP Open came")

    @property
    def engine(self) -> Engine:
        """The connection's engine."""
        assert self._engine is not None, "begin comes first"
        return self._engine

    # -- for the broker -------------------------------------------------------------------------

    @property
    def is_in(self) -> bool:
        """Whether it is served, and its first link was accepted: it is no newcomer any more."""
        return self._linked and not self._parked and not self._closing

    def turn_away(self, condition: proton.Condition) -> None:
        """Close the connection with a reason; cut it if the client does not answer.

        From here on nothing of the client's counts: what it still sends, it will have to send
        again elsewhere, and what it has not settled goes back to the queue.
        """
        self._closing = True
        self._leave_lot(condition)
        self._end_links(died=True)
        self.engine.close(condition)
        self._give_up_later("the client did not answer the Close")

    def hang_up(self, why: str) -> None:
        """The replica at the other end was dropped."""
        if self._engine is not None and not self._closing:
            self.turn_away(proton.Condition("amqp:connection:forced", why))

    def cut(self, why: str) -> None:
        """End the connection without a word: another one needs the room."""
        self.engine.abort(proton.Condition(_LIMIT_EXCEEDED, why))

    def _give_up_later(self, why: str) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self.engine.ending is None:
            self._deadline = self._loop.call_later(self._broker.options.handshake_timeout, self._give_up, why)

    def _give_up(self, why: str) -> None:
        self._deadline = None
        self.engine.abort(proton.Condition("amqp:connection:forced", why))

    # -- for the engine: connection and session -------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """The client's Open came: serve it, or say why not."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        broker = self._broker
        self.user = broker.options.access.user(engine.transport)
        desired = [str(name) for name in engine.connection.remote_desired_capabilities or ()]
        self.admin = broker.options.access.is_admin(self.user) and FOLLOW not in desired
        self.opened_at = self._loop.time()
        self.replicates = backup.CAPABILITY in desired
        self.wants_park = PARK in desired and not self.replicates
        decision = broker.decide(self)
        if decision is Decision.PARK:
            self._parked = True
            broker.log.parked(self.client_id, broker.membership)
            engine.open(properties=broker.open_properties(), offered=(*_OFFERED, PARK))
        elif decision is Decision.ADMIT:
            self._admitted()
            engine.open(properties=broker.open_properties(), offered=_OFFERED)
        else:
            broker.log.refused(self.client_id, broker.membership, decision)
            engine.open(properties={**broker.open_properties(), **auth.refused_open()})
            self.turn_away(decision)

    @property
    def client_id(self) -> str:
        """The container id, as long as it may be."""
        return (self.engine.connection.remote_container or "")[:_LONGEST_ID]

    @property
    def key(self) -> Hashable:
        """What the client is known by when it comes again."""
        number = self.engine.peer_properties.get(NUMBER)
        return self.client_id, number if isinstance(number, int) else None

    def _admitted(self) -> None:
        if not self.admin or self.replicates:
            self._broker.log.admitted(self.client_id, self._broker.membership)

    # -- parked ---------------------------------------------------------------------------------

    def unpark(self) -> None:
        """Serve a client that was parked: answer its Begins."""
        self._leave_lot(None)
        self._unparked = True
        self._admitted()
        for session in self._sessions:
            if session.state & proton.Endpoint.LOCAL_UNINIT:
                session.open()
        held, self._held = self._held, []
        for link in held:
            if not link.dead:
                self.link_requested(self.engine, link)
            if isinstance(link, SenderLink) and link.owner is not None:
                link.owner.credit_given(link)  # it came when nobody was there to be told
        self.engine.wake()

    def _hold(self, link: SenderLink | ReceiverLink) -> None:
        """Keep an Attach for later: proton cannot answer it, not even with no, before the Begin."""
        self._held.append(link)
        if len(self._held) > MOST_HELD:
            self.cut(f"more than {MOST_HELD} links while parked")

    def _leave_lot(self, condition: proton.Condition | None) -> None:
        if self._parked:
            self._parked = False
            self._broker.entrance.lot.leave(self)
            self._broker.log.unparked(self.client_id, self._broker.membership, condition)

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """The client began a session."""
        if self._closing:
            return
        if not self._sessions and not self._parked and not self.admin:
            self._broker.entrance.set_up(self._loop.time() - self._accepted_at)
        self._sessions.append(session)
        if not self._parked:
            session.open()
            engine.wake()

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """The client says goodbye; ``ended`` follows."""

    def writable_again(self, engine: Engine) -> None:
        """The socket takes bytes again."""
        if self.congested:
            self._resume()

    def ended(self, engine: Engine, ending: Ending) -> None:
        """The connection is over: give back what it held."""
        for handle in (self._deadline, self._resumption):
            if handle is not None:
                handle.cancel()
        self._leave_lot(ending.condition)
        self._end_links(died=not ending.by_peer)
        self._broker.addresses.end_of(self, self._temporary)
        self._broker.forget(self, ending)
        # Engine and owner know each other; without this, a dead connection waits for the collector.
        self._engine = None

    def _end_links(self, *, died: bool) -> None:
        for owner in (*self._producers, *self._subscriptions):
            owner.link.owner = None
        for subscription in self._subscriptions:
            subscription.end(died=died)
            self._end_exchange_queue(subscription)
        if self._replica is not None:
            replica, self._replica = self._replica, None
            replica.fail("its connection ended")
        self._subscriptions.clear()
        self._producers.clear()

    def _end_exchange_queue(self, subscription: Subscription) -> None:
        queue = self._exchange_queues.pop(subscription, None)
        if queue is not None:
            self._broker.addresses.delete(queue)

    # -- for the engine: links ------------------------------------------------------------------

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """The client attached a link."""
        if self._closing:
            return
        if self._parked:
            self._hold(link)
            return
        if self._unparked:
            link.endpoint.properties = {_GENERATION: proton.ulong(self._broker.membership.generation)}
        try:
            if isinstance(link, ReceiverLink):
                self._accept_producer(engine, link)
            elif self.replicates:
                self._accept_browser(engine, link)
            else:
                self._accept_subscription(engine, link)
            self._linked = True
        except AddressRefusedError as refused:
            logger.info("link refused: %s: %s", refused.condition, refused.description)
            engine.refuse(link, proton.Condition(refused.condition, refused.description))

    def _accept_producer(self, engine: Engine, link: ReceiverLink) -> None:
        endpoint = link.endpoint
        remote = endpoint.remote_target
        if remote.type == Terminus.COORDINATOR:
            raise AddressRefusedError("amqp:not-implemented", "there are no transactions here")
        producer: Producer | AnonymousProducer | RequestLink
        if remote.type == Terminus.TARGET and not remote.dynamic and not remote.address:
            producer = AnonymousProducer(link, self, self._route, self._broker.now_ms)
        else:
            place = (
                self._temporary_queue()
                if remote.dynamic
                else self._route(remote.address, terminus.wanted(remote))
            )
            if isinstance(place, Queue | Route):
                self.uses_queues |= isinstance(place, Route) or not place.temporary
                producer = Producer(link, self, place, self._broker.now_ms)
                endpoint.target.address = place.name
            else:
                producer = RequestLink(link, self, place)
                endpoint.target.address = auth.MANAGEMENT
        terminus.mirror(link)
        self._producers.add(producer)
        link.owner = producer
        engine.attach(link)
        producer.start()

    def _accept_subscription(self, engine: Engine, link: SenderLink) -> None:
        endpoint = link.endpoint
        remote = endpoint.remote_source
        terminus.refuse_filters(remote)
        if remote.dynamic:
            place: Queue | Route = self._temporary_queue()
        else:
            self._check_may_use(remote.address)
            self._check_may_follow(remote.address)
            place = self._broker.addresses.place(remote.address, **terminus.wanted(remote))
        queue = self._bound_queue(place) if isinstance(place, Route) else place
        if queue.exclusive_to not in (None, self):
            raise AddressRefusedError(_UNAUTHORIZED, f"{queue.name} belongs to another connection")
        self.uses_queues |= not queue.temporary
        terminus.mirror(link)
        endpoint.source.address = place.name
        browsing = remote.distribution_mode == Terminus.DIST_MODE_COPY and queue is place
        endpoint.source.distribution_mode = Terminus.DIST_MODE_COPY if browsing else Terminus.DIST_MODE_MOVE
        subscription = Subscription(link, queue, self, browsing=browsing)
        self._subscriptions.add(subscription)
        if queue.name == REPLICATION_QUEUE and not browsing:
            self._broker.site.read_by(subscription)
        if queue is not place:
            self._exchange_queues[subscription] = queue
        link.owner = subscription
        engine.attach(link)

    def _accept_browser(self, engine: Engine, link: SenderLink) -> None:
        """A backup attaches: first its control link, then one browser a queue."""
        member = self._broker.member
        leading = None if member is None else member.leading
        if leading is None or not self.admin:
            raise AddressRefusedError(_UNAUTHORIZED, "replication is for the cluster-admin, at the primary")
        terminus.mirror(link)
        properties = terminus.properties(link)
        control, _, identity = (link.endpoint.remote_source.address or "").partition("/")
        if control != backup.CONTROL or bool(identity) != (self._replica is not None):
            raise AddressRefusedError(
                "amqp:not-found", "a backup attaches its control link, then its browsers"
            )
        engine.attach(link)
        if self._replica is None:
            self._replica = leading.join(str(properties.get(backup.NAME) or self.user), self, link)
            return
        browser = self._replica.browser(identity)
        if browser is None:
            link.close(proton.Condition(backup.DELETED, f"there is no queue {identity}"))
            return
        link.owner = browser
        have = [int(number) for number in properties.get(backup.HAVE) or ()]
        browser.begin(link, zip(have[0::2], have[1::2], strict=True))

    def _route(
        self, address: str | None, wanted: terminus.Wanted = terminus.NOTHING_SAID
    ) -> Queue | Route | RequestHandler:
        self._check_may_use(address)
        if address == auth.MANAGEMENT:
            return self._broker.management_for(self)
        if self._broker.site.owns(address):
            raise AddressRefusedError("amqp:not-allowed", f"only the site itself sends to {address!r}")
        place = self._broker.addresses.place(address, **wanted)
        if isinstance(place, Route) and place.exchange.type is ExchangeType.REPLICATION:
            self._check_may_make_events(place)
        return place

    def _check_may_make_events(self, route: Route) -> None:
        if not self._broker.options.access.may_make_events(self.user):
            raise AddressRefusedError(_UNAUTHORIZED, f"{route.name} is for its link and the cluster-admin")

    def _check_may_follow(self, address: str | None) -> None:
        if self._broker.site.owns(address) and not self._broker.options.access.may_follow(self.user):
            raise AddressRefusedError(
                _UNAUTHORIZED, f"{address} is for the cluster-admin and the link users (serve --link-user)"
            )

    def _check_may_use(self, address: str | None) -> None:
        if address == auth.MANAGEMENT:
            if not self.admin:
                raise AddressRefusedError(_UNAUTHORIZED, f"{address} is for the cluster-admin")
        elif not self._broker.membership.role.serves and not self.owns(address):
            raise AddressRefusedError("amqp:illegal-state", "this member is passive")

    def owns(self, address: str | None) -> bool:
        """Whether the address is a temporary queue of this connection."""
        return any(queue.name == address for queue in self._temporary)

    def _temporary_queue(self) -> Queue:
        queue = self._broker.addresses.temporary(self)
        self._temporary.add(queue)
        return queue

    def _bound_queue(self, route: Route) -> Queue:
        """A queue for one receiver from an exchange."""
        if route.exchange.type is ExchangeType.REPLICATION:
            raise AddressRefusedError("amqp:not-allowed", f"nobody receives from {route.exchange.name!r}")
        key = _DEFAULT_KEYS.get(route.exchange.type) if route.key is None else route.key
        if key is None:
            address = f"{route.exchange.name}/key"
            raise AddressRefusedError("amqp:invalid-field", f"a direct exchange wants an address {address}")
        queue = self._broker.addresses.temporary(self)
        self._broker.addresses.bind(route.exchange, queue, key)
        return queue

    # -- for the links --------------------------------------------------------------------------

    def failed(self) -> None:
        """End the connection without a word: what went wrong is logged."""
        self.engine.abort(proton.Condition("amqp:internal-error", "a delivery failed"))

    def dropped(self, owner: Subscription | Producer | AnonymousProducer | RequestLink) -> None:
        """A link is closed."""
        owner.link.owner = None
        if isinstance(owner, Subscription):
            self._subscriptions.discard(owner)
            self._end_exchange_queue(owner)
        else:
            self._producers.discard(owner)

    def sent(self, size: int) -> None:
        """Count what was given to proton, and stop at a burst until it has left."""
        self._burst += size
        if self._burst >= _BURST and not self.congested:
            self.congested = True
            self._resumption = self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resumption = None
        if self.engine.ending is not None or not self.engine.writable:
            return
        if sum(session.outgoing_bytes for session in self._sessions) >= _BURST:
            self._resumption = self._loop.call_later(_CONGESTION_PAUSE, self._resume)
            return
        self.congested = False
        self._burst = 0
        for subscription in tuple(self._subscriptions):
            subscription.resume()
        if self._replica is not None:
            self._replica.pump()
