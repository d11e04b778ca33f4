"""Binds a connection of the application to an engine, or to a detached connection between two engines.

Theory of operation
-------------------
Handlers hold ``Connection``, ``Session``, ``Sender`` and ``Receiver``.  At first, and after a lost
connection, their C objects belong to a detached connection: a proton connection without a transport.  A
handler may do everything on it, and nothing is sent.  ``bind`` moves the endpoints to the connection of an
engine that was just opened, and ``connection_ended`` moves them back.  Each move copies the endpoints open on
this side, and nothing of the peer's state.

While bound, this is the engine's ``ProtonEventHandler``: proton's events go to the handlers one by one, in
the order in which proton made them.

Rules
-----
* The events of a move are dropped: handlers saw them when they opened the endpoints.  After a move to a
  session that discovery opened, they see the peer's Open and Begin, as from proton.
* A Close by a peer that is no longer the primary (``_LOSS_CONDITIONS``) is a lost connection, not an error.
* A lost connection is one event, ``on_transport_closed``, and so one ``on_disconnected``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import proton
from cproton_ffi import lib
from proton import Endpoint

from haclient.core.quirks import unsupported, workarounds
from haclient.engine import peer_fields
from haclient.reactor.endpoints.delivery_events import DeliveryEvent
from haclient.reactor.endpoints.endpoint import Connection, Session
from haclient.reactor.endpoints.links import Receiver, Sender
from haclient.reactor.endpoints.released import Released
from haclient.reactor.ids import Marker
from haclient.reactor.kept import Kept
from haclient.reactor.proton_events import TYPES, Event, event_of, transport_with

if TYPE_CHECKING:
    from haclient.engine.owner import CloseReason
    from haclient.engine.protocol import Engine
    from haclient.reactor.loop import Reactor

_TRANSPORT: int = lib.PN_TRANSPORT
# ``connection_ended`` reports the end of the transport, once.
_REPORTED_AT_THE_END = frozenset(
    {
        lib.PN_TRANSPORT_ERROR,
        lib.PN_TRANSPORT_TAIL_CLOSED,
        lib.PN_TRANSPORT_HEAD_CLOSED,
        lib.PN_TRANSPORT_CLOSED,
    }
)
_CLOSES = {
    lib.PN_LINK_LOCAL_CLOSE: Endpoint.LOCAL_CLOSED,
    lib.PN_LINK_REMOTE_CLOSE: Endpoint.REMOTE_CLOSED,
}
_PEER_ENDS = frozenset({lib.PN_LINK_REMOTE_CLOSE, lib.PN_LINK_REMOTE_DETACH, lib.PN_SESSION_REMOTE_CLOSE})
# Conditions of passive members, and of members that shut down (docs/internals/discovery.md, rule 5).
_LOSS_CONDITIONS = frozenset(
    {
        "amqp:connection:forced",
        "amqp:connection:redirect",
        "amqp:resource-limit-exceeded",
        "amqp:internal-error",
    }
)
# proton's condition for a connection whose socket ended without a Close.
_ABORTED = "amqp:connection:framing-error"


class Connector(Protocol):
    """Gets an engine for a connection."""

    failover: bool
    """True if a lost connection is replaced."""
    failure: Exception | None
    """The error with which it gave up, if it did."""

    def start(self) -> None:
        """Dial: the application opened the connection."""

    def close(self) -> None:
        """Send Close and stop dialling: the application closed the connection."""

    def on_waiting(self) -> None:
        """Note that a blocking call begins to wait while there is no engine."""

    def ended(self) -> None:
        """Handle the end of the bound engine."""


class Binding(Kept):
    """One connection of the application, bound to an engine or detached.

    :ivar connector: dials; ``None`` for an accepted connection.
    """

    def __init__(self, container: Reactor, accepted: Engine | None = None) -> None:
        self.released = Released()
        self.container = container
        self.encode = container.encoder.encode
        self.engine: Engine | None = None
        self.connector: Connector | None = None
        self._sessions: dict[Any, Session] = {}
        self._links: dict[Any, Sender | Receiver] = {}
        self._collector: proton.Collector | None = None
        self._raw: proton.Connection | None = None
        self.engine_count = 0
        """The number of engines so far."""
        self.ids_live_with_messages = True
        self.takes_early_credit = False
        """Set if non-durable messages have ids (``core.quirks``), and until a primary is known."""
        self.waiting = 0
        """The number of waiting blocking calls."""
        self._closed = False
        if accepted is None:
            self.connection = Connection(self._make_detached(), self)
        else:
            self.connection = Connection(accepted.connection._impl, self)
            self.engine = accepted
            accepted.event_handler = self

    @property
    def closed(self) -> bool:
        """Return whether the connection has ended for good."""
        return self._closed

    @property
    def failure(self) -> Exception | None:
        """Return the error of a search that gave up, if it did."""
        return None if self.connector is None else self.connector.failure

    @property
    def keeps_ledger(self) -> bool:
        """Return whether unsettled messages are sent again over the next connection."""
        return self.connector is not None and self.connector.failover

    @property
    def has_deliveries(self) -> bool:
        """Return whether any delivery, sent or received, is unsettled."""
        return any(link.deliveries for link in self._links.values())

    def unsettled(self, *, left: bool = False) -> int:
        """Return the number of sent messages without an outcome.

        :param left: count only messages that a lost connection had on its wire.
        """
        senders = (link for link in self._links.values() if isinstance(link, Sender))
        deliveries = (each for link in senders for each in link.deliveries.values() if each.must_arrive)
        return sum(delivery.left or not left for delivery in deliveries)

    # -- the application's side ---------------------------------------------------------------

    def session(self, impl: Any) -> Session:
        """Return the Python object of a session."""
        session = self._sessions.get(impl)
        if session is None:
            session = self._sessions[impl] = Session(impl, self)
        return session

    def link(self, impl: Any) -> Sender | Receiver:
        """Return the Python object of a link."""
        link = self._links.get(impl)
        if link is None:
            kind = Sender if lib.pn_link_is_sender(impl) else Receiver
            link = self._links[impl] = kind(impl, self, self.session(lib.pn_link_session(impl)))
            if isinstance(link, Sender) and self.keeps_ledger:
                link._marker = Marker()
        return link

    def prepare_attach(self, session: Session, name: str) -> None:
        """Write what precedes an Attach, and check that the peer allows another link in the session.

        Otherwise proton would write the Attach before a Detach of the same name, and nothing more at all
        after a link too many.

        :raises proton.LinkException: when the peer allows no other link.
        """
        engine = self.engine
        if engine is None:
            return
        lib.pn_transport_pending(engine.transport._impl)
        most = engine.incoming.limits.handle_max
        if most is not None and len(self._links) > most and self._open_links_in(session) > most:
            raise proton.LinkException(f"cannot attach {name!r}: {_too_many(most)}")

    def links_beyond(self, engine: Engine) -> str | None:
        """Return why an engine's peer does not allow the links that are open now; ``None`` if it does."""
        most = engine.incoming.limits.handle_max
        if most is None or all(self._open_links_in(each) <= most + 1 for each in self._sessions.values()):
            return None
        return _too_many(most)

    def _open_links_in(self, session: Session) -> int:
        return sum(link.session is session and link.is_open for link in self._links.values())

    def wake(self) -> None:
        """Send the application's changes, and report them to the handlers."""
        if self.engine is not None:
            self.engine.wake()
        else:
            self.container.wake(self)

    # -- called by the container ----------------------------------------------------------------

    def due(self) -> float:
        """Return when its engine needs the loop; 0 without an engine."""
        return 0.0 if self.engine is None else self.engine.next_tick

    def catch_up(self) -> None:
        """Give the handlers the events that were held back."""
        if self.engine is not None:
            self.handle_events(self.engine)

    def let_go(self) -> None:
        """End an accepted connection; a connector ends its engine itself."""
        if self.connector is None:
            self.abort()

    def abort(self) -> None:
        """End the engine."""
        if self.engine is not None:
            self.engine.abort()

    # -- moves between engines ----------------------------------------------------------------

    def bind(self, engine: Engine, session: proton.Session | None) -> None:
        """Move to an engine.

        :param session: a session that is already usable.  Without one, Open and Begin are sent here, and the
            events of the peer's answers follow.
        """
        self.drain()
        if not self.connection.active:
            engine.close()
            return
        self.engine = engine
        self.engine_count += 1
        if session is not None:
            self.ids_live_with_messages = workarounds.ids_live_with_messages(engine.peer_properties)
        # Without a session the peer's Open has not arrived.
        self.takes_early_credit = session is not None and workarounds.takes_early_credit(engine)
        self._transfer(engine.connection._impl, None if session is None else session._impl, detached=False)
        self._raw = self._collector = None
        engine.event_handler = self
        pop, collector = lib.pn_collector_pop, engine._pc
        while pop(collector):
            pass
        self._report(lib.PN_CONNECTION_BOUND, self.connection)
        if session is not None:
            self._report(lib.PN_CONNECTION_REMOTE_OPEN, self.connection)
            self._report(lib.PN_SESSION_REMOTE_OPEN, self.session(session._impl))
        engine.wake()

    def connection_ended(self, engine: Engine) -> None:
        """Save the application's state: the engine is about to release proton's objects."""
        engine.event_handler = None
        if engine is not self.engine:
            return
        self.engine = None
        ended = [event for link in self._links.values() for event in link.on_disconnected()]
        closing = not self.connection.active
        if not closing:
            self._transfer(self._make_detached(), None, detached=True)
            self._drop_events()
        assert engine.close_reason is not None
        self.report_closed(engine.transport, engine.close_reason)
        for event in ended:
            if not closing or event.transaction.waits:
                self.container.post(event)
        if self.connector is None:
            self.over()
        else:
            self.connector.ended()

    def over(self) -> None:
        """Release the connection for good: there will be no other engine."""
        self._closed = True
        self._sessions.clear()
        self._links.clear()
        self.released.free()
        self.container.release(self)

    def report_closed(self, transport: proton.Transport, reason: CloseReason | None) -> None:
        """Report a lost connection, or the end, to the handlers."""
        if reason is not None and self._is_error(reason):
            if peer_fields.transport_condition(transport) is None:
                condition = reason.condition or proton.Condition(_ABORTED, str(reason))
                transport = transport_with(condition.name, condition.description or "")
            self.container.post(self._event(TYPES[lib.PN_TRANSPORT_ERROR], transport, transport))
        self.container.post(self._event(TYPES[lib.PN_TRANSPORT_CLOSED], transport, transport))

    def _is_error(self, reason: CloseReason) -> bool:
        if self.connection.state & Endpoint.LOCAL_CLOSED:
            return False
        return not reason.by_peer or (
            reason.condition is not None and reason.condition.name not in _LOSS_CONDITIONS
        )

    def attempt_failed(self, transport: proton.Transport) -> None:
        """Report a failed attempt of a search that continues."""
        if not self.container.held:
            self.container.post(self._event(TYPES[lib.PN_TRANSPORT_ERROR], transport, transport))

    def gave_up(self, transport: proton.Transport, *, reported: bool) -> None:
        """Report that there is no member to connect to.

        :param reported: whether the handlers already know that they are disconnected.
        """
        self.container.post(self._event(TYPES[lib.PN_TRANSPORT_ERROR], transport, transport))
        if not reported:
            self.container.post(self._event(TYPES[lib.PN_TRANSPORT_CLOSED], transport, transport))
        for link in self._links.values():
            if isinstance(link, Sender) and link.transactions:
                for event in link.end_transactions():
                    self.container.post(event)

    def _make_detached(self) -> Any:
        raw = proton.Connection()
        self._collector = proton.Collector()
        raw.collect(self._collector)
        self._raw = raw
        return raw._impl

    def _transfer(self, impl: Any, usable: Any | None, *, detached: bool) -> None:
        connection = self.connection
        if detached:
            lib.pn_connection_set_container(impl, lib.pn_connection_get_container(connection._impl))
            lib.pn_connection_set_hostname(impl, lib.pn_connection_get_hostname(connection._impl))
        connection.rebind(impl)
        if connection.state & Endpoint.LOCAL_UNINIT:
            proton.Connection.open(connection)
        sessions, links = self._sessions, self._links
        self._sessions, self._links = {}, {}
        for session in sessions.values():
            if not session.state & Endpoint.LOCAL_CLOSED:
                target, usable = usable or lib.pn_session(impl), None
                session.transfer(target)
                self._sessions[target] = session
        for link in links.values():
            if not (link.state | link.session.state) & Endpoint.LOCAL_CLOSED:
                link.transfer(link.session._impl, detached=detached)
                self._links[link._impl] = link

    def _drop_events(self) -> None:
        assert self._collector is not None
        while lib.pn_collector_pop(self._collector._impl):
            pass

    # -- events -------------------------------------------------------------------------------

    def handle_events(self, engine: Engine) -> None:
        """Dispatch proton's events to the handlers (``ProtonEventHandler``)."""
        container = self.container
        peek, pop, collector = lib.pn_collector_peek, lib.pn_collector_pop, engine._pc
        delivery_of, link = lib.pn_event_delivery, None
        if container.held:
            while (raw := peek(collector)) and lib.pn_event_type(raw) == _TRANSPORT:
                pop(collector)
            if raw:
                container.mark_pending()
            return
        with self.released.here():
            while engine.close_reason is None and container.error is None and (raw := peek(collector)):
                pointer = delivery_of(raw)
                if not pointer:
                    self._handle_event(engine, raw, pop, collector)
                    link = None  # it may be closed now, and another link may reuse its deliveries' memory
                    continue
                pop(collector)
                # Successive deliveries are usually of the same link, whose table answers without a C call.
                delivery = None if link is None else link.deliveries.get(pointer)
                if delivery is None:
                    link = self.link(lib.pn_delivery_link(pointer))
                    known = pointer in link.deliveries
                    if not known and isinstance(link, Receiver) and link.drops(pointer):
                        continue
                    delivery = link.delivery_of(pointer)
                container.dispatch(DeliveryEvent(self, link, delivery))
        container.pending |= container.failed
        container.events_handled()

    def drain(self) -> None:
        """Dispatch the events of the detached connection."""
        self.released.free()
        collector = self._collector
        while collector is self._collector and collector is not None and not self.container.failed:
            raw = lib.pn_collector_peek(collector._impl)
            if not raw:
                return
            kind = lib.pn_event_type(raw)
            event = event_of(self, kind, raw)
            lib.pn_collector_pop(collector._impl)
            if event is not None:
                self.container.dispatch(event)
                self._follow(kind)

    def _handle_event(self, engine: Engine, raw: Any, pop: Any, collector: Any) -> None:
        kind = lib.pn_event_type(raw)
        if kind == _TRANSPORT:
            pop(collector)
            return
        event = event_of(self, kind, raw)
        link = None if event is None else event.link
        ended = link is not None and kind in _CLOSES and link.has_ended(_CLOSES[kind])
        pop(collector)
        if kind in _REPORTED_AT_THE_END:
            engine.handle(Event(self.container, TYPES[kind], engine.transport))
        elif kind == lib.PN_CONNECTION_REMOTE_CLOSE:
            self._on_peer_close(engine, event)
        elif event is not None:
            if kind == lib.PN_CONNECTION_REMOTE_OPEN:
                engine.handle(event)
            elif kind == lib.PN_LINK_REMOTE_OPEN and isinstance(event.link, Sender | Receiver):
                self._on_attached(engine, event.link)
            elif kind in _PEER_ENDS:
                self._on_peer_end(event)
            self.container.dispatch(event)
            self._follow(kind)
            if ended and self.engine is engine:
                self._free(link)

    def _on_attached(self, engine: Engine, link: Sender | Receiver) -> None:
        """Handle the peer's Attach: warn about its known limits, and send the credit that waited."""
        receives = isinstance(link, Receiver)
        address = (link.source if receives else link.target).address
        if address and engine.settings.sasl_server is None:
            workarounds.advise_address(engine.peer_properties, link.name, address, receives=receives)
        if isinstance(link, Receiver):
            unsupported.warn_of(engine, link)
            link.answered()

    def _free(self, link: Any) -> None:
        del self._links[link._impl]
        lib.pn_link_free(link._impl)

    def _on_peer_end(self, event: Event) -> None:
        """Count a loss of the links that the peer ended: transactions end with their coordinator's link."""
        if event.link is not None:
            event.link.losses += 1
            return
        for link in self._links.values():
            link.losses += link.session is event.session

    def _on_peer_close(self, engine: Engine, event: Event | None) -> None:
        assert event is not None
        condition = peer_fields.condition(self.connection)
        lost = condition is None or condition.name in _LOSS_CONDITIONS
        if not (lost and self.keeps_ledger and self.connection.active):
            self.container.dispatch(event)
            if not self.connection.active and self.connector is not None:
                self.connector.close()
        engine.handle(event)

    def _follow(self, kind: int) -> None:
        """Dial or close after the handlers have seen an event."""
        if kind == lib.PN_CONNECTION_LOCAL_OPEN and self.engine is None:
            self.container.dial(self)
        elif kind == lib.PN_CONNECTION_LOCAL_CLOSE and self.connector is not None and not self._closed:
            self.connector.close()

    def _report(self, kind: int, endpoint: Any) -> None:
        session = endpoint if isinstance(endpoint, Session) else None
        transport = None if self.engine is None else self.engine.transport
        event = Event(
            self.container,
            TYPES[kind],
            endpoint,
            connection=self.connection,
            session=session,
            transport=transport,
        )
        self.container.dispatch(event)

    def _event(self, kind: Any, context: Any, transport: Any) -> Event:
        return Event(self.container, kind, context, connection=self.connection, transport=transport)


def _too_many(handle_max: int) -> str:
    links = "1 link" if handle_max == 0 else f"{handle_max + 1} links"
    return (
        f"the peer takes {links} in a session at most (its handle-max is {handle_max}): "
        "use another session or connection, or close links"
    )
