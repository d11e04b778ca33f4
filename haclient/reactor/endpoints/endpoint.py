"""proton's connections and sessions as the application holds them, over any number of engines.

Theory of operation
-------------------
Each class, also in ``links`` and ``deliveries``, extends proton's: its C object can be exchanged
(``rebind``).  When a connection is lost, ``Binding`` exchanges it for an endpoint of a detached connection,
which no peer sees; later for the endpoint of the next connection.  So ``self.sender`` of an application stays
the same object.  proton itself cannot move an endpoint correctly from one transport to the next.

Rules
-----
* There is one Python object for each endpoint and each unsettled delivery, which all its events carry.  Each
  is equal only to itself, and attributes set on it stay.
* A peer's text that is not UTF-8 is escaped; proton would raise.  Handlers and blocking calls of proton and
  of applications read such texts outside of any ``try``.
* The application's changes wake the binding, which sends them.
* A finalizer calls nothing of proton, since it may run in any thread (``released``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import cproton
import proton
from cproton_ffi import lib
from proton import Endpoint

from haclient.engine import peer_fields

if TYPE_CHECKING:
    from haclient.reactor.endpoints.bound import Bound
    from haclient.reactor.endpoints.links import Receiver, Sender

_ACTIVE = Endpoint.LOCAL_ACTIVE


class Rebindable:
    """A proton wrapper that keeps its attributes itself, so that its C object can change."""

    if TYPE_CHECKING:
        _impl: Any

    # Class attributes: proton's ``__setattr__`` then leaves them to Python, and lookups are quick.
    _handler: Any = None
    condition: Any = None
    _binding: Bound = cast("Bound", None)

    def __init__(self, impl: Any, binding: Bound) -> None:
        cproton.pn_incref(impl)
        binding.released.count += 1
        # Not by assignment: proton's ``__setattr__`` costs as much as the rest.
        attributes = self.__dict__
        attributes["_impl"] = impl
        attributes["_attrs"] = {}
        attributes["_binding"] = binding
        self._init()

    def _init(self) -> None:
        """Set the attributes that proton's methods expect."""

    def rebind(self, impl: Any) -> None:
        """Use another C object from now on."""
        cproton.pn_incref(impl)
        former, self.__dict__["_impl"] = self._impl, impl
        cproton.pn_decref(former)

    def __del__(self) -> None:
        self._binding.released.add(self._impl)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__

    # The application must not free a C object that another binding will need.
    def free(self) -> None:
        """Do nothing: an endpoint closed on both sides is freed with its connection."""


class RebindableEndpoint(Rebindable):
    """A connection, a session or a link, which also exists at the peer."""

    @property
    def remote_condition(self) -> proton.Condition | None:
        """Return the peer's reason for ending it; bytes that are not UTF-8 are escaped (proton raises)."""
        return peer_fields.condition(cast("Endpoint", self))


class Connection(RebindableEndpoint, proton.Connection):
    """A connection of a container."""

    offered_capabilities_list: Any = None
    desired_capabilities_list: Any = None
    url: Any = None
    _acceptor: Any = None

    def _init(self) -> None:
        self.properties = None

    @property
    def transport(self) -> Any:
        """Return the transport of its current engine; ``None`` without one."""
        engine = self._binding.engine
        return None if engine is None else engine.transport

    @property
    def remote_container(self) -> str | None:
        """Return the container id of the peer; bytes that are not UTF-8 are escaped (proton raises)."""
        return peer_fields.text(lib.pn_connection_remote_container(self._impl))

    @property
    def remote_hostname(self) -> str | None:
        """Return the host that the peer asks for; bytes that are not UTF-8 are escaped (proton raises)."""
        return peer_fields.text(lib.pn_connection_remote_hostname(self._impl))

    @property
    def active(self) -> bool:
        """Return whether it is open on this side."""
        return bool(self.state & _ACTIVE)

    def session(self) -> Session:
        """Return a new session, not begun yet."""
        made = self._binding.session(lib.pn_session(self._impl))
        self._binding.wake()
        found: Session = made
        return found

    def open(self) -> None:
        """Open the connection; the container dials."""
        super().open()
        self._binding.wake()

    def close(self) -> None:
        """Close the connection for good."""
        super().close()
        self._binding.wake()


class Session(RebindableEndpoint, proton.Session):
    """A session of a connection."""

    @property
    def connection(self) -> Connection:
        """Return the connection it belongs to."""
        found: Connection = self._binding.connection
        return found

    def sender(self, name: str) -> Sender:
        """Return a new sender, not attached yet."""
        made: Any = self._binding.link(cproton.pn_sender(self._impl, name))
        self._binding.wake()
        sender: Sender = made
        return sender

    def receiver(self, name: str) -> Receiver:
        """Return a new receiver, not attached yet."""
        made: Any = self._binding.link(cproton.pn_receiver(self._impl, name))
        self._binding.wake()
        receiver: Receiver = made
        return receiver

    def open(self) -> None:
        """Begin the session."""
        super().open()
        self._binding.wake()

    def close(self) -> None:
        """End the session."""
        super().close()
        self._binding.wake()

    def transfer(self, impl: Any) -> None:
        """Become the session ``impl`` of another connection."""
        active = self.state & _ACTIVE
        capacity = lib.pn_session_get_incoming_capacity(self._impl)
        if capacity != lib.pn_session_get_incoming_capacity(impl):  # proton then sends a Flow for each link
            lib.pn_session_set_incoming_capacity(impl, capacity)
        self.rebind(impl)
        if active and self.state & Endpoint.LOCAL_UNINIT:
            proton.Session.open(self)
