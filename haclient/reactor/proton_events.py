"""Events as handlers get them: proton's, with the objects that the application holds.

proton makes up to five wrappers of C objects for every event; these events reuse existing objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton
from cproton_ffi import lib

from haclient.reactor.ids import unmark

if TYPE_CHECKING:
    from proton import reactor as proton_reactor

    from haclient.reactor.endpoints.bound import Bound

TYPES: dict[int, Any] = proton.EventType.TYPES
_CONNECTION_EVENTS = frozenset(
    {
        lib.PN_CONNECTION_INIT,
        lib.PN_CONNECTION_BOUND,
        lib.PN_CONNECTION_UNBOUND,
        lib.PN_CONNECTION_LOCAL_OPEN,
        lib.PN_CONNECTION_REMOTE_OPEN,
        lib.PN_CONNECTION_LOCAL_CLOSE,
        lib.PN_CONNECTION_REMOTE_CLOSE,
    }
)
_SESSION_EVENTS = frozenset(
    {
        lib.PN_SESSION_INIT,
        lib.PN_SESSION_LOCAL_OPEN,
        lib.PN_SESSION_REMOTE_OPEN,
        lib.PN_SESSION_LOCAL_CLOSE,
        lib.PN_SESSION_REMOTE_CLOSE,
    }
)
_LINK_EVENTS = frozenset(
    {
        lib.PN_LINK_INIT,
        lib.PN_LINK_LOCAL_OPEN,
        lib.PN_LINK_REMOTE_OPEN,
        lib.PN_LINK_LOCAL_CLOSE,
        lib.PN_LINK_REMOTE_CLOSE,
        lib.PN_LINK_LOCAL_DETACH,
        lib.PN_LINK_REMOTE_DETACH,
        lib.PN_LINK_FLOW,
    }
)


class Event(proton.Event):
    """One event; handlers that receive set ``message``."""

    def __init__(
        self,
        container: proton_reactor.Container,
        kind: Any,
        context: Any,
        *,
        connection: Any = None,
        session: Any = None,
        link: Any = None,
        delivery: Any = None,
        transport: Any = None,
    ) -> None:
        self._type = kind
        self._clsname = type(context).__name__
        self._context = context
        self._container = container
        self._connection = connection
        self._session = session
        self._link = link
        self._delivery = delivery
        self._transport = transport
        self._message: Any = None

    @property
    def container(self) -> proton_reactor.Container:
        """Return the container of the event."""
        return self._container

    @property
    def reactor(self) -> proton_reactor.Container:
        """Return the container, under proton's older name."""
        return self._container

    @property
    def message(self) -> Any:
        """Return the received message, in ``on_message``."""
        return self._message

    @message.setter
    def message(self, message: Any) -> None:
        if isinstance(message, proton.Message):
            unmark(message)
            if isinstance(message.body, memoryview):
                # A view into the message's own memory: reading it after the message is freed crashes.
                message.body = memoryview(bytes(message.body))
        self._message = message


def event_of(binding: Bound, kind: int, raw: Any) -> Event | None:
    """Return an event of a connection, a session or a link; ``None`` for any other."""
    transport = None if binding.engine is None else binding.engine.transport
    link = session = None
    context: Any
    if kind in _LINK_EVENTS:
        context = link = binding.link(lib.pn_event_link(raw))
        session = link.session
    elif kind in _SESSION_EVENTS:
        context = session = binding.session(lib.pn_event_session(raw))
    elif kind in _CONNECTION_EVENTS:
        context = binding.connection
    else:
        return None
    return Event(
        binding.container,
        TYPES[kind],
        context,
        connection=binding.connection,
        session=session,
        link=link,
        transport=transport,
    )


def transport_with(name: str, description: str) -> proton.Transport:
    """Return a transport that holds the reason for a missing connection."""
    transport = proton.Transport()
    transport.condition = proton.Condition(name, description)
    return transport
