"""A receiver that outlives its connections.

Rules
-----
* ``credit`` is a window.  It counts the credit at the peer, the messages in the inbox, the messages just
  taken by a call, and credit not yet granted.
* With ``credit=0`` the application grants the credit: it gets as many messages as it asked for, no more.
* If a primary sends more than it had credit for, the link is closed: the window bounds the inbox.
* A drain takes the credit back.  No credit is granted until a call waits for a message, even over a new
  session.
* A receiver of a stream continues at its last position (``streams``).
* After a loss the inbox is emptied: the new primary delivers those messages again.  The new link is granted
  the window once, and none of the old link's credit.
* Credit waits for the peer's Attach if that decides whether its messages are the wanted ones.  It also waits
  if the peer's delivery-count may not begin at 0 (``quirks``).
* The link is not attached to a peer known to grant features that it does not apply (``quirks``).
* Before a planned reconnect it is held: it takes its credit back, and releases what no call has taken.
* A delivery remembers the number of its session; settling it in another raises ``StaleDelivery``.  Deliveries
  that wait to be confirmed outlive their session (``confirmations``).

Source: AMQP 1.0 part 2, section 2.6.7 (flow control, drain).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import proton

from haclient.core.attach.confirmations import Confirmation, Confirmations
from haclient.core.attach.prefixes import prefixed
from haclient.core.attach.refusals import OnDetached, closed_by_peer
from haclient.core.attach.source import GLOBAL, PLAIN, SourceParams
from haclient.core.attach.streams import StreamPosition
from haclient.core.delivery import LOST, DeliveryCore
from haclient.core.quirks import unsupported, workarounds
from haclient.error_catalog.arguments import check_whole
from haclient.error_catalog.base import quoted
from haclient.errors import (
    ConnectionClosed,
    HaclientError,
    LinkClosed,
    StaleDelivery,
    another,
)

if TYPE_CHECKING:
    from haclient.engine.links import DeliveryPointer, ReceiverLink
    from haclient.engine.protocol import Engine
    from haclient.outcome import Outcome

# proton counts credit in signed 32 bits.
MAX_CREDIT = 2**31 - 1


class ReceiverCore:
    """The receiving half of one link name, over any number of connections.

    :param address: the node to receive from; ``None`` with ``dynamic`` asks the peer for a temporary one
        (AMQP 1.0 part 3, section 3.5.3), a new one after each failover.
    :param credit: the window; with 0 the receiver grants only the credit of ``add_credit``.
    :param confirm: ask the peer to confirm accepted deliveries (rcv-settle-mode *second*).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        address: str | None,
        *,
        credit: int,
        dynamic: bool,
        browse: bool,
        configure: Callable[[proton.Receiver], None] | None,
        source: SourceParams = PLAIN,
        confirm: bool = False,
    ) -> None:
        self.name = name
        self.address = address
        self.session_number = 0
        self.inbox: deque[DeliveryCore] = deque()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.error: HaclientError | None = None
        self.closed_here = False
        """True if the application closed the receiver or its connection."""
        self.stale_reason = LOST
        """Reason why deliveries of earlier sessions cannot be settled."""
        self.on_closed: Callable[[], None] = lambda: None
        self.on_attached: Callable[[ReceiverLink], None] = lambda _: None
        self.on_accepted: Callable[[ReceiverLink], None] = lambda _: None
        """Called when the peer accepts the link, over each connection."""
        self.on_waiting: Callable[[], None] = lambda: None
        self.on_stale: Callable[[str, str | None, str], None] = lambda *_: None
        """Called with link, address and reason when a ``with`` block could not settle its delivery."""
        self.on_detached: OnDetached[ReceiverLink] | None = None
        """Decides about a Detach: the error that closes the receiver, or ``None`` to attach it again."""
        self.refusal: HaclientError | None = None
        """Error of the peer's temporary refusal, while the link waits to be attached again."""
        self.redirected_to: str | None = None
        """Node that the peer's redirect named, for this connection."""
        self.credit = credit
        self.loop = loop
        self.confirmations = Confirmations(loop) if confirm else None
        """Deliveries that wait to be confirmed; ``None`` without ``confirm``."""
        self.position = StreamPosition()
        self._dynamic = dynamic
        self._browse = browse
        self._configure = configure
        self._source = source
        self._link: ReceiverLink | None = None
        self._answered = False
        self._peer_properties: Mapping[str, Any] = {}
        # True once the peer's Attach was checked, or if it needs no check.  No credit is granted before.
        self._checked = False
        # With ``credit=0``: messages that the application asked for and has not received.
        self._requested = 0
        self._to_grant = 0
        self._drained = self._is_held = False  # held: before a planned reconnect
        self._draining: asyncio.Future[None] | None = None
        # Each with the number of messages that it waits for.
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    # -- the application's side ---------------------------------------------------------------

    def replenish_credit(self, count: int, session_number: int) -> None:
        """Grant the peer new credit for deliveries that the application took from the inbox."""
        if session_number != self.session_number:
            return
        if not self.credit:
            self._requested = max(0, self._requested - count)
            return
        self._to_grant += count
        # Grant half a window at a time: one Flow for many messages, and the peer never runs out of credit.
        if self._to_grant * 2 >= self.credit:
            self._grant()

    def put_back(self, deliveries: Iterable[DeliveryCore]) -> None:
        """Return undelivered messages of a call to the inbox, with their credit."""
        kept = [each for each in deliveries if each.session_number == self.session_number]
        self.inbox.extendleft(reversed(kept))
        if self.credit:
            self._to_grant -= len(kept)
        else:
            self._requested += len(kept)
        for _ in kept:
            self._wake_next()

    def add_credit(self, count: int) -> None:
        """Ask for ``count`` more messages.

        :raises TypeError: if ``count`` is no whole number.
        :raises ValueError: if ``count`` is not positive or too large, or the receiver grants its own credit.
        :raises HaclientError: if the receiver is closed.
        """
        count = check_whole("count", count)
        if self.credit:
            raise ValueError(f"the receiver grants its credit: add_credit is for credit=0, not {self.credit}")
        if count < 1:
            raise ValueError(f"count: the credit to add is 1 or more, not {count}")
        if self._requested + count > MAX_CREDIT:
            raise ValueError(f"count: the credit is {MAX_CREDIT} at most")
        self.check_open()
        self._requested += count
        self._to_grant += count
        self._drained = False
        self._grant()

    async def drain(self) -> None:
        """Take the credit back: wait until the peer has sent its available messages and no more can arrive.

        A failover ends the wait; the new link gets no credit, either.

        :raises HaclientError: if the receiver is closed.
        """
        self.check_open()
        self._drained = True
        self._to_grant *= bool(self.credit)
        link = self._link
        if self._draining is None:
            self._draining = self.loop.create_future()
            if link is None or link.credit <= 0:
                self._end_drain()
                return
            link.drain()
        await asyncio.shield(self._draining)
        self.check_open()

    def check_open(self) -> None:
        """Raise the error that closed the receiver, if it is closed."""
        if self.error is not None:
            raise another(self.error)

    async def wait_messages(self, needed: int) -> None:
        """Wait until the inbox holds ``needed`` messages.

        :raises HaclientError: if the receiver is closed.
        """
        while len(self.inbox) < needed:
            self.check_open()
            waiter = needed, self.loop.create_future()
            self._waiting.append(waiter)
            if self._link is None:
                self.on_waiting()
            self._resume(needed)
            try:
                await waiter[1]
            except asyncio.CancelledError:
                if waiter[1].done() and not waiter[1].cancelled():
                    self._wake_next()
                elif waiter in self._waiting:
                    self._waiting.remove(waiter)
                raise

    @property
    def connected(self) -> bool:
        """Return whether there is a primary to receive from."""
        return self._link is not None and not self._link.dead and self.refusal is None

    def close(self, error: HaclientError | None = None, *, keep: bool | None = None) -> None:
        """Close the link; the messages in the inbox go back to the queue.

        :param keep: only detach the link, so that the source stays at the peer; always so if it is durable.
        """
        if self.error is None:
            self.closed_here = True
            if self._link is not None:
                self._link.close(keep=keep)
            self.fail(error or LinkClosed(f"the receiver for {quoted(self.address)} is closed"))

    # -- the connection's side ----------------------------------------------------------------

    unsettled = to_replay = 0
    """A receiver sends no messages."""

    @property
    def may_attach_ahead(self) -> bool:
        """Return whether it may be attached before the Begin of the session is answered.

        A receiver of a shared subscription may not: it fails if the peer cannot share, and only the primary
        may decide that.
        """
        return not self._source.is_shared

    @property
    def waiting(self) -> int:
        """Number of waiting calls."""
        return len(self._waiting) + (not self.opened.done())

    @property
    def was_open(self) -> bool:
        """Return whether the peer has ever accepted the link."""
        return self.opened.done()

    @property
    def unanswered(self) -> bool:
        """Return whether the peer has not answered the Attach yet."""
        return self._link is not None and not self._answered

    @property
    def pins_container_id(self) -> bool:
        """Return whether the peer may keep state for the container id; with ``configure`` it may."""
        is_own = self._source.durable and GLOBAL not in self._source.capabilities
        return is_own or self.confirmations is not None or self._configure is not None

    def attach(self, engine: Engine, session: proton.Session) -> None:
        """Attach the link over a session, and grant the window.

        :raises LinkRefused: if the peer's Open rules the source out.
        """
        refusal = self._source.refusal_ahead(engine.connection, self.address)
        if refusal is not None:
            raise refusal
        self.session_number += 1
        link = engine.receiver(session, self.name, self)
        link.on_flow, link.on_violation = self._flowed, self._violated
        source = self._write_source(link, engine)
        if self.confirmations is not None:
            link.request_confirmations()
        if self._configure is not None:
            self._configure(link.endpoint)
        self.position.find(source, may_be_stream=workarounds.has_streams(engine))
        browses = source.distribution_mode == proton.Terminus.DIST_MODE_COPY
        asked = unsupported.Asked(browses, self.confirmations is not None, self._source.must_apply)
        error = unsupported.before_attach(engine, self.address, asked, opened=self.was_open)
        if error is not None:
            engine.links.drop(link)
            self.fail(error)
            return
        self._link, self._answered, self._peer_properties = link, False, engine.peer_properties
        must_wait = self._source.must_check or browses or self.confirmations is not None
        self._checked = not must_wait and workarounds.takes_early_credit(engine)
        if self.confirmations is None:
            engine.attach(link)
        else:
            self.confirmations.attach(engine, link)
        if self._drained:
            self._requested = 0
        self._to_grant = self.credit or self._requested
        self._grant()

    def _write_source(self, link: ReceiverLink, engine: Engine) -> proton.Terminus:
        source: proton.Terminus = link.endpoint.source
        self._source.apply(source)
        if self.redirected_to is not None:
            source.address = self.redirected_to
        elif self._dynamic:
            source.dynamic = True
        elif self.address is not None and not self._source.is_lookup:
            capabilities = self._source.capabilities
            source.address = prefixed(self.address, capabilities, engine.peer_properties)
        if self._browse:
            source.distribution_mode = proton.Terminus.DIST_MODE_COPY
        link.endpoint.target.address = self.name
        return source

    def hold(self) -> bool:
        """Receive nothing more in this session; return whether no delivery of it is unsettled.

        A message that the peer sent settled stays until a call takes it: the peer would not send it again.
        """
        link = self._link
        if link is None or link.dead:
            return True
        if not self._is_held:
            self._is_held = True
            link.drain()
        kept, self.inbox = self.inbox, deque()  # a call that was cancelled may have put some back
        for each in kept:
            self._add(each)
        in_doubt = link.unsettled and not self._browse
        return link.credit <= 0 and not in_doubt and not self.inbox

    def on_disconnected(self) -> None:
        """Empty the inbox after the loss of the link: the primary delivers its messages again."""
        self._end_session(LOST)

    def writable_again(self) -> None:
        """Do nothing: a receiver queues no output."""

    def fail(self, error: HaclientError) -> None:
        """End the receiver: every waiting call raises the error."""
        if self.error is not None:
            return
        self.error = error
        self.closed_here = self.closed_here or isinstance(error, ConnectionClosed)
        if self.confirmations is not None:
            self.confirmations.fail(error)
        closed = isinstance(error, LinkClosed) and self.closed_here
        self._end_session(
            f"the receiver for {quoted(self.address)} was closed" if closed else str(error.args[0])
        )
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()
        waiting, self._waiting = self._waiting, deque()
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        self.on_closed()
        # The application may keep the receiver; do not let it keep the connection.
        self.on_closed = self.on_waiting = lambda: None
        self.on_attached = self.on_accepted = lambda _: None
        self.on_detached = None

    # -- the engine's side --------------------------------------------------------------------

    def link_opened(self, link: ReceiverLink) -> None:
        """Handle the peer's Attach.  If it has no source, a Detach with an error follows."""
        source = link.endpoint.remote_source
        self._answered = True
        if source.address is None and not (self._source.is_lookup and source.type):
            self.on_attached(link)
            return
        error = (
            self._source.refusal(link.endpoint, self.address)
            or unsupported.browse_refusal(link.endpoint, self.address, opened=self.was_open)
            or (None if self.confirmations is None else self.confirmations.refusal(link, self.address))
        )
        if error is not None:
            self.on_attached(link)
            link.close()
            self.fail(error)
            return
        if source.address is not None and self._dynamic:
            self.address = source.address
        self.refusal = None
        if self.confirmations is not None:
            self.confirmations.answered(link)
        if not self.opened.done():
            self.opened.set_result(None)
            if self.address and not self._dynamic:
                attached = link.endpoint.source.address or self.address  # as requested from this peer
                workarounds.advise_address(self._peer_properties, self.name, attached, receives=True)
        self.on_attached(link)
        self._checked = True
        self._grant()
        self.on_accepted(link)

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """End the receiver at the peer's Detach, unless it is to be attached again."""
        if link is not self._link:
            return
        decide = self.on_detached
        error = decide(link, condition) if decide else closed_by_peer(condition, self.address, opened=True)
        if error is None:
            self._end_session("the primary detached the receiver")
        else:
            self.fail(error)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Put a message into the inbox."""
        if link is self._link:
            core = DeliveryCore(self, link, self.session_number, delivery, data)
            if self.position.is_followed:
                core.offset = self.position.read(data, settled=core.sent_settled)
            self._add(core)
            if self._waiting:
                self._wake_next()
            if self._draining is not None and link.credit <= 0:
                self._end_drain()

    def _add(self, core: DeliveryCore) -> None:
        if self._is_held and not core.sent_settled:
            core.give_back()
        else:
            self.inbox.append(core)

    def confirmed(self, link: ReceiverLink, token: Confirmation, outcome: Outcome | None) -> None:
        """Record that the peer settled an accepted delivery."""
        if self.confirmations is not None:
            self.confirmations.confirmed(token, outcome)
            self._grant()

    def _flowed(self, link: ReceiverLink, returned: int) -> None:
        if link is not self._link:
            return
        if self.credit:
            self._to_grant += returned
        elif not self._is_held:  # else the next session gets it
            self._requested = max(0, self._requested - returned)
        if self._draining is not None and link.credit <= 0:
            self._end_drain()

    def _violated(self, link: ReceiverLink, condition: proton.Condition) -> None:
        if link is self._link:
            why = f"the primary exceeded a limit ({condition.name}: {condition.description})"
            text = f"the client closed the receiver for {quoted(self.address)}: {why}"
            self.fail(LinkClosed(text, condition.name))

    # -- inside -------------------------------------------------------------------------------

    def _grant(self) -> None:
        """Grant the pending credit if the receiver may have more now."""
        link, stopped = self._link, self._drained or self._is_held or self._draining is not None
        if self.confirmations is not None and self.confirmations.too_many:
            return
        if link is not None and self._checked and not stopped and self._to_grant > 0:
            link.grant(self._to_grant)
            self._to_grant = 0

    def _resume(self, needed: int = 1) -> None:
        """End the drain because a call waits for messages; grant all pending credit if the call needs it."""
        if self._draining is not None or not self.credit:
            return
        at_peer = 0 if self._link is None else self._link.credit
        if self._drained or at_peer + len(self.inbox) < needed:
            self._drained = False
            self._grant()

    def _end_drain(self) -> None:
        draining, self._draining = self._draining, None
        if draining is not None:
            self._requested = len(self.inbox) + self._to_grant
            if not draining.done():
                draining.set_result(None)
        if self._waiting:
            self._resume(min(needed for needed, _ in self._waiting))
        self._grant()

    def _end_session(self, stale_reason: str) -> None:
        self._link = None
        self._is_held = False
        if self._dynamic and self.confirmations is not None:  # the next dynamic node is a different one
            self.confirmations.fail(StaleDelivery(f"{stale_reason} before the accept was confirmed"))
        self.session_number += 1
        self.stale_reason = stale_reason
        self.position.session_ended()
        self.inbox.clear()
        self._end_drain()

    def _wake_next(self) -> None:
        ready = len(self.inbox)
        for index, (needed, waiter) in enumerate(self._waiting):
            if needed <= ready and not waiter.done():
                del self._waiting[index]
                waiter.set_result(None)
                return
