r"""The primary's view of one backup: its control link, its browsers, and how far it is.

Phases
------
    catching up --sent all--> last lap --has it--> waiting --nothing old outstanding--> ready
         \______________________ dropped (link lost, refused, stalled) ______________/

* While it catches up, nobody waits for it.  The last lap begins when every browser is at its seam, and
  ends when the replica has what was on its way then: what came in that time is little, and so
  the first message that waits for the replica does not wait behind a long line.
* From ``waiting`` on, every new message waits for its acknowledgement (rule 4 of ``generation``:
  first wait, then hand over the number).
* It counts as ready from the moment the number is *sent*: it may have written it down even if
  its acknowledgement never comes, and so dropping it then needs rule 2.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import proton

from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.replication.queue_feed import Browser
from haclient.engine.links import SenderLink
from haclient.outcome import Outcome

logger = logging.getLogger("broker_stub.replication")

# As much as the engine gives the socket in one turn: what is more waits in the outboxes.
_BURST = 256 * 1024


class Phase(enum.StrEnum):
    """How far a replica is."""

    CATCHING_UP = "catching-up"
    LAST_LAP = "last-lap"
    WAITING = "waiting"
    READY = "ready"
    DROPPED = "dropped"


class Outlet(Protocol):
    """The connection that leads to the replica."""

    congested: bool

    def sent(self, size: int) -> None:
        """Count what was given to proton."""

    def hang_up(self, why: str) -> None:
        """End the connection, if it has not ended."""


class Lead(Protocol):
    """The primary, as its replicas see it."""

    def has(self, message: Message) -> None:
        """A replica has acknowledged a message that waits for it."""

    def replica_started_waiting(self, replica: Replica) -> None:
        """From now on new messages wait for its acknowledgement."""

    def replica_caught_up(self, replica: Replica) -> None:
        """Everything settled before it was waited for is acknowledged: it may have the number."""

    def replica_failed(self, replica: Replica, reason: str) -> None:
        """The replica is to be dropped."""


class Replica:
    """One backup.

    :param name: its member name.
    :param clock: monotonic seconds.
    """

    def __init__(self, name: str, lead: Lead, outlet: Outlet, clock: Callable[[], float]) -> None:
        self.name = name
        self.phase = Phase.CATCHING_UP
        self._lead = lead
        self._outlet = outlet
        self._clock = clock
        self._browsers: dict[str, Browser] = {}
        self._control: SenderLink | None = None
        self._orders: deque[bytes] = deque()
        self._order_waiters: deque[asyncio.Future[None]] = deque()
        self._wired = False
        self._draining: set[tuple[Browser, int]] = set()
        self._moved_at = clock()
        self._due = 0

    @property
    def waiting(self) -> bool:
        """Whether new messages wait for its acknowledgement."""
        return self.phase in (Phase.WAITING, Phase.READY)

    @property
    def congested(self) -> bool:
        """Whether its connection takes no more now."""
        return self._outlet.congested

    @property
    def lag(self) -> int:
        """Messages that it has not acknowledged."""
        return sum(len(browser.unacknowledged) for browser in self._browsers.values())

    def stalled_for(self) -> float:
        """Seconds without any acknowledgement although some are due; 0 when none is."""
        return self._clock() - self._moved_at if self._due or self._order_waiters else 0.0

    # -- orders ---------------------------------------------------------------------------------

    def begin(self, control: SenderLink, wiring: Mapping[str, Any]) -> None:
        """Its control link is attached: the wiring comes first."""
        self._control = control
        self.order("wiring", wiring).add_done_callback(self._wiring_done)

    def _wiring_done(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._wired = True
            self.progressed()

    def order(self, operation: str, arguments: Mapping[str, Any]) -> asyncio.Future[None]:
        """Send an order; the future is done when the replica has it durably, or raises ``ReplicaLost``."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(_retrieve)
        if self.phase is Phase.DROPPED:
            waiter.set_exception(ReplicaLostError(self.name))
            return waiter
        if not self._order_waiters:
            self._moved_at = self._clock()
        self._order_waiters.append(waiter)
        self._orders.append(wire.encode_order(operation, arguments))
        self._send_orders()
        return waiter

    def _send_orders(self) -> None:
        control = self._control
        while control is not None and self._orders and control.credit > 0:
            control.send(self._orders.popleft(), None)

    # -- queues ---------------------------------------------------------------------------------

    def add(self, queue: Queue) -> None:
        """Replicate a queue from now on; it is fed when the replica attaches to it."""
        browser = Browser(self, queue)
        self._browsers[queue.identity] = browser
        queue.observe(browser)

    def remove(self, queue: Queue) -> asyncio.Future[None]:
        """The queue is deleted; the future is that of the order which says so."""
        order = self.order("queue-deleted", {"identity": queue.identity})
        browser = self._browsers.pop(queue.identity, None)
        if browser is not None:
            queue.unobserve(browser)
            browser.end()
            order.add_done_callback(lambda _order: browser.close())
            self.progressed()
        return order

    def browser(self, identity: str) -> Browser | None:
        """The browser of a queue, by its identity."""
        return self._browsers.get(identity)

    def pump(self) -> None:
        """The connection takes more."""
        self._send_orders()
        for browser in self._browsers.values():
            browser.pump()

    # -- progress -------------------------------------------------------------------------------

    def progressed(self) -> None:
        """The wiring is there, or a browser has reached its seam."""
        if self.phase is not Phase.CATCHING_UP or not self._wired:
            return
        if all(browser.caught_up for browser in self._browsers.values()):
            self.phase = Phase.LAST_LAP
            self._draining = self._on_their_way()
            self._check_drained()

    def _tell_marks(self) -> None:
        """What a queue has remembered until now; what changes from now on is told with what changes it."""
        for browser in self._browsers.values():
            if browser.queue.marks is not None:
                browser.tell_marks()

    def _on_their_way(self) -> set[tuple[Browser, int]]:
        return {(b, number) for b in self._browsers.values() for number in b.unacknowledged}

    def expect(self) -> None:
        """A message waits for this replica: its time to answer runs."""
        if not self._due:
            self._moved_at = self._clock()
        self._due += 1

    def acknowledged(self, browser: Browser, number: int, message: Message | None) -> None:
        """The replica has a message, or the queue has it no more."""
        self._moved_at = self._clock()
        if self._draining:
            self._draining.discard((browser, number))
            self._check_drained()
        if message is not None:
            self._due -= 1
            self._lead.has(message)

    def sent(self, size: int) -> None:
        """Count what was given to its connection."""
        self._outlet.sent(size)

    def _check_drained(self) -> None:
        if not self._draining and self.phase is Phase.LAST_LAP:
            self.phase = Phase.WAITING
            self._tell_marks()
            self._draining = self._on_their_way()
            logger.info("%s has caught up, %d messages on their way", self.name, len(self._draining))
            self._lead.replica_started_waiting(self)
        if not self._draining and self.phase is Phase.WAITING:
            self._lead.replica_caught_up(self)

    # -- the end --------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Something makes it unfit."""
        if self.phase is not Phase.DROPPED:
            self._lead.replica_failed(self, reason)

    def hang_up(self, why: str) -> None:
        """Let it know that it was dropped: it has to come again."""
        self._outlet.hang_up(why)

    def drop(self) -> list[Message]:
        """Feed it no longer; returns the messages that wait for it, which nobody has released yet."""
        self.phase = Phase.DROPPED
        self._draining.clear()
        waiting: list[Message] = []
        for browser in self._browsers.values():
            browser.queue.unobserve(browser)
            waiting += browser.waited_for.values()
            browser.waited_for.clear()
        self._browsers.clear()
        for waiter in self._order_waiters:
            if not waiter.done():
                waiter.set_exception(ReplicaLostError(self.name))
        self._order_waiters.clear()
        return waiting

    # -- the control link's owner ---------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """The replica attached first."""

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """Without control it is no replica."""
        self._control = None
        self.fail("it detached its control link")

    def credit_given(self, link: SenderLink) -> None:
        """The replica takes orders."""
        self._send_orders()

    def settled(self, link: SenderLink, token: None, outcome: Outcome | None) -> None:
        """The oldest order is carried out, or refused."""
        if outcome is None or not outcome.accepted:
            self.fail("it refused an order")
        elif self._order_waiters:
            self._moved_at = self._clock()
            waiter = self._order_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


class ReplicaLostError(Exception):
    """The replica was dropped before it carried an order out."""


def _retrieve(waiter: asyncio.Future[None]) -> None:
    """An order that nobody awaits may fail without a warning."""
    if not waiter.cancelled():
        waiter.exception()
