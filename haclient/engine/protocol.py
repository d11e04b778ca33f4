"""The asyncio protocol around proton's sans-I/O engine, for the client and the server side.

Theory of operation
-------------------
asyncio passes bytes to ``data_received``, which pushes them into proton's ``Transport``.  proton collects
events in a ``Collector``.  The engine takes out each event, and calls the owner of the connection or link.
The calls' output stays in proton until ``write`` sends all of it, once per turn of the loop.

Rules
-----
* One engine, one socket, one set of proton objects; all are dropped together.  ``ended`` is the owner's last
  call, made exactly once, even if ``connection_made`` was never called.
* Bytes that are not AMQP, frames over the limit, or an owner that raises end this connection with a logged
  reason, never the process.
* While the socket's buffer is full (``pause_writing``), ``writable`` is false, and output stays in proton.

Sources: AMQP 1.0 part 2, sections 2.4 (connections), 2.4.5 (idle time-out), 2.8 (definitions).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import proton
from cproton_ffi import ffi, lib

from haclient.engine import peer_fields
from haclient.engine.extra_sessions import ExtraSessions
from haclient.engine.heartbeat import LOST, Heartbeat
from haclient.engine.lingering import LingeringSocket
from haclient.engine.link_owner import ReceiverOwner, SenderOwner
from haclient.engine.link_table import LinkTable
from haclient.engine.links import Link, ReceiverLink, SenderLink
from haclient.engine.owner import CloseReason, EngineOwner, ProtonEventHandler
from haclient.engine.proton_objects import ProtonLog, ProtonObjects
from haclient.engine.settings import Settings
from haclient.engine.wire.incoming import IncomingBytes
from haclient.engine.wire.outgoing import WRITE_HIGH_WATER, OutgoingBytes
from haclient.engine.wire.server_tls import TlsSocket
from haclient.printable.log import get_logger

logger = get_logger("haclient.engine")

# Seconds: half of the usual time to open a connection, because a peer has less to do for a Close.
_PEER_CLOSE_TIMEOUT = 5.0


class Engine(asyncio.Protocol):
    """One AMQP connection.  Make a new one for each attempt."""

    def __init__(self, owner: EngineOwner, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.owner = owner
        self.settings = settings
        self.event_handler: ProtonEventHandler | None = None
        self.writable, self.held = True, False
        self.close_reason: CloseReason | None = None
        self.lingering: LingeringSocket | None = None
        """The socket, after ``leave``."""
        self.on_written: Callable[[], None] | None = None
        """Called after each ``write`` that had the socket; output may have left proton."""
        self._loop = loop
        self._socket: asyncio.Transport | None = None
        self._flush_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.links, self.sessions = LinkTable(), ExtraSessions()
        self._peer_closed = self._closing_socket = False
        self._pending_reason: CloseReason | None = None
        self._peer_properties: Mapping[str, Any] | None = None
        self._objects = ProtonObjects(settings)
        self.connection, self.transport = self._objects.connection, self._objects.transport
        self._collector = self._objects.collector
        self.transport.tracer = ProtonLog(self.gave_up)
        self._pt, self._pc = self.transport._impl, self._collector._impl
        self.incoming = IncomingBytes(settings)
        self._outgoing = OutgoingBytes(self._pt, self.incoming)
        self.transport.negotiation = self.incoming.negotiation
        self._heartbeat = Heartbeat(self._pt, settings.heartbeat)

    # -- life ---------------------------------------------------------------------------------

    @property
    def peer_properties(self) -> Mapping[str, Any]:
        """Return the properties of the peer's Open, by plain string; empty before its arrival."""
        if self._peer_properties is None:
            if self.close_reason is not None:
                return {}
            # Cached: decoding takes as long as a dozen messages, and half a dozen places ask.
            self._peer_properties = peer_fields.properties(self.connection)
        return self._peer_properties

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is connected, after the TLS handshake if asyncio does TLS."""
        # uvloop's transports derive from no class of asyncio, so isinstance would fail.
        self._socket = cast("asyncio.Transport", transport)
        if self.close_reason is not None:
            self._socket.abort()
            return
        if self.settings.tls_context is not None:
            self._socket = TlsSocket(self._socket, self.settings.tls_context, self.settings)
        self.transport.socket = self._socket
        self._socket.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self.incoming.begin(self._socket)
        self._heartbeat.last_read = self._loop.time()
        self.wake()

    def open(
        self, *, offered: tuple[str, ...] | None = None, properties: dict[str, Any] | None = None
    ) -> None:
        """Send Open.  Omitted arguments are taken from the settings."""
        self._objects.open(self.settings, offered=offered, properties=properties)
        self.wake()

    def begin(self) -> proton.Session:
        """Send Begin; the engine calls ``EngineOwner.session_opened`` at the answer."""
        session = self.connection.session()
        session.open()
        self.wake()
        return session

    def close(self, condition: proton.Condition | None = None) -> None:
        """Send Close; the connection ends when the peer has answered it."""
        if self.close_reason is None:
            if condition is not None:
                self.connection.condition = condition
            self.connection.close()
            self.wake()

    def refuse_peer(self, condition: proton.Condition) -> None:
        """Send Close with this condition, and end the connection without waiting for the answer."""
        self.close(condition)
        if self._socket is not None and self.writable:
            self._outgoing.write_all(self._socket)
        self.abort(condition)

    def leave(self) -> None:
        """Send or answer Close, and end the connection now; its socket closes in the background.

        Earlier output, above all outcomes, is sent first: see ``lingering``.
        """
        socket, self._socket = self._socket, None
        if self.close_reason is not None or socket is None:
            return
        try:
            self._outgoing.write_all(socket)
            self._end(None, answering=socket)
        except BaseException:
            socket.abort()
            raise

    def abort(self, reason: proton.Condition | None = None) -> None:
        """End the connection now, without sending Close."""
        if self._pending_reason is None and reason is not None:
            self._pending_reason = CloseReason(reason)
        if self._socket is not None:
            self._socket.abort()
        self._end(None)

    def gave_up(self, reason: proton.Condition) -> None:
        """End the connection in the loop's next turn: proton sends nothing more, but is still running."""
        self._loop.call_soon(self.abort, reason)

    @property
    def peer(self) -> str:
        """Return the peer's ``host:port``, for logs."""
        name = self._socket.get_extra_info("peername") if self._socket is not None else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "nowhere"

    @property
    def written(self) -> int:
        """Return the number of bytes that have left the process, as far as the socket reports."""
        waiting = 0 if self._socket is None else self._socket.get_write_buffer_size()
        return self._outgoing.taken - waiting

    @property
    def next_tick(self) -> float:
        """Return when heartbeats are checked next, in the loop's time; infinite for never.  Thread-safe."""
        timer = self._timer
        return math.inf if timer is None else timer.when()

    # -- links --------------------------------------------------------------------------------

    def sender(self, session: proton.Session, name: str, owner: SenderOwner) -> SenderLink:
        """Create a sender link, not attached yet: configure its ``endpoint``, then ``attach`` it."""
        link = SenderLink(self, session.sender(name), owner)
        self.links.add(link)
        return link

    def receiver(self, session: proton.Session, name: str, owner: ReceiverOwner) -> ReceiverLink:
        """Create a receiver link, not attached yet: configure its ``endpoint``, then ``attach`` it."""
        link = ReceiverLink(self, session.receiver(name), owner)
        self.links.add(link)
        return link

    def when_free(self, kind: type[Link], name: str, then: Callable[[], None]) -> bool:
        """See ``LinkTable.when_free``: proton would write a new Attach before the Detach of the same name."""
        return self.links.when_free(kind, name, then)

    def attach(self, link: Link) -> None:
        """Send Attach (client), or answer the peer's (server); ``unsettled.attach`` also sends a map.

        :raises AttachTooLarge: (client) if the Attach exceeds the peer's frame size; the link is dropped.
        """
        if isinstance(link, ReceiverLink):
            link.endpoint.max_message_size = self.settings.max_message_size
        if self.settings.sasl_server is None:
            self.links.check_size(link, self.transport)
            self.sessions.attached(link)
        link.endpoint.open()
        self.wake()

    def refuse(self, link: Link, condition: proton.Condition) -> None:
        """Answer the peer's Attach with an error: AMQP 1.0 part 2, section 2.6.3.

        The Attach before the Detach has no terminus, so the peer sees at once that the link is refused.
        """
        link.endpoint.source.type = link.endpoint.target.type = proton.Terminus.UNSPECIFIED
        if self.settings.sasl_server is None:
            self.sessions.attached(link)
        link.endpoint.open()
        link.close(condition)

    # -- bytes in -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """asyncio: the peer sent bytes."""
        self._heartbeat.last_read = self._loop.time()
        data, wrong = self.incoming.read(self._socket, data)
        if wrong is not None:
            self.abort(wrong)
            return
        self._push(data)
        self.incoming.forget()
        if (
            self.close_reason is None
            and self._pending_reason is None
            and lib.pn_transport_capacity(self._pt) < 0
            and not self.connection.state & proton.Endpoint.REMOTE_CLOSED  # an event handler may see it later
        ):
            # proton refuses some frames without an error: it just takes no more input.
            self.abort(proton.Condition("amqp:connection:framing-error", "the peer's bytes are not AMQP"))
        # Usually there is nothing to answer, and no need for a turn of the loop.
        if self._timer is None or lib.pn_transport_pending(self._pt) != 0:
            self.wake()

    def _push(self, data: bytes) -> None:
        push, capacity, pt = lib.pn_transport_push, lib.pn_transport_capacity, self._pt
        position, size = 0, len(data)
        while position < size and self.close_reason is None:
            if (free := capacity(pt)) <= 0:
                break
            size_taken = min(free, size - position)
            chunk = data if size_taken == size else data[position : position + size_taken]
            if push(pt, ffi.from_buffer(chunk), size_taken) < 0:
                break
            position += size_taken
            self._dispatch()

    def eof_received(self) -> bool:
        """asyncio: the peer will send no more."""
        self._pending_reason = self._pending_reason or CloseReason()
        lib.pn_transport_close_tail(self._pt)
        self._dispatch()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is closed."""
        self._end(exc)

    # -- bytes out ----------------------------------------------------------------------------

    def wake(self) -> None:
        """Send pending output at the end of this turn of the loop; if ``held``, only ``write`` sends."""
        if self._flush_handle is None and not self.held and self.close_reason is None:
            self._flush_handle = self._loop.call_soon(self.write)

    def change_output(self, call: Callable[[], None], change: Callable[[bytes], bytes]) -> None:
        """See ``OutgoingBytes.change``; changes nothing without a socket."""
        if self._socket is None:
            call()
        else:
            self._outgoing.change(self._socket, call, change)

    def give_in_pieces(self, link: Any, data: bytes, size: int) -> None:
        """See ``OutgoingBytes.give``."""
        self._outgoing.give(self._socket, link, data, size)

    def pause_writing(self) -> None:
        """asyncio: the socket's buffer is full."""
        self.writable = False

    def resume_writing(self) -> None:
        """asyncio: the socket's buffer has room again."""
        self.writable = True
        if self.close_reason is None:
            self.wake()
            self._guard(self.owner.writable_again, self)

    def write(self) -> None:
        """Send pending output now."""
        self._flush_handle = None
        if self.close_reason is not None or self._socket is None:
            return
        if not self.writable:
            if self._timer is None:  # the peer may be silent while its socket is full
                self._tick()
            return
        if not self._outgoing.write(self._socket, self.wake):  # ``connection_lost`` follows
            return
        self._dispatch()
        self.links.free_sessions()
        if self.close_reason is not None:
            return
        pending = lib.pn_transport_pending(self._pt)
        if pending == lib.PN_EOS:
            self._close_socket(self._socket)
        elif self._timer is None:
            self._tick()
        if pending == 0 and self.sessions.unwritten:
            self._guard(self.sessions.written)
        if self.on_written is not None and self.close_reason is None:
            self._guard(self.on_written)

    def _close_socket(self, socket: asyncio.Transport) -> None:
        """Close the socket after the last output, but not while the peer may still be reading.

        Closing a socket with unread input resets the connection.  The peer's kernel then drops unread bytes:
        settlements and the Close itself.
        """
        if self._pending_reason is None and not self.connection.state & proton.Endpoint.LOCAL_CLOSED:
            # proton gives up without an error on a TLS hello where it expects no TLS.
            self._pending_reason = CloseReason(proton.Condition("amqp:connection:framing-error", "not AMQP"))
        if self._peer_closed or self._pending_reason is not None:
            socket.close()
        elif not self._closing_socket:
            self._closing_socket = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(_PEER_CLOSE_TIMEOUT, self.abort)

    def _tick(self) -> None:
        """Send a heartbeat if due, and check the peer's (AMQP 1.0 part 2, section 2.4.5)."""
        self._timer = None
        if self.close_reason is not None:
            return
        now = self._loop.time()
        next_tick = self._heartbeat.tick(now)
        if next_tick == LOST:
            self._end_silent(now)
            return
        if next_tick is not None:
            self._timer = self._loop.call_at(max(next_tick, now + 0.001), self._tick)
        self._dispatch()
        if self.writable and not self.incoming.is_in_sasl and lib.pn_transport_pending(self._pt) != 0:
            self.wake()

    def _end_silent(self, now: float) -> None:
        condition = self._heartbeat.expire(now)
        if self._socket is not None and self.writable:
            self._outgoing.write_all(self._socket)  # a peer that lives gets the Close
        self._pending_reason = self._pending_reason or CloseReason(condition, silent=True)
        self.abort()

    # -- events -------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Call the handler of each event that proton has collected."""
        if self.event_handler is not None:
            self.event_handler.handle_events(self)
            return
        self._guard(self._handle_events)

    def _handle_events(self) -> None:
        peek, pop, pc = lib.pn_collector_peek, lib.pn_collector_pop, self._pc
        delivery_of, links = lib.pn_event_delivery, self.links.by_pointer
        link: Link | None = None
        while self.close_reason is None and (event := peek(pc)):
            # Among the events that are handled here, only delivery events have a delivery.
            delivery = delivery_of(event)
            if delivery:
                pop(pc)
                # Successive deliveries are usually of the same link, whose set answers without a C call.
                if link is None or delivery not in link.unsettled:
                    link = links.get(lib.pn_delivery_link(delivery))
                if link is not None:
                    link.on_delivery(delivery)
            elif (handle := _RARE_EVENTS.get(lib.pn_event_type(event))) is not None:
                # proton's event object may be used after the pop, the C event not
                wrapped: Any = self._collector.peek()
                pop(pc)
                link = None  # it may be closed now, and another link may reuse its deliveries' memory
                handle(self, wrapped)
            else:
                pop(pc)

    def handle(self, event: proton.Event) -> None:
        """Do the engine's own part of an event of the connection, for a ``ProtonEventHandler``."""
        handle = _RARE_EVENTS.get(event.type.number)
        if handle is not None:
            handle(self, event)

    def _guard(self, call: Any, *args: Any) -> None:
        try:
            call(*args)
        except UnicodeDecodeError:
            self.abort(proton.Condition("amqp:decode-error", "a text that the peer sent is not UTF-8"))
        except Exception as error:
            logger.exception("%s: connection ended: its owner failed", self.settings.container_id)
            self.abort(proton.Condition("amqp:internal-error", f"{type(error).__name__} in the owner"))

    def _on_remote_open(self, _event: proton.Event) -> None:
        # The peer's idle time-out is known only now: ask proton again when to send heartbeats.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.incoming.greeting = None
        self.wake()
        self.owner.opened(self)

    def _on_remote_close(self, _event: proton.Event) -> None:
        condition = peer_fields.condition(self.connection)
        self._peer_closed = True
        if self._pending_reason is None:
            self._pending_reason = CloseReason(condition, by_peer=True)
        self.owner.peer_closed(self, condition)
        self.close()

    def _on_session_open(self, event: proton.Event) -> None:
        self.owner.session_opened(self, cast("proton.Session", event.session))

    def _on_session_close(self, event: proton.Event) -> None:
        assert event.session is not None
        ended = self.sessions.ended_by_peer(self, event.session)
        if ended is not None:
            self._pending_reason = self._pending_reason or CloseReason(ended)
            self.close(ended)

    def _on_link_open(self, event: Any) -> None:
        self.links.opened(self, event.link)

    def _on_link_close(self, event: Any) -> None:
        self.links.closed(self, event.link)

    def _on_link_flow(self, event: Any) -> None:
        self.links.credit_given(event.link)

    def _on_transport_error(self, _event: proton.Event) -> None:
        condition = peer_fields.transport_condition(self.transport)
        self._pending_reason = self._pending_reason or CloseReason(condition)

    # -- the end ------------------------------------------------------------------------------

    def _end(self, exc: Exception | None, *, answering: asyncio.Transport | None = None) -> None:
        if self.close_reason is not None:
            return
        self.close_reason = self._pending_reason or CloseReason(error=exc)
        for handle in (self._timer, self._flush_handle):
            if handle is not None:
                handle.cancel()
        self._timer = self._flush_handle = None
        for link in self.links.by_pointer.values():
            link.kill()
        if self.event_handler is not None:
            self.event_handler.connection_ended(self)
        if answering is not None:
            # Only now: its handlers would otherwise see a connection that they have closed.
            self.connection.close()
            self._outgoing.write_all(answering)
            self.lingering = LingeringSocket(answering, self._loop)
        try:
            self.owner.ended(self, self.close_reason)
        except Exception:
            logger.exception("%s: the owner of a connection failed at its end", self.settings.container_id)
        self.links.clear()
        self.sessions.clear()
        self._socket = None
        self._objects.release()


_RARE_EVENTS = {
    lib.PN_CONNECTION_REMOTE_OPEN: Engine._on_remote_open,
    lib.PN_CONNECTION_REMOTE_CLOSE: Engine._on_remote_close,
    lib.PN_SESSION_REMOTE_OPEN: Engine._on_session_open,
    lib.PN_SESSION_REMOTE_CLOSE: Engine._on_session_close,
    lib.PN_LINK_REMOTE_OPEN: Engine._on_link_open,
    lib.PN_LINK_REMOTE_CLOSE: Engine._on_link_close,
    lib.PN_LINK_REMOTE_DETACH: Engine._on_link_close,
    lib.PN_LINK_FLOW: Engine._on_link_flow,
    lib.PN_TRANSPORT_ERROR: Engine._on_transport_error,
}
