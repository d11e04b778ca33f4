"""proton's senders and receivers as the application holds them (see ``endpoint``).

Rules
-----
* A sender that keeps a ledger has the encoded bytes of every message until its outcome is known, and
  sends them again, in order, when it is rebound.  Deliveries under a transaction are not kept:
  the transaction ended with its connection (``transactions``).
* The flag ``durable`` is the application's.  Without it, a message has an id only where the primary keeps ids
  no longer than messages (``core.quirks``).
* A program for proton may send again by itself what was not confirmed when it was disconnected.
  A message with the id and the bytes of one that the ledger sends again is that one, and is not
  sent a third time; without an id the two cannot be matched, and a second copy arrives.
* A program that repeats a blocking send that timed out or was interrupted means that message: the same
  object with the same bytes, as the next send, has the id that it had.  The message itself keeps none.
* A receiver is attached again with the credit that the application gave it, once.
* Credit that the application gives before the peer's Attach waits for it, unless the peer is known to take it
  early (``core.quirks``).  The receiver shows it as its credit all the while.

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
_SND_SETTLED: int = Link.SND_SETTLED


class PeerTerminus(proton.Terminus):
    """A source or a target of the peer."""

    def __init__(self, impl: Any) -> None:
        super().__init__(impl)  # type: ignore[no-untyped-call]

    @property
    def address(self) -> str | None:
        """The address; what is not UTF-8 in it is escaped, where proton raises."""
        return peer_fields.text(lib.pn_terminus_get_address(self._impl))

    @address.setter
    def address(self, address: str) -> None:
        cproton.pn_terminus_set_address(self._impl, address)


class _Link(RebindableEndpoint):
    """What senders and receivers have in common."""

    _properties_dict: Any = None
    _session: Session = cast("Session", None)
    is_sender = is_receiver = False
    losses = 0
    """How often the peer or a loss has ended it: a coordinator's transactions end with it."""

    if TYPE_CHECKING:
        state: int

    def __init__(self, impl: Any, binding: Bound, session: Session) -> None:
        self._session = session
        # By proton's C pointer: what is not settled, in the order of sending or arrival.
        self.deliveries: dict[Any, Delivery] = {}
        super().__init__(impl, binding)

    @property
    def name(self) -> str:
        """The name of the link; what is not UTF-8 in a peer's is escaped, where proton raises."""
        return peer_fields.text(lib.pn_link_name(self._impl)) or ""

    @property
    def remote_source(self) -> PeerTerminus:
        """The source that the peer has."""
        return PeerTerminus(lib.pn_link_remote_source(self._impl))

    @property
    def remote_target(self) -> PeerTerminus:
        """The target that the peer has."""
        return PeerTerminus(lib.pn_link_remote_target(self._impl))

    @property
    def container(self) -> Reactor:
        """The container of its connection."""
        found: Reactor = self._binding.container
        return found

    # proton's methods look for these in the dictionary of C attributes, which this class has not.
    deliveries: dict[Any, Delivery] = {}  # noqa: RUF012 - set by each instance

    @property
    def session(self) -> Session:
        """The session it belongs to."""
        return self._session

    @property
    def connection(self) -> Connection:
        """The connection it belongs to."""
        found: Connection = self._binding.connection
        return found

    @property
    def is_open(self) -> bool:
        """Return whether it is open on this side."""
        return bool(self.state & _ACTIVE)

    @property
    def current(self) -> Delivery | None:
        """The delivery that is being written or read."""
        pointer = lib.pn_link_current(self._impl)
        return self.delivery_of(pointer) if pointer != ffi.NULL else None

    def delivery_of(self, pointer: Any) -> Delivery:
        """The Python object of one of its deliveries."""
        delivery = self.deliveries.get(pointer)
        if delivery is None:
            delivery = self.deliveries[pointer] = Delivery(pointer, self._binding, self)
        return delivery

    def open(self) -> None:
        """Attach.

        :raises proton.LinkException: when the peer takes no further link in this session.
        """
        self._binding.check_handles(self.session, self.name)
        super().open()  # type: ignore[misc]
        self._binding.wake()

    def close(self) -> None:
        """Detach for good."""
        super().close()  # type: ignore[misc]
        self._binding.wake()

    def detach(self) -> None:
        """Detach and leave the terminus where it is."""
        super().detach()  # type: ignore[misc]
        self._binding.wake()

    def drained(self) -> int:
        """Give back the credit that cannot be used; returns how much, for a receiver."""
        count: int = lib.pn_link_drained(self._impl)
        if count:
            self._binding.wake()
        return count

    def _transfer(self, impl: Any) -> Any:
        """Become the link ``impl`` of another connection; the C object that it was before."""
        former = self._impl
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
    """Numbers messages for duplicate detection, and says that there is a ledger."""
    _unfinished: bytearray | None = None
    _again: dict[Any, Delivery] | None = None
    """What the ledger kept over a loss, by message id."""
    _given_up: tuple[proton.Message, str | None, bytes | None] | None = None
    """The message of the last blocking send, if that was given up: with its id and its bytes."""
    _tag_buffer: TagBuffer = cast("TagBuffer", None)
    # proton's methods look for it in the dictionary of C attributes, which this class has not.
    transactions: dict[Transaction, None] = {}  # noqa: RUF012 - set by each instance

    def __init__(self, impl: Any, binding: Bound, session: Session) -> None:
        super().__init__(impl, binding, session)
        self._tag_buffer = TagBuffer()
        # Those that a transaction coordinator was asked for and has not discharged, in order.
        self.transactions = {}

    def send(self, obj: Any, tag: str | None = None) -> Any:
        """Send a message (or bytes of the current delivery), as proton does.

        It never blocks: what there is no credit for waits, and goes out with the next credit.

        :raises MessageTooLarge: when the peer takes no message of that size; proton would lose the link.
        """
        if not isinstance(obj, proton.Message):
            return obj.send(self, tag=tag) if hasattr(obj, "send") else self.stream(obj)
        if self._again and (known := self._same(obj)) is not None:
            return known
        binding, marker, mark = self._binding, self._marker, None
        if marker is not None and (binding.ids_live_with_messages or obj.durable):
            mark = marker.next()
        data = binding.encode(obj, mark)
        limit = lib.pn_link_remote_max_message_size(self._impl)
        if limit and len(data) > limit:
            raise too_large(len(data), limit, self.target.address)
        if self._given_up is not None:
            mark, data = self._repeated(obj) or (mark, data)
        delivery = self.delivery(tag or self.delivery_tag())
        if mark is not None:
            delivery.__dict__["mark"] = mark  # not by assignment: see ``Rebindable``
        lib.pn_link_send(self._impl, data, len(data))
        self._finish(delivery, data)
        return delivery

    def give_up(self, message: proton.Message, deliveries: list[Delivery]) -> None:
        """Send these no more: the call that sent this message, the first of them, waits no more."""
        first = deliveries[0]
        self._given_up = message, first.mark, first.data
        for delivery in deliveries:
            delivery.give_up()
            delivery.data = None

    def _repeated(self, message: proton.Message) -> tuple[str | None, bytes] | None:
        """The id and the bytes of the send that was given up, if this is that message, unchanged."""
        assert self._given_up is not None
        (given_up, mark, data), self._given_up = self._given_up, None
        if message is not given_up or data is None or self._binding.encode(message, mark) != data:
            return None
        return mark, data

    def delivery(self, tag: str) -> Delivery:
        """A new delivery, to be filled with ``stream`` and finished with ``advance``."""
        pointer = self._tag_buffer.delivery(self._impl, tag)
        delivery = self.deliveries[pointer] = Delivery(pointer, self._binding, self)
        return delivery

    def delivery_tag(self) -> str:
        """The next tag: of ``tag_generator`` if the application gave one, else a number."""
        tags = self._attrs.get("tag_generator")
        if tags is None:
            tags = self._attrs["tag_generator"] = map(str, itertools.count(1))
        tag: str = next(tags)
        return tag

    def stream(self, data: bytes) -> int:
        """Write some bytes of the current delivery.

        :raises proton.LinkException: when there is none: a loss has taken it, with what was written.
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
        """The current delivery is complete."""
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
        """Become a link of another session, and send again what has no outcome yet."""
        former = self._transfer(lib.pn_sender(session, lib.pn_link_name(self._impl)))
        cproton.pn_decref(former)
        if not detached:
            self._replay()

    def on_disconnected(self) -> list[TransactionEnded]:
        """The connection is gone: forget what must not be sent again.

        :returns: how the transactions of a coordinator ended.
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
        """End what a transaction coordinator was asked for: its connection is gone, or there will be none."""
        self.losses += 1
        self.deliveries = {}
        transactions, self.transactions = self.transactions, {}
        return [transaction.end_with_connection() for transaction in transactions]

    def _same(self, message: proton.Message) -> Delivery | None:
        """The delivery of this very message, which the ledger has sent or will send since the loss.

        An id belongs to one message (AMQP 1.0 part 3, section 3.2.4), so a program that goes back after a
        loss to what was not accepted then means the one that the ledger has sent meanwhile.  A message
        that was released or rejected is its own to send again.
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
                data = self._unmarked(delivery, data)
            pointer = cproton.pn_delivery(self._impl, delivery.tag)
            lib.pn_link_send(self._impl, data, len(data))
            lib.pn_link_advance(self._impl)
            delivery.rebind(pointer)
            self.deliveries[pointer] = delivery
            if settled or delivery.forgotten:
                delivery.settle()

    def _unmarked(self, delivery: Delivery, data: bytes) -> bytes:
        """A message that was sent before this primary was known: without its id, unless it is durable."""
        message = decode(data)
        if message.durable:
            return data
        delivery.mark, delivery.data = None, self._binding.encode(message)
        return delivery.data


class Receiver(_Link, proton.Receiver):
    """A receiving link."""

    is_receiver = True

    _most = 0
    """The most credit there was at once."""
    _seen = 0
    _allowed = 0
    """The highest count of messages that the peer was ever allowed, as far as was looked."""
    _held = 0
    """Credit that waits for the peer's Attach."""
    _drains = False
    """Whether it is to be drained then."""
    _withheld = 0
    """Credit that is withheld, for the peer sent as many messages too many."""

    @property
    def credit(self) -> int:
        """Return how many more messages the application allows; below 0 if the peer sent too much."""
        return int(lib.pn_link_credit(self._impl)) + self._held - self._withheld

    def flow(self, n: int) -> None:
        """Allow the peer so many more messages."""
        if n:
            self._grant(n)
            self._binding.wake()

    def drain(self, n: int) -> None:
        """Allow so many more messages, and want back what is not used."""
        self._grant(n, drain=True)
        self._binding.wake()

    def answered(self) -> None:
        """The peer has attached it as well: it gets what waited for that."""
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

        The primary sends again what was not settled, and needs credit for it again.
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
        """Return whether a new delivery is beyond the credit: it is dropped then, and the link closed.

        A receiver that collects messages would grow as the peer likes (``engine.links`` has the rule).
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
        self._allowed = max(self._allowed, self._seen + SLACK * (self.credit - self._held))


def is_coordinator(link: Any) -> bool:
    """Whether a link goes to a transaction coordinator (AMQP 1.0 part 4, section 4.2)."""
    return bool(link.target.type == Terminus.COORDINATOR)
