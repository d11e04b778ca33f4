"""A sender that outlives its connections.

``submit`` puts an encoded message into the ledger and, when the link has credit, on the wire;
``settled`` resolves its waiter.  Between two connections the ledger waits; see ``ledger`` for
what is sent again.  Both APIs use this class: the asyncio one directly, the blocking one
through its loop thread.
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

# What a done or cancelled future raises when it is given an outcome.
_DONE = (asyncio.InvalidStateError, concurrent.futures.InvalidStateError)


class SenderCore:
    """The sending half of one link name, over as many connections as it takes.

    :param address: the node to send to; ``None`` is the anonymous terminus (AMQP 1.0
        part 3, section 3.5.1: the message's ``to`` decides).
    :param window: unsettled messages at most.
    :param capabilities: those that the target is to have.
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
        """Whether the primary that it is, or was last, attached to keeps ids no longer than messages."""
        self.on_closed: Callable[[], None] = lambda: None
        self.on_attached: Callable[[SenderLink], None] = lambda _: None
        self.on_waiting: Callable[[], None] = lambda: None
        self.on_detached: OnDetached[SenderLink] | None = None
        """Decides about a Detach: the error that closes the sender, or ``None`` if it is attached again."""
        self.refusal: HaclientError | None = None
        """Why the peer refuses the link for now, while it waits to be attached again."""
        self.redirected_to: str | None = None
        """The node that the peer named instead, over this connection."""
        self.suspects = SuspectMessages()  # those of its connection replace them
        self._loop = loop
        self._at_most_once = at_most_once
        self._configure = configure
        self._capabilities = capabilities
        self._engine: Engine | None = None
        self._link: SenderLink | None = None
        self._answered = False
        # The link's credit, counted along: asking proton costs a C call a message.
        self._credit = 0
        # The peer's max-message-size, once the link is attached.
        self._max_size = sys.maxsize
        self.abandoned = 0
        """Messages without an outcome at its end, but for those whose futures were cancelled."""
        self._waiting_for_window: deque[asyncio.Future[None]] = deque()
        # The calls of ``flush``, each with what was unsettled when it began, oldest first.
        self._flushing: dict[asyncio.Future[HaclientError | None], deque[Entry[Waiter]]] = {}

    # -- the application's side ---------------------------------------------------------------

    def submit(self, data: bytes, waiter: Waiter) -> Entry[Waiter]:
        """Take responsibility for an encoded message.  Never blocks; see ``wait_window``.

        A message that is larger than the primary takes fails at once, and alone.

        :raises HaclientError: when the sender is closed.
        """
        if self.error is not None:
            raise another(self.error)
        ledger = self.ledger
        if len(data) > self._max_size:
            self._wake_waiters()  # the place in the window is another call's
            _fail(waiter, too_large(len(data), self._max_size, self.address))
            return Entry(b"", waiter)
        entry = ledger.add(data, waiter)
        # A link is dead from the end of its engine on, and not only from ``on_disconnected``.
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
        """``submit``, and write now instead of at the end of this turn of the loop: nothing follows in it."""
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

        :raises HaclientError: when the sender is closed meanwhile.
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
        """Let another call have the place in the window that a call has waited for, and does not use."""
        self._wake_waiters()

    def withdraw(self, entry: Entry[Waiter]) -> bool | None:
        """Withdraw an entry: it is not sent any more, and its outcome is ignored.

        An entry that is no longer in the ledger is left alone: its delivery may be another message's by now.

        :returns: ``False`` when nothing of it was ever on the wire (so it was not delivered), otherwise
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
        """Withdraw an entry that is not on the wire; one that is stays until it is settled or lost."""
        if entry.delivery is None:
            self.withdraw(entry)
        elif self._withdraw_unbegun(entry):
            self._wake_waiters()

    def _withdraw_unbegun(self, entry: Entry[Waiter]) -> bool:
        """Withdraw an entry that the link has, if nothing of it is on the wire; whether it is withdrawn."""
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
        """Wait until everything submitted before is settled or withdrawn, whatever is submitted meanwhile.

        :raises HaclientError: when the sender ended, now or earlier, with messages among it.
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
        """Close the link; what is not settled yet fails with ``LinkClosed``."""
        if self.error is None:
            if self._link is not None:
                self._link.close()
            self.fail(error or LinkClosed(f"the sender for {quoted(self.address)} is closed"))

    # -- the connection's side ----------------------------------------------------------------

    may_attach_ahead = True
    """Whether it may be attached to a session whose Begin is not answered yet."""

    @property
    def connected(self) -> bool:
        """Whether there is a primary that it can send to."""
        return self._link is not None and not self._link.dead and self.refusal is None

    @property
    def lacks_credit(self) -> bool:
        """Whether there is a primary that lets it send nothing."""
        credit = self._link.credit if self._link is not None and self.suspects.one_by_one else self._credit
        return self.connected and self._answered and credit <= 0

    @property
    def starved(self) -> bool:
        """Whether messages wait because of that."""
        return self.lacks_credit and bool(self.ledger.unsent)

    @property
    def blocked(self) -> bool:
        """Return whether there is a primary that takes nothing: its session window is closed."""
        return self.connected and self._engine is not None and not self._engine.incoming.window.is_open

    @property
    def unsettled(self) -> int:
        """How many messages have no outcome yet."""
        return len(self.ledger)

    @property
    def waiting(self) -> int:
        """How many calls wait, beside those for the outcome of a message."""
        return len(self._waiting_for_window) + len(self._flushing) + (not self.opened.done())

    @property
    def to_replay(self) -> int:
        """How many of them were sent over a lost connection: they are sent again."""
        return self.ledger.sent

    @property
    def was_open(self) -> bool:
        """Whether the peer has ever accepted the link."""
        return self.opened.done()

    @property
    def unanswered(self) -> bool:
        """Whether the peer has not answered its Attach yet."""
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
        """Detach the link, which is attached over another session next; nothing was sent on it."""
        if self._link is not None:
            self._link.close()
        self.on_disconnected()

    def on_disconnected(self) -> None:
        """Keep the entries for the next link; at most once, those that were sent are given up."""
        self._clear_link()
        for entry in self.ledger.on_disconnected(keep_sent=not self._at_most_once):
            _fail(entry.waiter, DeliveryUnknown("the connection was lost before the message was settled"))
        self._wake_waiters()

    def writable_again(self) -> None:
        """Go on sending: the socket takes bytes again."""
        self.use_credit()

    @property
    def is_sending(self) -> bool:
        """Return whether its link has messages that the primary has not settled."""
        return self._link is not None and self._link.unsettled > 0

    def give_up(self, entry: Entry[Waiter], error: HaclientError) -> None:
        """Remove a message from the ledger, for this reason."""
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
        # The application may keep the sender: not the connection with it.
        self.on_closed = self.on_waiting = lambda: None
        self.on_attached = lambda _: None
        self.on_detached = None

    # -- the engine's side --------------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """Handle the peer's Attach; a Detach with an error follows at once if it has no target."""
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
        """Give up what is larger than this primary takes: it would cost the link, and all behind it."""
        self._max_size = size
        for entry in [each for each in self.ledger if len(each.data) > size]:
            delivered = None if entry.sent else False
            self.give_up(entry, too_large(len(entry.data), size, self.address, delivered=delivered))

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """End the sender, unless it is attached again: the peer refused or detached the link."""
        if link is not self._link:
            return
        decide = self.on_detached
        error = decide(link, condition) if decide else closed_by_peer(condition, self.address, opened=True)
        if error is None:
            self.on_disconnected()
        else:
            self.fail(error)

    def credit_given(self, link: SenderLink) -> None:
        """Send what the new credit allows; give it back if the peer drains and nothing is unsent."""
        if link is self._link:
            self.use_credit()
            if not self.ledger.unsent and link.drain:
                link.drained()
                self.use_credit()

    def use_credit(self) -> None:
        """Send what the credit allows, and the suspects."""
        link, suspects = self._link, self.suspects
        if link is None:
            return
        self._credit = link.credit
        if suspects.one_by_one:
            self._credit = min(self._credit, int(suspects.may_send))
        self._pump()
        if suspects.one_by_one:  # a new message has to ask, too
            self._credit = 0

    def settled(self, _link: SenderLink, token: Any, outcome: Outcome | None) -> None:
        """Resolve the waiter of a message that the primary settled."""
        entry: Entry[Waiter] = token
        self.ledger.remove(entry)
        if self._waiting_for_window or self._flushing:
            self._wake_waiters()
        if self.suspects.one_by_one:
            self.suspects.go_on()
        # No check whether it is done: another thread may cancel it in between.
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
        self._credit, self._max_size = 0, sys.maxsize

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
        # Cancelled entries have left the window without being settled.
        if self._waiting_for_window or self._flushing:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Wake the calls that wait for the window, and those that wait for outcomes."""
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
        """Wake each ``flush`` whose messages have left the ledger; all of them at the end of the sender."""
        ledger, error = self.ledger, self.error
        for waiter, pending in self._flushing.items():
            while pending and (pending[0] not in ledger or (error is not None and pending[0].waiter.done())):
                pending.popleft()
            if (error is not None or not pending) and not waiter.done():
                waiter.set_result(error if pending else None)


def too_large(
    size: int, limit: int, address: str | None, *, delivered: bool | None = False
) -> MessageTooLarge:
    """The error for a message that is larger than the primary takes for this address."""
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
    """The same error for one message, with ``delivered`` set."""
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
