"""proton's deliveries as the application holds them (see ``endpoint``).

Settling a delivery of a lost connection has no effect on the peer: the delivery was rebound, or its C object
is unused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import proton
from cproton_ffi import lib

from haclient.reactor.endpoints.endpoint import Connection, Rebindable, Session

if TYPE_CHECKING:
    from haclient.reactor.endpoints.bound import Bound

# AMQP 1.0 part 4, section 4.5.8: the state of a message sent or accepted under a transaction.
_TRANSACTIONAL = 0x34


class Delivery(Rebindable, proton.Delivery):
    """One delivery, sent or received."""

    data: bytes | None = None
    """The encoded message, while a ledger keeps it."""
    mark: str | None = None
    """The duplicate-detection id."""
    left = False
    """Set if it was on the wire of a connection that is lost."""
    forgotten = False
    """Set if it was settled here before there was a connection to send it over."""
    transaction: Any = None
    _link: Any = None
    _local: Any = None
    _remote: Any = None

    def __init__(self, impl: Any, binding: Bound, link: Any) -> None:
        # ``Rebindable.__init__`` in one step, since there is one delivery for each message.
        lib.pn_incref(impl)
        binding.released.count += 1
        attributes = self.__dict__
        attributes["_impl"] = impl
        attributes["_attrs"] = {}
        attributes["_binding"] = binding
        attributes["_link"] = link

    @property
    def link(self) -> Any:
        """Return the link of the delivery."""
        return self._link

    @property
    def session(self) -> Session:
        """Return the session of the delivery."""
        session: Session = self._link.session
        return session

    @property
    def connection(self) -> Connection:
        """Return the connection of the delivery."""
        found: Connection = self._binding.connection
        return found

    @property
    def local(self) -> proton.Disposition:  # type: ignore[override]
        """Return the state given here."""
        if self._local is None:
            self._local = proton.Disposition(lib.pn_delivery_local(self._impl), True)
        return cast("proton.Disposition", self._local)

    @property
    def remote(self) -> proton.Disposition:  # type: ignore[override]
        """Return the state that the peer gave."""
        if self._remote is None:
            self._remote = proton.Disposition(lib.pn_delivery_remote(self._impl), False)
        return cast("proton.Disposition", self._remote)

    @property
    def must_arrive(self) -> bool:
        """Return whether the ledger must send the message until it has an outcome."""
        if self.data is None or lib.pn_delivery_local_state(self._impl) == _TRANSACTIONAL:
            return False
        return bool(lib.pn_delivery_remote_state(self._impl) <= proton.Delivery.RECEIVED)

    def update(self, state: Any) -> None:
        """Set the state given here."""
        if self._local is None:  # only the state was set
            lib.pn_delivery_update(self._impl, state)
        else:
            super().update(state)
        self._binding.wake()

    def settle(self) -> None:
        """Settle the delivery.  If it was not sent yet, it is still sent, settled, as in proton."""
        engine = self._binding.engine
        if engine is not None:
            lib.pn_delivery_settle(self._impl)
            self._link.deliveries.pop(self._impl, None)
            engine.wake()
        elif self.data is not None:
            self.forgotten = True
        else:
            self.give_up()

    def give_up(self) -> None:
        """Settle the delivery, and do not send it any more."""
        lib.pn_delivery_settle(self._impl)
        self._link.deliveries.pop(self._impl, None)
        self._binding.wake()

    def abort(self) -> None:
        """Abort a message that was partly streamed."""
        super().abort()
        self._link.deliveries.pop(self._impl, None)
        self._binding.wake()

    def rebind(self, impl: Any) -> None:
        """Use another C object from now on."""
        super().rebind(impl)
        for disposition, pointer in (
            (self._local, lib.pn_delivery_local(impl)),
            (self._remote, lib.pn_delivery_remote(impl)),
        ):
            if disposition is not None:
                disposition._impl = pointer
