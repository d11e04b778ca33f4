"""One client connection: its user, its state, and the links that it attaches.

Rules
-----
* A client has ``handshake_timeout`` seconds to send its Open, and the same time to answer a Close. After that
  the member drops the socket.
* A client whose token expires is closed with ``amqp:unauthorized-access``.
* If authentication is required, a client without it receives no Open and no answer to its links.
* When the Open arrives, the admission controller serves, parks or refuses the client. To refuse, the member
  sends an Open directly followed by a Close.
* The member answers the Begins and Attaches of a parked client when it serves the client. The generation in
  the member's Open is outdated by then, so every Attach carries it.
* The connection of another site's link counts as an ordinary client and may not manage, whatever its user.
* A connection's use of resources is limited (``limits``). The Open announces the number of sessions. A link
  above the limit is refused. A client that does not answer refusals is closed.
* A link is refused if its name or address contains NUL: proton would truncate it and attach another one.
* A refused link does not end the connection (``client_links``).
* No client affects another: links, temporary queues and congestion are per connection.

Sources: AMQP 1.0 part 2, sections 2.4 (connections), 2.5 (sessions), 2.6 (links); docs/storms.md (parking).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable

import proton

from broker_stub.admission import refusals
from broker_stub.admission.controller import Decision
from broker_stub.amqp.conditions import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    INTERNAL_ERROR,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from broker_stub.connections.client_links import ClientLinks, Incoming
from broker_stub.connections.connection_server import ConnectionServer
from broker_stub.connections.outgoing_links import OutgoingLink
from broker_stub.connections.replica_links import ReplicaLinks
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.replication import backup
from broker_stub.sites.site_link import FOLLOW
from haclient.engine import peer_fields
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason
from haclient.engine.protocol import Engine
from haclient.engine.sasl.users import TokenOwner
from haclient.engine.settings import CLIENT_ID, CONNECTION_NUMBER, MAX_PARKED_LINKS, PARK
from haclient.printable.log import get_logger
from haclient.telemetry.schema import Kind

logger = get_logger("broker_stub.connections.connection")

# The engine writes this many bytes to the socket per iteration; more would only wait inside proton.
_BURST = 256 * 1024
_GENERATION = proton.symbol("haclient:generation")
# The client chooses its container id, which may have any length.
_MAX_ID_LENGTH = 300
_LONGEST_DELAY = 1e8
_OFFERED = ("ANONYMOUS-RELAY", "SHARED-SUBS")


class ClientConnection:
    """The state of one client connection (the ``EngineOwner`` of its engine)."""

    __slots__ = (
        "_accepted_at",
        "_began",
        "_burst",
        "_closing",
        "_deadline",
        "_engine",
        "_linked",
        "_links",
        "_loop",
        "_parked",
        "_parked_links",
        "_replica_links",
        "_server",
        "_unparked",
        "admin",
        "congested",
        "counted",
        "must_claim",
        "opened_at",
        "replicates",
        "user",
        "wants_park",
    )

    def __init__(self, server: ConnectionServer, loop: asyncio.AbstractEventLoop) -> None:
        self.user: str | None = None
        self.admin = False
        self.opened_at: float | None = None
        self.congested = False
        self.must_claim = False
        """True if it must put a token before it may use a queue."""
        self.counted = False
        """True if it counts toward its user's connections."""
        self.replicates = False
        """True if a backup opened it (``haclient:replicate``): only the primary serves it."""
        self.wants_park = False
        """True if the client asked to be parked rather than refused."""
        self._parked = False
        self._unparked = False
        self._linked = False
        self._parked_links: list[SenderLink | ReceiverLink] = []
        self._accepted_at = loop.time()
        self._server = server
        self._loop = loop
        self._engine: Engine | None = None
        self._burst = 0
        self._closing = False
        self._began = False
        self._links = ClientLinks(server, self)
        self._replica_links = ReplicaLinks(server, self)
        self._deadline: asyncio.TimerHandle | None = None

    def accepted(self, engine: Engine) -> None:
        """Start with the engine of an accepted socket."""
        self._engine = engine
        self._arm_deadline("the client sent no AMQP Open")

    @property
    def engine(self) -> Engine:
        """The connection's engine."""
        assert self._engine is not None, "accepted() comes first"
        return self._engine

    @property
    def uses_queues(self) -> bool:
        """Return whether a link was attached to a queue that outlives the connection."""
        return self._links.uses_queues

    # -- for the broker -------------------------------------------------------------------------

    @property
    def is_established(self) -> bool:
        """Return whether it is served and has its first link, so that it no longer counts as a newcomer."""
        return self._linked and not self._parked and not self._closing

    def close_with(self, condition: proton.Condition) -> None:
        """Close the connection with a condition; abort it if the client does not answer.

        The member ignores the client from here on. The client must resend pending messages elsewhere, and its
        unsettled messages return to their queues.
        """
        self._closing = True
        self._leave_parking(condition)
        self._end_links(died=True)
        self.engine.close(condition)
        self._arm_deadline("the client did not answer the Close")

    def close(self, why: str) -> None:
        """Close the connection of a dropped replica."""
        if self._engine is not None and not self._closing:
            self.close_with(proton.Condition(CONNECTION_FORCED, why))

    def abort(self, why: str) -> None:
        """Drop the connection without a Close, to free its resources."""
        self.engine.abort(proton.Condition(RESOURCE_LIMIT_EXCEEDED, why))

    def _arm_deadline(self, why: str) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self.engine.close_reason is None:
            self._deadline = self._loop.call_later(self._server.handshake_timeout, self._deadline_passed, why)

    def _deadline_passed(self, why: str) -> None:
        self._deadline = None
        self.engine.abort(proton.Condition(CONNECTION_FORCED, why))

    # -- for the engine: connection and session -------------------------------------------------

    def opened(self, engine: Engine) -> None:
        """Serve, park or refuse a client that sent its Open."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        server = self._server
        if not server.auth.has_authenticated(engine.incoming.login):  # the engine requires it as well
            engine.abort(proton.Condition(UNAUTHORIZED_ACCESS, "the client skipped SASL"))
            return
        self.user = server.auth.user(engine.incoming.login)
        login = engine.incoming.login
        self._end_with_token(None if login is None else login.expires_at)
        desired = peer_fields.desired_capabilities(engine.connection)
        self.admin = server.auth.is_admin(self.user) and FOLLOW not in desired
        self.opened_at = self._loop.time()
        self.must_claim = server.auth.must_claim(self.user)
        self.replicates = backup.CAPABILITY in desired
        self.wants_park = PARK in desired and not self.replicates
        asked = 0 if self.admin else engine.transport.remote_idle_timeout
        decision = server.limits.refuse_idle_timeout(asked) or server.decide(self)
        if decision is Decision.PARK:
            self._parked = True
            server.record(Kind.MEMBER_PARKED, client_id=self.reported_id)
            engine.open(properties=server.open_properties(), offered=(*_OFFERED, PARK))
        elif decision is Decision.ADMIT:
            self._admitted()
            engine.open(properties=server.open_properties(), offered=_OFFERED)
        else:
            server.record(Kind.MEMBER_REFUSED, client_id=self.reported_id, condition=decision)
            engine.open(properties={**server.open_properties(), **refusals.refused_open()})
            self.close_with(decision)

    def claimed(self, owner: TokenOwner) -> str:
        """Take the identity in a token that the client has put; return why it is refused, or nothing."""
        if self._closing:
            return "the connection is closing"
        if self.must_claim and (full := self._server.user_connections.rename(self.user, owner.user)):
            return full
        self.user, self.must_claim = owner.user, False
        if self._deadline is not None:
            self._deadline.cancel()
        self._end_with_token(owner.expires_at)
        return ""

    def _end_with_token(self, expires_at: float | None) -> None:
        if expires_at is not None and not self._closing:
            expired = proton.Condition(UNAUTHORIZED_ACCESS, "the token has expired")
            # A timer's delay is bounded; no connection lasts for longer.
            delay = min(expires_at - time.time(), _LONGEST_DELAY)
            self._deadline = self._loop.call_later(delay, self.close_with, expired)

    def _ends_without_open(self) -> bool:
        """Drop a client that skips the Open, which proton allows but admission requires."""
        if self.opened_at is None:
            self.engine.abort(proton.Condition(FRAMING_ERROR, "the client sent no AMQP Open first"))
        return self.opened_at is None

    @property
    def client_id(self) -> str:
        """The container id, shortened if it is too long."""
        return (self.engine.connection.remote_container or "")[:_MAX_ID_LENGTH]

    @property
    def reported_id(self) -> str:
        """The client id for telemetry: a client may use another container id for each connection."""
        named = self.engine.peer_properties.get(CLIENT_ID)
        return named[:_MAX_ID_LENGTH] if isinstance(named, str) and named else self.client_id

    @property
    def description(self) -> str:
        """The client's user, address and container id, for the log; the client chose the container id."""
        return f"{self.user or 'anonymous'!r} at {self.engine.peer} (container {self.client_id!r})"

    @property
    def key(self) -> Hashable:
        """The key that identifies the client when it connects again."""
        number = self.engine.peer_properties.get(CONNECTION_NUMBER)
        return self.client_id, number if isinstance(number, int) else None

    def _admitted(self) -> None:
        if self.must_claim:
            self._arm_deadline("the client put no token")
        if not self.admin or self.replicates:
            self._server.record(Kind.MEMBER_ADMITTED, client_id=self.reported_id)

    # -- parked ---------------------------------------------------------------------------------

    def unpark(self) -> None:
        """Serve a parked client: answer its Begins and Attaches."""
        self._leave_parking(None)
        self._unparked = True
        self._admitted()
        for session in self._open_sessions(proton.Endpoint.LOCAL_UNINIT):
            session.open()
        parked_links, self._parked_links = self._parked_links, []
        for link in parked_links:
            if not link.dead:
                self.link_requested(self.engine, link)
            if isinstance(link, SenderLink) and link.owner is not None:
                link.owner.credit_given(link)  # the flow arrived before the link had an owner
        self.engine.wake()

    def _keep_for_later(self, link: SenderLink | ReceiverLink) -> None:
        """Keep an Attach until the client is served: proton can answer it only after the Begin."""
        self._parked_links.append(link)
        if len(self._parked_links) > MAX_PARKED_LINKS:
            self.abort(f"more than {MAX_PARKED_LINKS} links while parked")

    def _leave_parking(self, condition: proton.Condition | None) -> None:
        if self._parked:
            self._parked = False
            self._server.admission.parking.remove(self)
            self._server.record(Kind.MEMBER_UNPARKED, client_id=self.reported_id, condition=condition)

    def session_opened(self, engine: Engine, session: proton.Session) -> None:
        """Answer a Begin, unless the client is parked."""
        if self._closing or self._ends_without_open():
            return
        if not self._began and not self._parked and not self.admin:
            self._server.admission.setup_completed(self._loop.time() - self._accepted_at)
        self._began = True
        if not self._parked:
            session.open()
            engine.wake()

    def _open_sessions(self, local: int) -> list[proton.Session]:
        """Return the sessions that the client has not ended; proton forgets the others."""
        state, found = local | proton.Endpoint.REMOTE_ACTIVE, []
        session = self.engine.connection.session_head(state)
        while session is not None:
            found.append(session)
            session = session.next(state)
        return found

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        """Ignored: ``ended`` follows."""

    def writable_again(self, engine: Engine) -> None:
        """Send again: the socket accepts bytes."""
        if self.congested:
            self._resume()

    def ended(self, engine: Engine, reason: CloseReason) -> None:
        """Release the resources of an ended connection."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._leave_parking(reason.condition)
        # A client that closes with an error, such as a missed heartbeat, may have processed its messages.
        self._end_links(died=not reason.by_peer or reason.condition is not None)
        self._links.delete_temporary_queues()
        self._server.connection_ended(self, reason)
        # Engine and owner refer to each other; cleared, a dead connection need not wait for the collector.
        self._engine = None

    def _end_links(self, *, died: bool) -> None:
        self._links.end(died=died)
        self._replica_links.end()

    # -- for the engine: links ------------------------------------------------------------------

    def link_requested(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        """Accept, keep or refuse a link that the client attached."""
        if len(engine.links) > 2 * self._server.limits.links_of(admin=self.admin):
            self._end_flood()
        if self._closing or self._ends_without_open():
            return
        if self._parked:
            self._keep_for_later(link)
            return
        if self._unparked:
            link.endpoint.properties = {_GENERATION: proton.ulong(self._server.membership.generation)}
        try:
            if self.replicates:
                self._replica_links.accept(engine, link)
            else:
                self._accept(engine, link)
            self._linked = True
        except AddressRefusedError as refused:
            logger.info("link refused: %s: %s", refused.condition, refused.description)
            engine.refuse(link, proton.Condition(refused.condition, refused.description))

    def _accept(self, engine: Engine, link: SenderLink | ReceiverLink) -> None:
        limit = self._server.limits.links_of(admin=self.admin)
        if len(engine.links) > limit:
            raise AddressRefusedError(RESOURCE_LIMIT_EXCEEDED, f"a connection may have {limit} links")
        if link.is_cut:
            raise AddressRefusedError(INVALID_FIELD, "the link's name or address has a NUL")
        self._links.accept(engine, link)

    def _end_flood(self) -> None:
        """Close a client that keeps attaching links without answering their refusals."""
        why = "too many links, with those whose refusal was not answered"
        if self._closing:
            self.abort(why)
        else:
            self.close_with(proton.Condition(RESOURCE_LIMIT_EXCEEDED, why))

    # -- for the links --------------------------------------------------------------------------

    def link_failed(self) -> None:
        """Drop the connection after an error in a delivery, which was logged."""
        self.engine.abort(proton.Condition(INTERNAL_ERROR, "a delivery failed"))

    def link_closed(self, owner: OutgoingLink | Incoming) -> None:
        """Forget a closed link."""
        self._links.closed(owner)

    def sent(self, size: int) -> None:
        """Count bytes given to proton; after a burst, pause until they have left proton."""
        self._burst += size
        if self._burst >= _BURST and not self.congested:
            self.congested = True
            self.engine.on_written = self._resume

    def leaving(self) -> int | None:
        """Return the bytes sent so far if more wait to be sent, else ``None``."""
        engine = self.engine
        waits = not engine.writable or engine.transport.pending() > 0
        return engine.written if waits else None

    def _resume(self) -> None:
        """Send again if the burst has left proton.

        The socket accepts bytes and the session windows are open.
        """
        if not self.congested or self.engine.close_reason is not None or not self.engine.writable:
            return
        sessions = self._open_sessions(proton.Endpoint.LOCAL_ACTIVE)
        if sum(session.outgoing_bytes for session in sessions) >= _BURST:
            return
        self.engine.on_written = None
        self.congested = False
        self._burst = 0
        self._links.resume()
        self._replica_links.pump()
