"""A delivery's event, and the work of proton's own handlers for it, without proton's Python objects.

Every message passes through four handlers of ``MessagingHandler``.  They query the delivery and its link a
dozen times, through wrappers that cost more than the C calls behind them.  They also decode with proton,
which silently truncates some messages (``amqp_values.decode``).

This module does the work of handlers of exactly these classes.  It calls handlers of any other class,
subclasses included, and each method that an application overrides, such as ``on_message``, ``on_accepted``.

Source: ``proton._handlers`` of python-qpid-proton 0.40.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import ffi, lib
from proton import Endpoint
from proton.handlers import (
    EndpointStateHandler,
    FlowController,
    IncomingMessageHandler,
    OutgoingMessageHandler,
    Reject,
    Release,
)

from haclient.engine import codec
from haclient.reactor.ids import unmark
from haclient.reactor.proton_events import TYPES, Event

if TYPE_CHECKING:
    from haclient.reactor.endpoints.bound import Bound
    from haclient.reactor.endpoints.deliveries import Delivery

_DELIVERY = TYPES[lib.PN_DELIVERY]
_ACCEPTED, _REJECTED, _RELEASED, _MODIFIED = (
    int(state)
    for state in (
        proton.Delivery.ACCEPTED,
        proton.Delivery.REJECTED,
        proton.Delivery.RELEASED,
        proton.Delivery.MODIFIED,
    )
)


class DeliveryEvent(Event):
    """Data or a state arrived for a delivery."""

    def __init__(self, binding: Bound, link: Any, delivery: Delivery) -> None:
        self._type = _DELIVERY
        self._clsname = "Delivery"
        self._context = self._delivery = delivery
        self._container = binding.container
        self._connection = binding.connection
        self._link = link
        self._session = link._session
        self._transport = None if binding.engine is None else binding.engine.transport
        self._message: Any = None
        self._data: bytes | None = None

    @property
    def message(self) -> Any:
        """Return the received message, in ``on_message``; decoded on first use.

        :raises UndecodableMessage: when it cannot be read; raised in the handler, which can reject the
            delivery.
        """
        if self._data is not None:
            message, duplicate_id = codec.decode_of_views(self._data)
            self._data = None
            if duplicate_id is None:
                unmark(message)
            elif not codec.is_automatic(duplicate_id):
                message.properties = {codec.DUPLICATE_ID_PROPERTY: duplicate_id}
                codec.mark_received(message, duplicate_id)
            self._message = message
        return self._message

    @message.setter
    def message(self, message: Any) -> None:
        self._data = None
        Event.message.fset(self, message)  # type: ignore[attr-defined]

    @property
    def handler(self) -> Any:
        """Return the handler of its link, session or connection; ``None`` without one."""
        return self._link._handler or self._session._handler or self._connection._handler

    def dispatch(self, handler: Any, type: Any = None) -> None:  # noqa: A002 - proton's name
        """Give the event to a handler and its inner handlers."""
        if type is not None and type is not _DELIVERY:
            super().dispatch(handler, type)
            return
        # proton's dispatch, without its intermediate calls
        own = getattr(handler, "on_delivery", None)
        if own:
            own(self)
        elif hasattr(handler, "on_unhandled"):
            handler.on_unhandled("on_delivery", self)
        handlers = _OF_SENDERS if self._link.is_sender else _OF_RECEIVERS
        for inner in getattr(handler, "handlers", ()):
            handle = handlers.get(inner.__class__)
            if handle is None or inner.__dict__.get("handlers") or "on_delivery" in inner.__dict__:
                self.dispatch(inner)
            elif handle is not _ignore:
                handle(inner, self, self._delivery)

    def receive(self) -> None:
        """Read the bytes of its link's current message."""
        link, pointer = self._link, self._delivery._impl
        size = lib.pn_delivery_pending(pointer)
        buffer = ffi.new("char[]", size)
        count = lib.pn_link_recv(link._impl, buffer, size)
        self._data = ffi.unpack(buffer, count) if count > 0 else b""
        link.advance()


def _control_flow(handler: Any, event: DeliveryEvent, _delivery: Delivery) -> None:
    """``FlowController``: keep the credit at the size of the window."""
    link = event._link
    handler._drained += link.drained()
    if handler._drained == 0:
        link.flow(handler._window - link.credit)


def _receive(handler: Any, event: DeliveryEvent, delivery: Delivery) -> None:
    """``IncomingMessageHandler``: read whole messages, and settle them as the handler demands."""
    pointer = delivery._impl
    if lib.pn_delivery_aborted(pointer):
        handler.on_aborted(event)
        delivery.settle()
    elif lib.pn_delivery_readable(pointer) and not lib.pn_delivery_partial(pointer):
        event.receive()
        if event._link.state & Endpoint.LOCAL_CLOSED:
            if handler.auto_accept:
                _settle(delivery, _RELEASED)
            return
        try:
            _report(handler, "on_message", event)
            if handler.auto_accept:
                _settle(delivery, _ACCEPTED)
        except Reject:
            _settle(delivery, _REJECTED)
        except Release:
            _settle(delivery, _MODIFIED)
    elif lib.pn_delivery_updated(pointer) and lib.pn_delivery_settled(pointer):
        handler.on_settled(event)


def _send(handler: Any, event: DeliveryEvent, delivery: Delivery) -> None:
    """``OutgoingMessageHandler``: report outcomes, and settle deliveries that the peer has settled."""
    if not lib.pn_delivery_updated(delivery._impl):
        return
    state = lib.pn_delivery_remote_state(delivery._impl)
    if state == _ACCEPTED:
        _report(handler, "on_accepted", event)
    elif state == _REJECTED:
        handler.on_rejected(event)
    elif state in (_RELEASED, _MODIFIED):
        handler.on_released(event)
    if lib.pn_delivery_settled(delivery._impl):
        _report(handler, "on_settled", event)
        if handler.auto_settle:
            delivery.settle()


def _ignore(_handler: Any, _event: DeliveryEvent, _delivery: Delivery) -> None:
    """Do nothing: ``EndpointStateHandler`` and handlers of the other kind of link ignore the event."""


def _report(handler: Any, method: str, event: DeliveryEvent) -> None:
    """Call a method of one of proton's handlers, which calls the application's of the same name."""
    delegate = None if method in handler.__dict__ else handler.delegate
    (getattr(delegate, method, None) or getattr(handler, method))(event)


def _settle(delivery: Delivery, state: int) -> None:
    delivery.update(state)
    delivery.settle()


_Handle = Callable[[Any, DeliveryEvent, "Delivery"], None]
_OF_RECEIVERS: dict[type, _Handle] = {
    FlowController: _control_flow,
    EndpointStateHandler: _ignore,
    IncomingMessageHandler: _receive,
    OutgoingMessageHandler: _ignore,
}
_OF_SENDERS: dict[type, _Handle] = {
    FlowController: _ignore,
    EndpointStateHandler: _ignore,
    IncomingMessageHandler: _ignore,
    OutgoingMessageHandler: _send,
}
