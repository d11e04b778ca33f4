"""proton's senders and receivers as the application holds them (see ``endpoint``).

Rules
-----
* A sender with a ledger keeps the encoded bytes of every message until its outcome is known.  It sends them
  again, in order, when it is rebound.  Deliveries under a transaction are not kept: the transaction ended
  with its connection (``transactions``).
* The application decides on the flag ``durable``.  A message without it has an id only if the primary keeps
  ids no longer than messages (``core.quirks``).
* A program for proton may itself resend messages that were unconfirmed at the disconnection.  If such a
  message has the id and the bytes of one that the ledger sends again, it is not sent a third time.  Without
  an id the two cannot be matched, and a second copy arrives.
* A program may repeat a blocking send that timed out or was interrupted.  If its next send has the same
  object with the same bytes, it gets the same duplicate-detection id.  The message object itself keeps no id.
* A receiver is attached again with the credit that the application gave it, once.
* Credit that the application gives before the peer's Attach is held back, unless the peer is known to accept
  it early (``core.quirks``).  The receiver's ``credit`` includes it all the while.

Sources: AMQP 1.0 part 2, sections 2.6.7 (flow control) and 2.6.12 (transferring a message).
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, cast

import cproton
import proton
from cproton_ffi import ffi, lib
from proton import Endpoint, Link, Terminus

from haclient.core.sender import too_large
from haclient.engine import peer_fields
from haclient.engine.codec import decode
from haclient.engine.proton_objects import SLACK, change_credit
from haclient.reactor.endpoints.deliveries import Delivery
from haclient.reactor.endpoints.endpoint import Connection, RebindableEndpoint, Session
from haclient.reactor.endpoints.tag_buffer import TagBuffer
from haclient.reactor.ids import Marker

if TYPE_CHECKING:
    from haclient.reactor.endpoints.bound import Bound
    from haclient.reactor.endpoints.transactions import Transaction, TransactionEnded
    from haclient.reactor.loop import Reactor

_ACTIVE = Endpoint.LOCAL_ACTIVE
_CLOSED = Endpoint.LOCAL_CLOSED | Endpoint.REMOTE_CLOSED
_SND_SETTLED: int = Link.SND_SETTLED


class PeerTerminus(proton.Terminus):
    """A source or a target of the peer."""

    def __init__(self, impl: Any) -> None:
        super().__init__(impl)  # type: ignore[no-untyped-call]

    @property
    def address(self) -> str | None:
        """Return the address; bytes that are not UTF-8 are escaped (proton would raise)."""
        return peer_fields.text(lib.pn_terminus_get_address(self._impl))

    @address.setter
    def address(self, address: str) -> None:
        cproton.pn_terminus_set_address(self._impl, address)


class _Link(RebindableEndpoint):
    """The common part of senders and receivers."""

    _properties_dict: Any = None
    _session: Session = cast("Session", None)
    is_sender = is_receiver = False
    losses = 0
    """Number of times that the peer or a disconnection ended the link; this ends its transactions too."""

    _reported = 0
    """The sides whose close was reported, as bits of ``state``."""

    if TYPE_CHECKING:
        state: int

    def __init__(self, impl: Any, binding: Bound, session: Session) -> None:
        self._session = session
        # The unsettled deliveries by proton's C pointer, in the order of sending or arrival.
        self.deliveries: dict[Any, Delivery] = {}
        super().__init__(impl, binding)

    @property
    def name(self) -> str:
        """Return the name of the link; bytes that are not UTF-8 are escaped (proton would raise)."""
        return peer_fields.text(lib.pn_link_name(self._impl)) or ""

    @property
    def remote_source(self) -> PeerTerminus:
        """Return the source of the peer."""
        return PeerTerminus(lib.pn_link_remote_source(self._impl))

    @property
    def remote_target(self) -> PeerTerminus:
        """Return the target of the peer."""
        return PeerTerminus(lib.pn_link_remote_target(self._impl))

    @property
    def container(self) -> Reactor:
        """Return the container of its connection."""
        found: Reactor = self._binding.container
        return found

    # proton's methods expect this in the dictionary of C attributes, which this class lacks.
    deliveries: dict[Any, Delivery] = {}  # noqa: RUF012 - set by each instance

    @property
    def session(self) -> Session:
        """Return the session it belongs to."""
        return self._session

    @property
    def connection(self) -> Connection:
        """Return the connection it belongs to."""
        found: Connection = self._binding.connection
        return found

    @property
    def is_open(self) -> bool:
        """Return whether it is open on this side."""
        return bool(self.state & _ACTIVE)

    @property
    def current(self) -> Delivery | None:
        """Return the delivery that is being written or read."""
        pointer = lib.pn_link_current(self._impl)
        return self.delivery_of(pointer) if pointer != ffi.NULL else None

    def delivery_of(self, pointer: Any) -> Delivery:
        """Return the Python object of one of its deliveries."""
        delivery = self.deliveries.get(pointer)
        if delivery is None:
            delivery = self.deliveries[pointer] = Delivery(pointer, self._binding, self)
        return delivery

    def open(self) -> None:
        """Attach the link.

        :raises proton.LinkException: when the peer allows no further link in this session.
        """
        self._binding.prepare_attach(self.session, self.name)
        super().open()  # type: ignore[misc]
        self._binding.wake()

    def close(self) -> None:
        """Close the link."""
        super().close()  # type: ignore[misc]
        self._binding.wake()

    def detach(self) -> None:
        """Detach the link, and keep the terminus."""
        super().detach()  # type: ignore[misc]
        self._binding.wake()

    def has_ended(self, side: int) -> bool:
        """Note that the close of a side is reported; return whether that was the link's last event.

        Both sides may have closed it before the first close is reported.
        """
        self._reported |= side
        return bool(self._reported == _CLOSED and self.state & _CLOSED == _CLOSED)

    def drained(self) -> int:
        """Give back the credit that cannot be used; return its amount, for a receiver."""
        count: int = lib.pn_link_drained(self._impl)
        if count:
            self._binding.wake()
        return count

    def _transfer(self, impl: Any) -> Any:
        """Become the link ``impl`` of another connection; return the former C object."""
        former, self._reported = self._impl, 0
        active = self.state & _ACTIVE
        lib.pn_terminus_copy(lib.pn_link_source(impl), lib.pn_link_source(former))
        lib.pn_terminus_copy(lib.pn_link_target(impl), lib.pn_link_target(former))
        lib.pn_link_set_snd_settle_mode(impl, lib.pn_link_snd_settle_mode(former))
        lib.pn_link_set_rcv_settle_mode(impl, lib.pn_link_rcv_settle_mode(former))
        lib.pn_link_set_max_message_size(impl, lib.pn_link_max_message_size(former))
        cproton.pn_incref(former)  # the caller reads from it, and drops it
        self.rebind(impl)
        if active:
            Link.open(cast("Link", self))
        return former


class Sender(_Link, proton.Sender):
    """A sending link."""

    is_sender = True

    _marker: Marker | None = None
    """Numbers messages for duplicate detection; ``None`` without a ledger."""
    _unfinished: bytearray | None = None
    _again: dict[Any, Delivery] | None = None
    """The ledger's messages that survived a lost connection, by message id."""
    _given_up: tuple[proton.Message, str | None, bytes | None] | None = None
    """The message of the last blocking send, with its id and its bytes, if that send was given up."""
    _tag_buffer: TagBuffer = cast("TagBuffer", None)
    # proton's methods expect this in the dictionary of C attributes, which this class lacks.
    transactions: dict[Transaction, None] = {}  # noqa: RUF012 - set by each instance

    def __init__(self, impl: Any, binding: Bound, session: Session) -> None:
        super().__init__(impl, binding, session)
        self._tag_buffer = TagBuffer()
        # The transactions declared at a coordinator and not discharged, in order.
        self.transactions = {}

    def send(self, obj: Any, tag: str | None = None) -> Any:
        """Send a message (or bytes of the current delivery), as proton does.

        Never blocks: messages without credit wait for the next credit.

        :raises MessageTooLarge: when the message exceeds the peer's limit; proton would lose the link.
        """
        if not isinstance(obj, proton.Message):
            return obj.send(self, tag=tag) if hasattr(obj, "send") else self.stream(obj)
        if self._again and (known := self._in_ledger(obj)) is not None:
            return known
        binding, marker, mark = self._binding, self._marker, None
        if marker is not None and (binding.ids_live_with_messages or obj.durable):
            mark = marker.next()
        data = binding.encode(obj, mark)
        limit = lib.pn_link_remote_max_message_size(self._impl)
        if limit and len(data) > limit:
            raise too_large(len(data), limit, self.target.address)
        if self._given_up is not None:
            mark, data = self._abandoned_send(obj) or (mark, data)
        delivery = self.delivery(tag or self.delivery_tag())
        if mark is not None:
            delivery.__dict__["mark"] = mark  # not by assignment: see ``Rebindable``
        lib.pn_link_send(self._impl, data, len(data))
        self._finish(delivery, data)
        return delivery

    def give_up(self, message: proton.Message, deliveries: list[Delivery]) -> None:
        """Stop sending these: the blocking call that sent ``message``, the first of them, has ended."""
        first = deliveries[0]
        self._given_up = message, first.mark, first.data
        for delivery in deliveries:
            delivery.give_up()
            delivery.data = None

    def _abandoned_send(self, message: proton.Message) -> tuple[str | None, bytes] | None:
        """Return the id and the bytes of the abandoned send if this is the same message, unchanged."""
        assert self._given_up is not None
        (given_up, mark, data), self._given_up = self._given_up, None
        if message is not given_up or data is None or self._binding.encode(message, mark) != data:
            return None
        return mark, data

    def delivery(self, tag: str) -> Delivery:
        """Return a new delivery, to be filled with ``stream`` and finished with ``advance``."""
        pointer = self._tag_buffer.delivery(self._impl, tag)
        delivery = self.deliveries[pointer] = Delivery(pointer, self._binding, self)
        return delivery

    def delivery_tag(self) -> str:
        """Return the next tag: of ``tag_generator`` if the application gave one, else a number."""
        tags = self._attrs.get("tag_generator")
        if tags is None:
            tags = self._attrs["tag_generator"] = map(str, itertools.count(1))
        tag: str = next(tags)
        return tag

    def stream(self, data: bytes) -> int:
        """Write some bytes of the current delivery.

        :raises proton.LinkException: when there is none: a lost connection takes it, with its bytes.
        """
        if lib.pn_link_current(self._impl) == ffi.NULL:
            raise proton.LinkException(f"there is no delivery to write to on {self.name}: make one first")
        count: int = super().stream(data)
        if self._unfinished is None:
            self._unfinished = bytearray()
        self._unfinished += data
        self._binding.wake()
        return count

    def advance(self) -> bool:
        """Complete the current delivery."""
        delivery, data = self.current, self._unfinished
        self._unfinished = None
        if delivery is None:
            return bool(lib.pn_link_advance(self._impl))
        return self._finish(delivery, bytes(data or b""))

    def offered(self, n: int) -> None:
        """Announce to the peer how many messages wait to be sent."""
        super().offered(n)
        self._binding.wake()

    def _finish(self, delivery: Delivery, data: bytes) -> bool:
        impl, engine = self._impl, self._binding.engine
        advanced = bool(lib.pn_link_advance(impl))
        if self._marker is not None or engine is None:
            delivery.__dict__["data"] = data
        if engine is None:
            self._binding.wake()
        elif lib.pn_link_snd_settle_mode(impl) == _SND_SETTLED:
            delivery.settle()
        else:
            engine.wake()
        return advanced

    def transfer(self, session: Any, *, detached: bool) -> None:
        """Become a link of another session, and send again the messages without an outcome."""
        former = self._transfer(lib.pn_sender(session, lib.pn_link_name(self._impl)))
        cproton.pn_decref(former)
        if not detached:
            self._replay()

    def on_disconnected(self) -> list[TransactionEnded]:
        """Drop everything that must not be sent again: the connection is lost.

        :returns: the ends of a coordinator's transactions.
        """
        self._unfinished = None
        if is_coordinator(self):
            return self.end_transactions()
        self.deliveries = {
            pointer: delivery for pointer, delivery in self.deliveries.items() if delivery.must_arrive
        }
        self._again = {}
        for delivery in self.deliveries.values():
            data = delivery.data or b""
            # proton drops the bytes that it has written.
            delivery.left = delivery.left or lib.pn_delivery_pending(delivery._impl) < len(data)
            with contextlib.suppress(proton.MessageException):  # bytes that were streamed
                identity = decode(data).id
                if identity is not None:
                    self._again[identity] = delivery
        return []

    def end_transactions(self) -> list[TransactionEnded]:
        """End the coordinator's transactions: its connection is lost, or there will be none."""
        self.losses += 1
        self.deliveries = {}
        transactions, self.transactions = self.transactions, {}
        return [transaction.end_with_connection() for transaction in transactions]

    def _in_ledger(self, message: proton.Message) -> Delivery | None:
        """Return this message's delivery if the ledger has sent it since the disconnection, or will.

        An id belongs to one message (AMQP 1.0 part 3, section 3.2.4).  So a program that resends unaccepted
        messages after a disconnection means the ones that the ledger sends.  The program itself may resend a
        message that was released or rejected.
        """
        assert self._again is not None
        delivery = None if message.id is None else self._again.pop(message.id, None)
        if delivery is None or delivery.data is None:
            return None
        waits = self.deliveries.get(delivery._impl) is delivery
        if not waits and lib.pn_delivery_remote_state(delivery._impl) != proton.Delivery.ACCEPTED:
            return None
        return delivery if self._binding.encode(message, delivery.mark) == delivery.data else None

    def _replay(self) -> None:
        waiting, self.deliveries = list(self.deliveries.values()), {}
        settled = lib.pn_link_snd_settle_mode(self._impl) == Link.SND_SETTLED
        for delivery in waiting:
            data = delivery.data
            assert data is not None
            if delivery.mark is not None and not (delivery.left or self._binding.ids_live_with_messages):
                data = self._without_id(delivery, data)
            pointer = cproton.pn_delivery(self._impl, delivery.tag)
            lib.pn_link_send(self._impl, data, len(data))
            lib.pn_link_advance(self._impl)
            delivery.rebind(pointer)
            self.deliveries[pointer] = delivery
            if settled or delivery.forgotten:
                delivery.settle()

    def _without_id(self, delivery: Delivery, data: bytes) -> bytes:
        """Remove the id of a message sent before this primary was known, unless the message is durable."""
        message = decode(data)
        if message.durable:
            return data
        delivery.mark, delivery.data = None, self._binding.encode(message)
        return delivery.data


class Receiver(_Link, proton.Receiver):
    """A receiving link."""

    is_receiver = True

    _most = 0
    """The highest credit so far."""
    _seen = 0
    _allowed = 0
    """The highest message count that the peer was seen to be allowed."""
    _held = 0
    """Credit that waits for the peer's Attach."""
    _drains = False
    """Set if a drain waits for the peer's Attach."""
    _withheld = 0
    """Credit that is withheld because the peer sent that many messages too many."""

    @property
    def credit(self) -> int:
        """Return how many more messages the application allows; below 0 if the peer sent too much."""
        return int(lib.pn_link_credit(self._impl)) + self._held - self._withheld

    def flow(self, n: int) -> None:
        """Allow the peer ``n`` more messages."""
        if n:
            self._grant(n)
            self._binding.wake()

    def drain(self, n: int) -> None:
        """Allow ``n`` more messages, and ask for the unused credit back."""
        self._grant(n, drain=True)
        self._binding.wake()

    def answered(self) -> None:
        """Send the credit that waited for the peer's Attach."""
        held, drains, self._held, self._drains = self._held, self._drains, 0, False
        if held or drains:
            self._grant(held, drain=drains)

    def _grant(self, credit: int, *, drain: bool = False) -> None:
        self._note_allowed()
        if self.state & Endpoint.REMOTE_UNINIT and not self._binding.takes_early_credit:
            self._held += credit
            self._drains |= drain
        else:
            self._withheld = change_credit(self._impl, credit, self._withheld)
            if drain:
                lib.pn_link_drain(self._impl, 0)
        self._most = max(self._most, self.credit)

    def transfer(self, session: Any, *, detached: bool) -> None:
        """Become a link of another session, with the credit that the application gave.

        The primary sends unsettled messages again, and needs credit for them again.
        """
        former = self._transfer(lib.pn_receiver(session, lib.pn_link_name(self._impl)))
        held = lib.pn_link_unsettled(former) - lib.pn_link_queued(former)
        credit = min(self._most, lib.pn_link_credit(former) + self._held - self._withheld + max(0, held))
        drains = self._drains or bool(lib.pn_link_get_drain(former))
        self._held, self._drains, self._withheld = 0, False, 0
        if credit > 0 or drains:
            self._grant(credit, drain=drains)
        cproton.pn_decref(former)

    def on_disconnected(self) -> list[TransactionEnded]:
        """Forget the deliveries of a lost connection: the primary sends them again."""
        self.deliveries = {}
        self._seen = self._allowed = 0
        return []

    def drops(self, pointer: Any) -> bool:
        """Drop a new delivery that exceeds the credit, and close the link; return whether it did.

        Otherwise a peer could fill the memory of a receiver (rule in ``engine.links``).
        """
        if self._seen >= self._allowed:
            self._note_allowed()
        if self._seen < self._allowed:
            self._seen += 1
            return False
        if self.state & _ACTIVE:
            self.condition = proton.Condition("amqp:link:transfer-limit-exceeded", "sent without credit")
            self.close()
        size = lib.pn_delivery_pending(pointer)
        if lib.pn_delivery_partial(pointer):
            lib.pn_link_recv(self._impl, ffi.new("char[]", size), size)
        else:
            lib.pn_delivery_update(pointer, proton.Delivery.RELEASED)
            lib.pn_delivery_settle(pointer)
        return True

    def _note_allowed(self) -> None:
        credit = self.credit - self._held
        self._allowed = max(self._allowed, self._seen + credit + (SLACK - 1) * max(self._most, credit))


def is_coordinator(link: Any) -> bool:
    """Return whether a link leads to a transaction coordinator (AMQP 1.0 part 4, section 4.2)."""
    return bool(link.target.type == Terminus.COORDINATOR)
