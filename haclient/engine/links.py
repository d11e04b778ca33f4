"""Sender and receiver links of one connection, and the calls that every message goes through.

A message costs a dozen calls of proton's C layer (``cproton_ffi``).  proton's Python objects would cost four
to eight times as much (``bench_throughput.py --profile``).

Rules
-----
* A link dies with its connection.  After ``dead`` is set no call reaches proton: its objects are gone.
* A delivery is known by its C pointer, and only until it is settled: proton reuses its memory.
* ``closed_here``: this side sent a Detach; ``closed_by_peer``: the receiver gave up the source (2.6.6).
* ``is_cut``: the name or an address in the peer's Attach has a NUL, where proton cuts it.
* Sending never blocks or checks credit: the owner reads ``credit`` first.  A withdrawn message gives its
  credit back to the sender; proton counts that as used, and cannot return it to a peer that drains.
* A forgotten delivery is settled after the peer has settled it: Broker-J 10.1.0 drops the connection if it
  commits a delivery that the sender has settled.  Beyond ``_MOST_FORGOTTEN`` the oldest is settled now.
* A peer may send up to its credit, and to a client as much as the largest credit above that (``SLACK``).
* In rcv-settle-mode *second* the receiver gives an outcome; the sender settles once it has taken effect; the
  receiver settles last.  The sender keeps the delivery until then, even if the peer settles it before.

Sources: AMQP 1.0, 2.6.7 (flow control), 2.6.12 (transfer), 2.8.3 (settle modes), 3.4 (delivery state).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import proton
from cproton_ffi import ffi, lib

from haclient.engine import peer_fields
from haclient.engine.proton_objects import SLACK, change_credit, close_link, write_outcome
from haclient.engine.wire.outgoing import WRITE_HIGH_WATER
from haclient.outcome import ACCEPTED, Outcome, OutcomeState

if TYPE_CHECKING:
    from haclient.engine.link_owner import ConfirmedOwner, ConfirmingOwner, ReceiverOwner, SenderOwner
    from haclient.engine.link_owner import LinkEngine as Engine

# A delivery of proton's, as a cffi pointer: comparable and hashable by address.
DeliveryPointer = Any

# Called for every message: each lookup in ``lib`` would cost a quarter of the call.
_pn_delivery, _pn_link_send, _pn_link_recv = lib.pn_delivery, lib.pn_link_send, lib.pn_link_recv
_pn_link_advance, _pn_link_credit = lib.pn_link_advance, lib.pn_link_credit
_pn_delivery_pending, _pn_delivery_partial = lib.pn_delivery_pending, lib.pn_delivery_partial
_pn_delivery_aborted, _pn_delivery_readable = lib.pn_delivery_aborted, lib.pn_delivery_readable
_pn_delivery_settled, _pn_delivery_settle = lib.pn_delivery_settled, lib.pn_delivery_settle
_pn_delivery_remote_state, _pn_delivery_update = lib.pn_delivery_remote_state, lib.pn_delivery_update

_PN_ACCEPTED: int = lib.PN_ACCEPTED
_NOT_TERMINAL = (0, lib.PN_RECEIVED)
TAG_SIZE = 16  # of a link whose tags have a scope
# Small messages are read whole with one call; larger ones are read in pieces as they arrive.
_READ_SIZE = 4096
# Special values of the size limit.  Overrun: the link closes, and reads the rest of one message without
# keeping it.  Closing: that message has ended, and later messages are released.
_OVERRUN, _CLOSING = -1, -2
_MOST_FORGOTTEN = 1000  # a default window; limits memory
_TOO_MANY = "amqp:link:transfer-limit-exceeded", "sent without credit"
_TOO_LARGE = "amqp:link:message-size-exceeded", "message too large"


class SenderLink:
    """The sending end of a link.  ``endpoint`` is proton's ``Sender`` until the end; for rare calls."""

    __slots__ = (
        "_confirming",
        "_engine",
        "_forgotten",
        "_next_tag",
        "_pn",
        "_returned",
        "_tag",
        "_tag_number",
        "closed_by_peer",
        "closed_here",
        "dead",
        "endpoint",
        "is_cut",
        "owner",
        "peer_unsettled",
        "unsettled",
    )

    def __init__(self, engine: Engine, endpoint: proton.Sender, owner: SenderOwner | None) -> None:
        self._engine = engine
        self.endpoint = endpoint
        self.owner = owner
        self.closed_here = self.closed_by_peer = self.dead = self.is_cut = False
        self._pn = endpoint._impl
        self.unsettled: dict[DeliveryPointer, Any] = {}  # deliveries sent, with their tokens
        self._forgotten: dict[DeliveryPointer, None] = {}
        self._confirming: set[DeliveryPointer] | None = None
        self.peer_unsettled = b""
        """The unsettled map of the peer's Attach, if it asks for confirmations: see ``wire.attach_frame``."""
        self._next_tag = self._returned = 0
        # One tag buffer (a uint64_t and a scope) for all deliveries of the link: proton copies it.
        self._tag_number = ffi.new("uint64_t[]", 2)
        self._set_tag_size(8)

    @property
    def credit(self) -> int:
        """Return how many messages may be sent now; 0 when the link is dead."""
        return 0 if self.dead else _pn_link_credit(self._pn) + self._returned

    @property
    def drain(self) -> bool:
        """Return whether the receiver asked to use up its credit or give it back."""
        return not self.dead and bool(lib.pn_link_get_drain(self._pn))

    @property
    def sent(self) -> int:
        """Return the number of messages sent on this link so far."""
        return self._next_tag

    def _set_tag_size(self, size: int) -> None:
        self._tag = ffi.new("pn_delivery_tag_t *", [size, ffi.cast("char *", self._tag_number)])[0]

    def set_tag_scope(self, scope: bytes) -> None:
        """Append a scope to each delivery tag, which identifies the origin of the message numbers.

        :param scope: 8 bytes, which follow the 8 of the number.
        """
        ffi.memmove(self._tag_number + 1, scope, 8)
        self._set_tag_size(TAG_SIZE)

    def send(
        self, data: bytes, token: Any, *, settled: bool = False, number: int | None = None
    ) -> DeliveryPointer:
        """Put one encoded message on the wire; the owner's ``settled`` gets its ``token``.

        :param number: for its delivery tag; a counter by default.
        """
        if number is None:
            self._tag_number[0] = self._next_tag
        else:
            ffi.memmove(self._tag_number, number.to_bytes(8, "little"), 8)
        self._next_tag += 1
        pn = self._pn
        delivery = _pn_delivery(pn, self._tag)
        give = _pn_link_send if len(data) <= WRITE_HIGH_WATER else self._engine.give_in_pieces
        give(pn, data, len(data))
        if settled:
            lib.pn_delivery_settle(delivery)
        else:
            self.unsettled[delivery] = token
        _pn_link_advance(pn)
        self._engine.wake()
        return delivery

    @property
    def is_asked_to_confirm(self) -> bool:
        """Return whether the peer asks for rcv-settle-mode *second*."""
        return bool(self.endpoint.remote_rcv_settle_mode == proton.Link.RCV_SECOND)

    def confirm_outcomes(self) -> None:
        """Answer with rcv-settle-mode *second*: the owner confirms outcomes.  Call it before ``attach``."""
        self._confirming = set()
        self.endpoint.rcv_settle_mode = proton.Link.RCV_SECOND

    def confirm(self, delivery: DeliveryPointer, state: OutcomeState, *, at_once: bool = False) -> None:
        """Settle a delivery whose outcome has taken effect; does nothing on a link that ended.

        :param at_once: before anything sent later: proton would write a Transfer before a Disposition.
        """
        if not self.dead and self._confirming is not None and delivery in self._confirming:
            self._confirming.discard(delivery)
            lib.pn_delivery_update(delivery, state.value)
            lib.pn_delivery_settle(delivery)
            if at_once:
                lib.pn_transport_pending(self._engine.transport._impl)
            self._engine.wake()

    def drained(self) -> None:
        """Give back the credit that could not be used."""
        if not self.dead and lib.pn_link_drained(self._pn):
            self._returned = 0
            self._engine.wake()

    def withdraw(self, delivery: DeliveryPointer, size: int) -> bool:
        """Withdraw a message of ``size`` bytes if proton still has all of them; return whether it did."""
        unbegun = not self.dead and delivery in self.unsettled and _pn_delivery_pending(delivery) == size
        if unbegun:
            del self.unsettled[delivery]
            lib.pn_delivery_abort(delivery)
            self._returned += 1
            self._engine.wake()
        return unbegun

    def forget(self, delivery: DeliveryPointer) -> None:
        """Ignore the outcome of a delivery, which is settled after the peer has settled it."""
        if self.dead or self.unsettled.pop(delivery, _MISSING) is _MISSING:
            return
        self._forgotten[delivery] = None
        if len(self._forgotten) > _MOST_FORGOTTEN:
            self._settle_forgotten(next(iter(self._forgotten)))

    def _settle_forgotten(self, delivery: DeliveryPointer) -> None:
        del self._forgotten[delivery]
        _pn_delivery_settle(delivery)
        self._engine.wake()

    def close(self, condition: proton.Condition | None = None) -> None:
        """Close the link, with a reason if given."""
        close_link(self, condition, keep=False)

    def kill(self) -> None:
        """Drop proton's objects, in the connection's thread: their reference counts have no lock."""
        self.dead = True
        self.endpoint = cast("proton.Sender", None)
        self.unsettled.clear()
        self._forgotten.clear()
        self._confirming = None

    def on_delivery(self, delivery: DeliveryPointer) -> None:
        """Handle the peer's change of a delivery's state (called by the engine only)."""
        state = _pn_delivery_remote_state(delivery)
        if state != _PN_ACCEPTED and state in _NOT_TERMINAL and not lib.pn_delivery_settled(delivery):
            return
        token = self.unsettled.pop(delivery, _MISSING)
        if token is _MISSING:
            if delivery in self._forgotten:
                self._settle_forgotten(delivery)
            return
        outcome = ACCEPTED if state == _PN_ACCEPTED else peer_fields.outcome(delivery, state)
        if self._confirming is not None and outcome is not None and self.owner is not None:
            self._confirming.add(delivery)
            cast("ConfirmingOwner", self.owner).outcome_given(self, delivery, token, outcome)
            return
        _pn_delivery_settle(delivery)
        if self.owner is not None:
            self.owner.settled(self, token, outcome)


class ReceiverLink:
    """The receiving end of a link.  ``endpoint`` is proton's ``Receiver`` until the end; for rare calls."""

    __slots__ = (
        "_buffer",
        "_engine",
        "_is_server",
        "_limit",
        "_most_allowed",
        "_most_credit",
        "_partial",
        "_pn",
        "_received",
        "_updated",
        "_view",
        "_withheld",
        "closed_here",
        "confirms",
        "dead",
        "endpoint",
        "is_cut",
        "on_flow",
        "on_unfinished",
        "on_violation",
        "owner",
        "peer_unsettled",
        "unsettled",
    )

    def __init__(self, engine: Engine, endpoint: proton.Receiver, owner: ReceiverOwner | None) -> None:
        self._engine = engine
        self.endpoint = endpoint
        self.owner = owner
        self.closed_here = self.dead = self.is_cut = False
        self._pn = endpoint._impl
        self.unsettled: set[DeliveryPointer] = set()
        self.confirms = False
        self._updated: dict[DeliveryPointer, Any] = {}
        self.peer_unsettled = b""
        self._limit = engine.settings.max_message_size
        self._is_server = engine.settings.sasl_server is not None
        self._received = self._most_allowed = self._most_credit = self._withheld = 0
        self.on_violation: Callable[[ReceiverLink, proton.Condition], None] | None = None
        """Called when the link was closed because the peer sent too much."""
        self.on_flow: Callable[[ReceiverLink, int], None] | None = None
        """Called at each Flow of the peer, with the credit that it gave back unused."""
        self.on_unfinished: Callable[[ReceiverLink, int], None] | None = None
        """Called with the size of the unfinished message at each change; may call ``discard``."""
        self._partial: bytearray | None = None
        self._buffer = self._view = cast("Any", None)
        """The same memory; a slice of the view copies to ``bytes`` in half the time of ``ffi.unpack``."""

    @property
    def credit(self) -> int:
        """Return the unused credit; 0 when the link is dead, below 0 if the peer sent too much."""
        return 0 if self.dead else lib.pn_link_credit(self._pn) - self._withheld

    def grant(self, credit: int) -> None:
        """Allow the peer that many more messages."""
        if credit > 0:
            self.change_credit(credit)

    def change_credit(self, change: int) -> None:
        """Give the peer more credit, or take some back that it may not have used yet."""
        if change and not self.dead:
            self._note_allowed(change)
            self._withheld = change_credit(self._pn, change, self._withheld)
            self._engine.wake()

    def drain(self) -> None:
        """Ask the peer to use up the credit now or to give it back (section 2.6.7), until the next grant."""
        if not self.dead:
            lib.pn_link_drain(self._pn, 0)
            self._engine.wake()

    def flowed(self) -> None:
        """Handle the peer's Flow (called by the engine only)."""
        if self.on_flow is not None:
            self.on_flow(self, lib.pn_link_drained(self._pn))

    def settle(self, delivery: DeliveryPointer, outcome: Outcome = ACCEPTED) -> bool:
        """Give the delivery its outcome and settle it; return ``False`` if it no longer exists."""
        if self.dead or delivery not in self.unsettled:
            return False
        self.unsettled.discard(delivery)
        if outcome is not ACCEPTED:
            write_outcome(delivery, outcome)
            _pn_delivery_update(delivery, outcome.state.value)
        else:
            _pn_delivery_update(delivery, _PN_ACCEPTED)
        _pn_delivery_settle(delivery)
        self._engine.wake()
        return True

    def request_confirmations(self) -> None:
        """Ask for rcv-settle-mode *second*; call it before ``attach``."""
        self.confirms = True
        self.endpoint.rcv_settle_mode = proton.Link.RCV_SECOND

    @property
    def is_confirmed(self) -> bool:
        """Return whether the peer answered with rcv-settle-mode *second*, and so settles outcomes."""
        return bool(self.endpoint.remote_rcv_settle_mode == proton.Link.RCV_SECOND)

    def update(self, delivery: DeliveryPointer, outcome: Outcome, token: Any) -> bytes | None:
        """Give the delivery its outcome, for the peer to confirm: see ``owner.ConfirmedOwner``.

        :returns: its delivery tag; ``None`` if it no longer exists.
        """
        if self.dead or delivery not in self.unsettled:
            return None
        self._updated[delivery] = token
        if outcome is not ACCEPTED:
            write_outcome(delivery, outcome)
        lib.pn_delivery_update(delivery, outcome.state.value)
        self._engine.wake()
        tag = lib.pn_delivery_tag(delivery)
        return bytes(ffi.unpack(tag.start, tag.size))

    def close(self, condition: proton.Condition | None = None, *, keep: bool | None = None) -> None:
        """Close the link, with a reason if given.

        :param keep: detach, and keep the source (by default if durable); proton then sends no reason.
        """
        close_link(self, condition, keep=keep)

    def release(self) -> None:
        """Release the unsettled deliveries of a closed link, as ``released``.

        proton would settle them without a state when it frees the link, which some peers do not accept.
        """
        for delivery in self.unsettled:
            if delivery not in self._updated:
                lib.pn_delivery_update(delivery, lib.PN_RELEASED)
            lib.pn_delivery_settle(delivery)
        self.unsettled.clear()
        self._updated.clear()

    def kill(self) -> None:
        """Drop proton's objects, in the connection's thread: their reference counts have no lock."""
        self.dead = True
        self.endpoint = cast("proton.Receiver", None)
        self.unsettled.clear()
        self._updated.clear()
        self._drop_partial()

    def discard(self, condition: proton.Condition) -> None:
        """Close the link and drop its unfinished message."""
        self._limit = _OVERRUN
        self._drop_partial()
        # proton sends no reason with a Detach that keeps the source, and a server has no source to keep.
        self.close(condition, keep=False if self._is_server else None)
        if self.on_violation is not None:
            self.on_violation(self, condition)

    def _note_allowed(self, change: int = 0) -> None:
        """Cache the number of the last message that the credit allows; asking proton costs a call."""
        self._most_credit = max(self._most_credit, self.credit + change)
        extra = 0 if self._is_server else (SLACK - 1) * self._most_credit
        self._most_allowed = max(self._most_allowed, self._received + self.credit + extra)

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self._partial = None
            if self.on_unfinished is not None:
                self.on_unfinished(self, 0)

    def on_delivery(self, delivery: DeliveryPointer) -> None:
        """Handle data or a state change of a delivery (called by the engine only)."""
        if delivery in self.unsettled:
            if self._updated and delivery in self._updated:
                self._confirmed(delivery)
            return
        if _pn_delivery_aborted(delivery):
            self._received += 1
            self._drop_partial()
            self._limit = _CLOSING if self._limit == _OVERRUN else self._limit
            lib.pn_delivery_settle(delivery)
            if self._limit >= 0 and not lib.pn_link_get_drain(self._pn):
                self.change_credit(1)  # its owner does not see the message that used it
            return
        if not _pn_delivery_readable(delivery):
            return
        data = self._read(delivery)
        if data is None:
            return
        _pn_link_advance(self._pn)
        self._received += 1
        if _pn_delivery_settled(delivery):
            lib.pn_delivery_settle(delivery)
            pointer = None
        else:
            self.unsettled.add(delivery)
            pointer = delivery
        if self.owner is not None:
            self.owner.delivered(self, pointer, data)

    def _confirmed(self, delivery: DeliveryPointer) -> None:
        if not lib.pn_delivery_settled(delivery):
            return
        token = self._updated.pop(delivery)
        self.unsettled.discard(delivery)
        outcome = peer_fields.outcome(delivery, lib.pn_delivery_remote_state(delivery))
        lib.pn_delivery_settle(delivery)
        if self.owner is not None:
            cast("ConfirmedOwner", self.owner).confirmed(self, token, outcome)

    def _read(self, delivery: DeliveryPointer) -> bytes | None:
        """Return the current delivery's message once it is complete; keep its parts until then."""
        size = _pn_delivery_pending(delivery)
        if size > _READ_SIZE:
            buffer = ffi.new("char[]", size)
            count = _pn_link_recv(self._pn, buffer, size)
            data: bytes = ffi.unpack(buffer, count) if count > 0 else b""
        else:
            if self._buffer is None:
                self._buffer = ffi.new("char[]", _READ_SIZE)
                self._view = ffi.buffer(self._buffer)
            count = _pn_link_recv(self._pn, self._buffer, size)
            data = self._view[:count] if count > 0 else b""
        allowed = self._partial is None and self._received < self._most_allowed
        if allowed and size <= self._limit and not _pn_delivery_partial(delivery):
            return data
        return self._assemble(delivery, data)

    def _assemble(self, delivery: DeliveryPointer, data: bytes) -> bytes | None:
        if self._limit < 0:
            self._skip(delivery)
            return None
        if self._partial is None:
            self._note_allowed()
            self._partial = bytearray()
        self._partial += data
        too_many = self._received >= self._most_allowed
        if too_many or len(self._partial) > self._limit:
            self.discard(proton.Condition(*(_TOO_MANY if too_many else _TOO_LARGE)))
            self._skip(delivery)
            return None
        if lib.pn_delivery_partial(delivery):
            if self.on_unfinished is not None:
                self.on_unfinished(self, len(self._partial))
            return None
        whole = bytes(self._partial)
        self._drop_partial()
        return whole

    def _skip(self, delivery: DeliveryPointer) -> None:
        """Keep no bytes of a closing link, and no deliveries in proton."""
        if lib.pn_delivery_partial(delivery):
            return
        if self._limit == _OVERRUN:
            self._limit = _CLOSING
            lib.pn_link_advance(self._pn)
        else:
            lib.pn_delivery_update(delivery, lib.PN_RELEASED)
            lib.pn_delivery_settle(delivery)


Link = SenderLink | ReceiverLink
_MISSING = object()
