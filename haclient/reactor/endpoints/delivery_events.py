"""A delivery's event, and what proton's own handlers do with it, without proton's Python objects.

Every message passes through four handlers of ``MessagingHandler``.  They ask the delivery and its link a
dozen questions, through wrappers that cost more than the C calls behind them, and decode with proton.
Handlers of exactly these classes are done here.  A handler of any other class, a subclass of these as well,
is called, and so is each method that an application overrides: ``on_message``, ``on_accepted`` and others.

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
from haclient.reactor.proton_events import TYPES, Event

if TYPE_CHECKING:
    from haclient.reactor.endpoints.binding import Binding
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

    def __init__(self, binding: Binding, delivery: Delivery) -> None:
        self._type = _DELIVERY
        self._clsname = "Delivery"
        self._context = self._delivery = delivery
        self._container = binding.container
        self._connection = binding.connection
        self._link = link = delivery.link
        self._session = link.session
        self._transport = None if binding.engine is None else binding.engine.transport
        self._message: Any = None

    @property
    def handler(self) -> Any:
        """The handler of its link, session or connection; ``None`` without one."""
        return self._link.handler or self._session.handler or self._connection.handler

    def dispatch(self, handler: Any, type: Any = None) -> None:  # noqa: A002 - proton's name
        """Give the event to a handler and to those inside it."""
        handle = _HANDLERS.get(handler.__class__) if type is None or type is _DELIVERY else None
        if handle is None or handler.__dict__.get("handlers") or "on_delivery" in handler.__dict__:
            super().dispatch(handler, type)
        else:
            handle(handler, self, self._delivery)

    def receive(self) -> None:
        """Read the message, the current one of its link."""
        link, pointer = self._link, self._delivery._impl
        size = lib.pn_delivery_pending(pointer)
        buffer = ffi.new("char[]", size)
        count = lib.pn_link_recv(link._impl, buffer, size)
        data = ffi.unpack(buffer, count) if count > 0 else b""
        plain = codec.decode_plain(data)
        if plain is None:
            message = proton.Message()
            message.decode(data)
            self.message = message
        else:
            message, duplicate_id = plain
            fields = vars(message)
            if type(fields["body"]) is bytes:
                fields["body"] = memoryview(fields["body"])  # as proton has it
            if duplicate_id is not None and not codec.is_automatic(duplicate_id):
                fields["properties"] = {codec.DUPLICATE_ID_PROPERTY: duplicate_id}
                codec.mark_received(message, duplicate_id)
            self._message = message
        link.advance()


def _control_flow(handler: Any, event: DeliveryEvent, _delivery: Delivery) -> None:
    """``FlowController``: keep the credit at the size of the window."""
    link = event._link
    if link.is_receiver:
        handler._drained += link.drained()
        if handler._drained == 0:
            link.flow(handler._window - lib.pn_link_credit(link._impl))


def _receive(handler: Any, event: DeliveryEvent, delivery: Delivery) -> None:
    """``IncomingMessageHandler``: read whole messages, and settle them as the handler says."""
    if not event._link.is_receiver:
        return
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
            handler.on_message(event)
            if handler.auto_accept:
                _settle(delivery, _ACCEPTED)
        except Reject:
            _settle(delivery, _REJECTED)
        except Release:
            _settle(delivery, _MODIFIED)
    elif lib.pn_delivery_updated(pointer) and lib.pn_delivery_settled(pointer):
        handler.on_settled(event)


def _send(handler: Any, event: DeliveryEvent, delivery: Delivery) -> None:
    """``OutgoingMessageHandler``: report outcomes, and settle what the peer has settled."""
    if not event._link.is_sender or not lib.pn_delivery_updated(delivery._impl):
        return
    state = lib.pn_delivery_remote_state(delivery._impl)
    if state == _ACCEPTED:
        handler.on_accepted(event)
    elif state == _REJECTED:
        handler.on_rejected(event)
    elif state in (_RELEASED, _MODIFIED):
        handler.on_released(event)
    if lib.pn_delivery_settled(delivery._impl):
        handler.on_settled(event)
        if handler.auto_settle:
            delivery.settle()


def _ignore(_handler: Any, _event: DeliveryEvent, _delivery: Delivery) -> None:
    """``EndpointStateHandler``: deliveries are none of its events."""


def _settle(delivery: Delivery, state: int) -> None:
    delivery.update(state)
    delivery.settle()


_HANDLERS: dict[type, Callable[[Any, DeliveryEvent, Delivery], None]] = {
    FlowController: _control_flow,
    EndpointStateHandler: _ignore,
    IncomingMessageHandler: _receive,
    OutgoingMessageHandler: _send,
}
