"""A receiver that outlives its connections.

Rules
-----
* ``credit`` is a window: credit at the peer plus messages waiting in the inbox never exceed it.
* After a loss the inbox is emptied, for the new primary delivers those messages again, and the
  new link is granted the window once, and nothing of the old link's credit.
* A delivery remembers the number of its session; settling it in another raises ``StaleDelivery``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import proton

from haclient.core.attach.refusals import OnDetached, closed_by_peer
from haclient.core.delivery import DeliveryCore
from haclient.errors import ConnectionClosed, HaclientError, LinkClosed, another

if TYPE_CHECKING:
    from haclient.engine.links import DeliveryPointer, ReceiverLink
    from haclient.engine.protocol import Engine


class ReceiverCore:
    """The receiving half of one link name, over as many connections as it takes.

    :param address: the node to receive from; ``None`` with ``dynamic`` asks the peer for a
        temporary one (AMQP 1.0 part 3, section 3.5.3), a new one after each failover.
    :param credit: the window: credit at the peer plus messages in the inbox; 0 grants nothing.
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
    ) -> None:
        self.name = name
        self.address = address
        self.session_number = 0
        self.inbox: deque[DeliveryCore] = deque()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.error: HaclientError | None = None
        self.closed_here = False
        """Whether the application closed it, or its connection."""
        self.on_closed: Callable[[], None] = lambda: None
        self.on_attached: Callable[[ReceiverLink], None] = lambda _: None
        self.on_waiting: Callable[[], None] = lambda: None
        self.on_detached: OnDetached[ReceiverLink] | None = None
        """Decides about a Detach: the error that closes the receiver, or ``None`` if it is attached again."""
        self.refusal: HaclientError | None = None
        """Why the peer refuses the link for now, while it waits to be attached again."""
        self.redirected_to: str | None = None
        """The node that the peer named instead, over this connection."""
        self.loop = loop
        self._credit = credit
        self._dynamic = dynamic
        self._browse = browse
        self._configure = configure
        self._link: ReceiverLink | None = None
        self._answered = False
        self._consumed = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    # -- the application's side ---------------------------------------------------------------

    def replenish_credit(self, count: int, session_number: int) -> None:
        """Grant the peer new credit for deliveries that the application took from the inbox."""
        if session_number != self.session_number:
            return
        if not self._credit:
            return
        self._consumed += count
        # Half a window at a time: one flow frame for many messages, and the pipe never runs dry.
        if self._consumed * 2 >= self._credit and self._link is not None:
            self._link.grant(self._consumed)
            self._consumed = 0

    async def wait_message(self) -> None:
        """Wait until the inbox holds a message.

        :raises HaclientError: when the receiver is closed.
        """
        while not self.inbox:
            if self.error is not None:
                raise another(self.error)
            waiter = self.loop.create_future()
            self._waiting.append(waiter)
            if self._link is None:
                self.on_waiting()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()
                elif waiter in self._waiting:
                    self._waiting.remove(waiter)
                raise

    def close(self, error: HaclientError | None = None) -> None:
        """Close the link; the queue gets back the messages in the inbox."""
        if self.error is None:
            self.closed_here = True
            if self._link is not None:
                self._link.close()
            self.fail(error or LinkClosed(f"the receiver for {self.address!r} is closed"))

    # -- the connection's side ----------------------------------------------------------------

    may_attach_ahead = True
    """Whether it may be attached to a session whose Begin is not answered yet."""
    unsettled = to_replay = 0
    """A receiver sends no messages."""

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._waiting) + (not self.opened.done())

    @property
    def was_open(self) -> bool:
        """Whether the peer has ever accepted the link."""
        return self.opened.done()

    @property
    def unanswered(self) -> bool:
        """Whether the peer has not answered its Attach yet."""
        return self._link is not None and not self._answered

    def attach(self, engine: Engine, session: proton.Session) -> None:
        """Attach the link over a session, and grant the window."""
        self.session_number += 1
        self._consumed = 0
        link = engine.receiver(session, self.name, self)
        source = link.endpoint.source
        if self.redirected_to is not None:
            source.address = self.redirected_to
        elif self._dynamic:
            source.dynamic = True
        elif self.address is not None:
            source.address = self.address
        if self._browse:
            source.distribution_mode = proton.Terminus.DIST_MODE_COPY
        link.endpoint.target.address = self.name
        if self._configure is not None:
            self._configure(link.endpoint)
        self._link, self._answered = link, False
        engine.attach(link)
        link.grant(self._credit)

    def on_disconnected(self) -> None:
        """Empty the inbox after the loss of the link: the primary delivers its messages again."""
        self._link = None
        self.session_number += 1
        self.inbox.clear()

    def writable_again(self) -> None:
        """Do nothing: a receiver queues no output."""

    def fail(self, error: HaclientError) -> None:
        """End the receiver: every waiting call raises the error."""
        if self.error is not None:
            return
        self.error = error
        self.closed_here = self.closed_here or isinstance(error, ConnectionClosed)
        self._link = None
        self.session_number += 1
        self.inbox.clear()
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()
        while self._waiting:
            self._wake_one()
        self.on_closed()
        # The application may keep the receiver: not the connection with it.
        self.on_closed = self.on_waiting = lambda: None
        self.on_attached = lambda _: None
        self.on_detached = None

    # -- the engine's side --------------------------------------------------------------------

    def link_opened(self, link: ReceiverLink) -> None:
        """Handle the peer's Attach; a Detach with an error follows at once if it has no source."""
        address = link.endpoint.remote_source.address
        if address is not None and self._dynamic:
            self.address = address
        if address is not None:
            self.refusal = None
            if not self.opened.done():
                self.opened.set_result(None)
        self._answered = True
        self.on_attached(link)

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """End the receiver, unless it is attached again: the peer refused or detached the link."""
        if link is not self._link:
            return
        decide = self.on_detached
        error = decide(link, condition) if decide else closed_by_peer(condition, self.address, opened=True)
        if error is None:
            self.on_disconnected()
        else:
            self.fail(error)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Put a message into the inbox."""
        if link is self._link:
            self.inbox.append(DeliveryCore(self, link, self.session_number, delivery, data))
            if self._waiting:
                self._wake_one()

    # -- inside -------------------------------------------------------------------------------

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
