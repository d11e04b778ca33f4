"""A sender that outlives its connections.

``submit`` puts an encoded message into the ledger and, if the link has credit, on the wire; ``settled``
resolves its waiter.  Between two connections the messages wait in the ledger, which has the rules of replay.
Both APIs use this class: the asyncio one directly, the blocking one through its loop thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import proton

from haclient.core.attach.prefixes import prefixed
from haclient.core.attach.refusals import OnDetached, closed_by_peer
from haclient.core.attach.suspect_messages import SuspectMessages
from haclient.core.attach.target import request_capabilities
from haclient.core.ledger import Entry, Ledger, Waiter
from haclient.core.quirks import workarounds
from haclient.error_catalog.base import brief, quoted
from haclient.errors import (
    ConnectionClosed,
    DeliveryUnknown,
    HaclientError,
    LinkClosed,
    MessageNotAccepted,
    MessageTooLarge,
    another,
)
from haclient.outcome import ACCEPTED, Outcome

if TYPE_CHECKING:
    from haclient.engine.links import SenderLink
    from haclient.engine.protocol import Engine

# Raised by a done or cancelled future that is given an outcome.
_DONE = (asyncio.InvalidStateError, concurrent.futures.InvalidStateError)


class SenderCore:
    """The sending half of one link name, over any number of connections.

    :param address: the node to send to; ``None`` is the anonymous terminus (AMQP 1.0 part 3, section 3.5.1).
    :param window: unsettled messages at most.
    :param capabilities: capabilities requested of the target.
    :param at_most_once: at a loss, give up the messages on the wire instead of sending them again.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        address: str | None,
        *,
        window: int,
        at_most_once: bool,
        configure: Callable[[proton.Sender], None] | None,
        capabilities: tuple[proton.symbol, ...] = (),
    ) -> None:
        self.name = name
        self.address = address
        self.ledger: Ledger[Waiter] = Ledger(window)
        self.opened: asyncio.Future[None] = loop.create_future()
        self.error: HaclientError | None = None
        self.ids_live_with_messages = False
        """True if the current or last primary keeps ids no longer than messages."""
        self.on_closed: Callable[[], None] = lambda: None
        self.on_attached: Callable[[SenderLink], None] = lambda _: None
        self.on_waiting: Callable[[], None] = lambda: None
        self.on_detached: OnDetached[SenderLink] | None = None
        """Decides about a Detach: the error that closes the sender, or ``None`` to attach it again."""
        self.refusal: HaclientError | None = None
        """Error of the peer's temporary refusal, while the link waits to be attached again."""
        self.redirected_to: str | None = None
        """Node that the peer's redirect named, for this connection."""
        self.suspects = SuspectMessages()  # the link set replaces it
        self._loop = loop
        self._at_most_once = at_most_once
        self._configure = configure
        self._capabilities = capabilities
        self._engine: Engine | None = None
        self._link: SenderLink | None = None
        self._answered = False
        self._credit = 0  # our count of the link's: asking proton costs a C call per message
        self._is_held = False  # before a planned reconnect
        self._max_size = sys.maxsize  # the peer's, once the link is attached
        self.abandoned = 0
        """Messages without an outcome when the sender ended, except those whose futures were cancelled."""
        self._waiting_for_window: deque[asyncio.Future[None]] = deque()
        # The calls of ``flush``, each with its entries, oldest first.
        self._flushing: dict[asyncio.Future[HaclientError | None], deque[Entry[Waiter]]] = {}

    # -- the application's side ---------------------------------------------------------------

    def submit(self, data: bytes, waiter: Waiter) -> Entry[Waiter]:
        """Take responsibility for an encoded message.  Never blocks; see ``wait_window``.

        If the message is larger than the primary allows, it fails at once, and only it.

        :raises HaclientError: if the sender is closed.
        """
        if self.error is not None:
            raise another(self.error)
        ledger = self.ledger
        if len(data) > self._max_size:
            self._wake_waiters()  # the message needs no place in the window
            _fail(waiter, too_large(len(data), self._max_size, self.address))
            return Entry(b"", waiter)
        entry = ledger.add(data, waiter)
        # A link is dead as soon as its engine ends, before ``on_disconnected`` is called.
        link, engine = self._link, self._engine
        if self._credit > 0 and not ledger.unsent and not link.dead and engine.writable:  # type: ignore[union-attr]
            self._credit -= 1
            entry.delivery = link.send(data, entry)  # type: ignore[union-attr]
            entry.sent = True
        else:
            ledger.unsent.append(entry)
            if link is None:
                self.on_waiting()
            elif self.suspects.one_by_one:
                self.suspects.go_on()
        return entry

    def submit_last(self, data: bytes, waiter: Waiter) -> Entry[Waiter]:
        """Submit a message and write at once: the caller sends no more in this iteration of the loop."""
        engine = self._engine
        if engine is None:
            return self.submit(data, waiter)
        engine.held = True
        try:
            return self.submit(data, waiter)
        finally:
            engine.held = False
            engine.write()

    async def wait_window(self) -> None:
        """Wait until the window allows another message.

        :raises HaclientError: if the sender is closed meanwhile.
        """
        while self.ledger.full and self.error is None:
            waiter = self._loop.create_future()
            self._waiting_for_window.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_waiters()
                elif waiter in self._waiting_for_window:
                    self._waiting_for_window.remove(waiter)
                raise
        if self.error is not None:
            raise another(self.error)

    def window_unused(self) -> None:
        """Wake another waiting call, because the woken one does not use its place in the window."""
        self._wake_waiters()

    def withdraw(self, entry: Entry[Waiter]) -> bool | None:
        """Withdraw an entry: do not send it any more, and ignore its outcome.

        An entry that is no longer in the ledger is ignored: another message may use its delivery by now.

        :returns: ``False`` if no byte of it was ever on the wire (so it was not delivered), otherwise
            ``None``.
        """
        if self._withdraw_unbegun(entry):
            self._wake_waiters()
            return None if entry.was_lost else False
        delivery = entry.delivery
        if self.ledger.withdraw(entry):
            if delivery is not None and self._link is not None:
                self._link.forget(delivery)
                self.suspects.given_up()
            self._wake_waiters()
            self._go_on()
        return None if entry.sent else False

    def withdraw_unsent(self, entry: Entry[Waiter]) -> None:
        """Withdraw an entry unless it is on the wire; then it stays until it is settled or lost."""
        if entry.delivery is None:
            self.withdraw(entry)
        elif self._withdraw_unbegun(entry):
            self._wake_waiters()

    def _withdraw_unbegun(self, entry: Entry[Waiter]) -> bool:
        """Withdraw an entry given to the link, if no byte is on the wire; return whether it was withdrawn."""
        link = self._link
        if entry.delivery is None or link is None or not link.withdraw(entry.delivery, len(entry.data)):
            return False
        self.ledger.withdraw(entry)
        self.use_credit()
        self._go_on()
        return True

    def _go_on(self) -> None:
        if self.suspects.one_by_one:
            self.suspects.go_on()

    async def flush(self) -> None:
        """Wait until all messages submitted before are settled or withdrawn; ignore later ones.

        :raises HaclientError: if the sender ended, now or earlier, before some of them had an outcome.
        """
        error = self.error if self.abandoned else None
        if self.ledger:
            waiter = self._loop.create_future()
            self._flushing[waiter] = deque(self.ledger)
            try:
                error = await waiter
            finally:
                del self._flushing[waiter]
        if error is not None:
            raise another(error)

    def close(self, error: HaclientError | None = None) -> None:
        """Close the link; unsettled messages fail with ``LinkClosed``."""
        if self.error is None:
            if self._link is not None:
                self._link.close()
            self.fail(error or LinkClosed(f"the sender for {quoted(self.address)} is closed"))

    # -- the connection's side ----------------------------------------------------------------

    may_attach_ahead = True
    """True: it may be attached before the Begin of the session is answered."""

    @property
    def connected(self) -> bool:
        """Return whether there is a primary to send to."""
        return self._link is not None and not self._link.dead and self.refusal is None

    @property
    def lacks_credit(self) -> bool:
        """Return whether there is a primary that gives no credit."""
        credit = self._link.credit if self._link is not None and self.suspects.one_by_one else self._credit
        return self.connected and self._answered and credit <= 0 and not self._is_held

    @property
    def starved(self) -> bool:
        """Return whether messages wait for credit."""
        return self.lacks_credit and bool(self.ledger.unsent)

    @property
    def blocked(self) -> bool:
        """Return whether the primary's session window is closed."""
        return self.connected and self._engine is not None and not self._engine.incoming.limits.window_is_open

    @property
    def unsettled(self) -> int:
        """Number of messages without an outcome."""
        return len(self.ledger)

    @property
    def waiting(self) -> int:
        """Number of waiting calls, not counting waits for the outcome of a message."""
        return len(self._waiting_for_window) + len(self._flushing) + (not self.opened.done())

    @property
    def to_replay(self) -> int:
        """Number of entries sent before, for the next session."""
        return self.ledger.sent

    @property
    def was_open(self) -> bool:
        """Return whether the peer has ever accepted the link."""
        return self.opened.done()

    @property
    def unanswered(self) -> bool:
        """Return whether the peer has not answered the Attach yet."""
        return self._link is not None and not self._answered

    def attach(self, engine: Engine, session: proton.Session) -> None:
        """Attach the link over a session; the ledger is sent when credit arrives."""
        link = engine.sender(session, self.name, self)
        if self.redirected_to is not None:
            link.endpoint.target.address = self.redirected_to
        elif self.address is not None:
            link.endpoint.target.address = prefixed(self.address, self._capabilities, engine.peer_properties)
        request_capabilities(link.endpoint.target, self._capabilities)
        link.endpoint.source.address = self.name
        link.endpoint.snd_settle_mode = proton.Link.SND_UNSETTLED
        if self._configure is not None:
            self._configure(link.endpoint)
        self._engine, self._link, self._credit, self._answered = engine, link, 0, False
        self.ids_live_with_messages = workarounds.ids_live_with_messages(engine.peer_properties)
        engine.attach(link)

    def detach(self) -> None:
        """Detach an unused link, which is then attached over another session."""
        if self._link is not None:
            self._link.close()
        self.on_disconnected()

    def hold(self) -> bool:
        """Send nothing more in this session; return whether everything sent is settled."""
        self._is_held, self._credit = True, 0
        return not self.is_sending

    def on_disconnected(self) -> None:
        """Keep the entries for the next link; with at-most-once, give up the sent ones."""
        self._clear_link()
        for entry in self.ledger.on_disconnected(keep_sent=not self._at_most_once):
            _fail(entry.waiter, DeliveryUnknown("the connection was lost before the message was settled"))
        self._wake_waiters()

    def writable_again(self) -> None:
        """Continue sending: the socket takes bytes again."""
        self.use_credit()

    @property
    def is_sending(self) -> bool:
        """Return whether the link has messages that the primary has not settled."""
        return self._link is not None and bool(self._link.unsettled)

    def give_up(self, entry: Entry[Waiter], error: HaclientError) -> None:
        """Remove a message from the ledger and fail it with this error."""
        self.ledger.withdraw(entry)
        _fail(entry.waiter, error)
        self._wake_waiters()

    def fail(self, error: HaclientError) -> None:
        """End the sender: every waiting call and every entry gets the error."""
        if self.error is not None:
            return
        self.error = error
        self._clear_link()
        self._wake_flushes()
        for entry in self.ledger.clear():
            self.abandoned += not entry.waiter.done()
            _fail(entry.waiter, _with_delivery(error, sent=entry.sent))
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()
        self._wake_waiters()
        self.on_closed()
        # The application may keep the sender; do not let it keep the connection.
        self.on_closed = self.on_waiting = lambda: None
        self.on_attached = lambda _: None
        self.on_detached = None

    # -- the engine's side --------------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """Handle the peer's Attach.  If it has no target, a Detach with an error follows."""
        if link.endpoint.remote_target.address is not None or self.address is None:
            self.refusal = None
            self._limit_size(int(link.endpoint.remote_max_message_size or sys.maxsize))
            if not self.opened.done():
                self.opened.set_result(None)
                if self._engine is not None and self.address:
                    target = link.endpoint.target
                    workarounds.advise_sender(self._engine, self.name, self.address, target)
        self._answered = True
        self.on_attached(link)

    def _limit_size(self, size: int) -> None:
        """Give up messages larger than this primary allows: each would cost the link, and all behind it."""
        self._max_size = size
        for entry in [each for each in self.ledger if len(each.data) > size]:
            delivered = None if entry.sent else False
            self.give_up(entry, too_large(len(entry.data), size, self.address, delivered=delivered))

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """End the sender at the peer's Detach, unless it is to be attached again."""
        if link is not self._link:
            return
        decide = self.on_detached
        error = decide(link, condition) if decide else closed_by_peer(condition, self.address, opened=True)
        if error is None:
            self.on_disconnected()
        else:
            self.fail(error)

    def credit_given(self, link: SenderLink) -> None:
        """Send as the new credit allows; return the rest if the peer drains and nothing is unsent."""
        if link is self._link:
            self.use_credit()
            if not self.ledger.unsent and link.drain:
                link.drained()
                self.use_credit()

    def use_credit(self) -> None:
        """Send as the credit and the search for suspect messages allow."""
        link, suspects = self._link, self.suspects
        if link is None or self._is_held:
            return
        self._credit = link.credit
        if suspects.one_by_one:
            self._credit = min(self._credit, int(suspects.may_send))
        self._pump()
        if suspects.one_by_one:  # each new message must wait for its turn, too
            self._credit = 0

    def settled(self, _link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Resolve the waiter of a message that the primary settled."""
        entry: Entry[Waiter] = token
        self.ledger.remove(entry)
        if self._waiting_for_window or self._flushing:
            self._wake_waiters()
        if self.suspects.one_by_one:
            self.suspects.go_on()
        # No check for a done waiter: another thread may cancel it at any moment.
        try:
            if outcome is ACCEPTED:
                entry.waiter.set_result(outcome)
            else:
                error = _not_accepted(outcome)
                entry.waiter.set_exception(error)
        except _DONE:
            entry.late_outcome = outcome if outcome is ACCEPTED else error

    # -- inside -------------------------------------------------------------------------------

    def _clear_link(self) -> None:
        self._engine = self._link = None
        self._credit, self._max_size, self._is_held = 0, sys.maxsize, False

    def _pump(self) -> None:
        engine, link, unsent = self._engine, self._link, self.ledger.unsent
        if link is None or engine is None or link.dead:
            return
        while unsent and self._credit > 0 and engine.writable:
            entry = unsent.popleft()
            if entry.waiter.done():
                self.ledger.remove(entry)
                continue
            if entry not in self.ledger:
                continue
            self._credit -= 1
            entry.delivery = link.send(entry.data, entry)
            entry.sent = True
        # Cancelled entries have left the window unsettled.
        if self._waiting_for_window or self._flushing:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wake the calls of ``wait_window`` and ``flush`` that can go on."""
        free = self.ledger.window - len(self.ledger)
        waiting = self._waiting_for_window
        while waiting and (free > 0 or self.error is not None):
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1
        if self._flushing:
            self._wake_flushes()

    def _wake_flushes(self) -> None:
        """Wake each ``flush`` whose messages have left the ledger; all of them when the sender ends."""
        ledger, error = self.ledger, self.error
        for waiter, pending in self._flushing.items():
            while pending and (pending[0] not in ledger or (error is not None and pending[0].waiter.done())):
                pending.popleft()
            if (error is not None or not pending) and not waiter.done():
                waiter.set_result(error if pending else None)


def too_large(
    size: int, limit: int, address: str | None, *, delivered: bool | None = False
) -> MessageTooLarge:
    """Return the error for a message that is larger than the primary allows for this address."""
    node = "" if address is None else f" for {quoted(address)}"
    text = f"the message has {size} bytes, and the primary takes {limit} at most{node}"
    return MessageTooLarge(text, size, limit, delivered=delivered)


def _not_accepted(outcome: Outcome | None) -> HaclientError:
    if outcome is None:
        return DeliveryUnknown("the primary settled the message without an outcome")
    name = outcome.state.name.lower()
    because = ""
    if outcome.condition:
        because = f" ({brief(outcome.condition)}: {brief(outcome.description or '')})"
    return MessageNotAccepted(f"the message was {name}{because}", outcome)


def _with_delivery(error: HaclientError, *, sent: bool) -> HaclientError:
    """Return a copy of the error for one message, with ``delivered`` set."""
    if isinstance(error, LinkClosed):
        return LinkClosed(str(error), error.condition, delivered=None if sent else False)
    if isinstance(error, ConnectionClosed):
        return ConnectionClosed(str(error), delivered=None if sent else False)
    error = copy.copy(error)
    error.delivered, error.safe_to_retry = (None, False) if sent else (False, type(error).safe_to_retry)
    return error


def _fail(waiter: Waiter, error: BaseException) -> None:
    try:
        waiter.set_exception(error)
    except _DONE:
        return
