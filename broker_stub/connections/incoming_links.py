"""Links on which clients send: to one target, or to the target that each message names.

A target is a queue, or an exchange (``exchanges.Route``) with the same methods.

Rules
-----
* A link gets a credit of ``CREDIT`` messages, fewer when they are large (``credit``), and again at half of
  it, unless the target is full.
* A member without room for messages gives no credit, and keeps what arrives until it has some (``intake``).
* A message that arrives after the member closed the link is released.
* The member settles a delivery when the target has made it safe, not before.
* A message that an exchange routes to no queue is released.
* Bytes that are no message are rejected, and the link continues.
* Where users prove who they are, a message with another user's ``user-id`` is rejected.
* Annotations that mark a message as another site's are removed: only this site sets them.

Sources: AMQP 1.0 part 2, section 2.6.7 (flow control); part 3, section 3.4; "Anonymous Terminus
for Message Routing", version 1.0.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Protocol

import proton

from broker_stub.amqp.conditions import (
    RESOURCE_DELETED,
    UNAUTHORIZED_ACCESS,
)
from broker_stub.amqp.message_format import (
    Envelope,
    MalformedMessageError,
    inspect_new,
    to_address,
    user_id,
)
from broker_stub.connections.credit import CreditWindow
from broker_stub.connections.kept_deliveries import KeptDeliveries
from broker_stub.queueing.exchanges import Route, UnroutableError
from broker_stub.queueing.intake import Intake
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.queue import Queue
from broker_stub.sites.event import without_origin
from haclient.engine.links import DeliveryPointer, ReceiverLink
from haclient.outcome import RELEASED, Outcome, OutcomeState

logger = logging.getLogger("broker_stub.connections.incoming_links")

# Enough to keep a link of 10 ms round trip at 100,000 messages a second.
CREDIT = 1000
# Bytes of a name in an error.
_LONGEST_NAME = 100


class Router(Protocol):
    """Finds the target of a message by its ``to``; raises ``AddressRefusedError``."""

    def __call__(self, address: str | None, /) -> Queue | Route | RequestHandler:
        """The target of an address."""


class LinkOwner(Protocol):
    """The connection that a link belongs to."""

    @property
    def client_id(self) -> str:
        """The container id."""

    def link_closed(self, owner: IncomingLink | AnonymousIncomingLink | RequestLink) -> None:
        """The client closed the link."""


Inspect = Callable[[bytes], Envelope]


class UserIdError(MalformedMessageError):
    """A message says that it is another user's."""

    condition = UNAUTHORIZED_ACCESS


def inspect_of(user: str | None) -> Inspect:
    """Inspects the messages of one user, where users prove who they are; ``None`` for one who has no name."""
    name = (user or "").encode()

    def inspect(data: bytes) -> Envelope:
        claimed = user_id(data)
        if claimed and claimed != name:
            raise UserIdError(f"its user-id is {claimed[:_LONGEST_NAME]!r}, and its sender is {user!r}")
        return inspect_new(data)

    return inspect


class RequestHandler(Protocol):
    """A node of the broker's own that takes whole messages."""

    def request(self, data: bytes) -> None:
        """Take one encoded message."""


class _MessageLink:
    """The receiving end of a link on which a client sends messages.

    :param inspect: checks a message, and reads what a queue needs of it.
    """

    __slots__ = ("_inspect", "_intake", "_kept", "_owner", "_producer", "_window", "link")

    def __init__(
        self, link: ReceiverLink, owner: LinkOwner, window: CreditWindow, intake: Intake, inspect: Inspect
    ) -> None:
        self._inspect = inspect
        self._producer = owner.client_id
        self._intake = intake
        self._kept = KeptDeliveries(intake)
        self.link = link
        self._owner = owner
        self._window = window

    def start(self) -> None:
        """Give the client credit."""
        self.link.on_violation = self._violated
        self._change_credit(self._window.due())

    def _violated(self, link: ReceiverLink, condition: proton.Condition) -> None:
        """Drop what waits without the client's Detach: a client that breaks the rules may send none."""
        self.end()

    def link_opened(self, link: ReceiverLink) -> None:
        """The peer attached first; nothing is left to do."""

    def end(self) -> None:
        """Drop what waits: its client knows that it was not settled."""
        self._kept.end()

    def _change_credit(self, change: int) -> None:
        raise NotImplementedError

    def _done(self, delivery: DeliveryPointer | None) -> None:
        if delivery is not None:
            self.link.settle(delivery)


class IncomingLink(_MessageLink):
    """The receiving end of a link to one target.

    :param inspect: checks a message, and reads what a queue needs of it.
    """

    __slots__ = ("_stalled", "_target")

    def __init__(
        self,
        link: ReceiverLink,
        owner: LinkOwner,
        target: Queue | Route,
        window: CreditWindow,
        intake: Intake,
        *,
        inspect: Inspect = inspect_new,
    ) -> None:
        super().__init__(link, owner, window, intake if _is_stored(target) else Intake(), inspect)
        self._target = target
        self._stalled = False

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """Report the closed link to the connection; its messages stay where they are."""
        self._owner.link_closed(self)

    def end(self) -> None:
        """Wait for the target no longer, and drop what waits: its client knows that it was not settled."""
        super().end()
        self._intake.stop_waiting(self._grant_again)
        self._target.stop_waiting(self._grant_again)

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Put a message into its target, reject it, or release it."""
        if link.closed_here:
            release(link, delivery, "its link is closed")
            return
        due = self._window.received(len(data))
        if self._intake.stopped:
            self._kept.add(delivery, data, self._take)
        else:
            self._take(delivery, data)
        if due:
            self._change_credit(due)

    def _take(self, delivery: DeliveryPointer | None, data: bytes) -> None:
        link = self.link
        try:
            envelope = self._inspect(data)
            data = without_origin(data)
            target = self._target
            if target.deleted:
                reject(link, delivery, RESOURCE_DELETED, f"{target.name} is deleted")
            else:
                target.enqueue(data, self._done, delivery, envelope, producer=self._producer)
        except MalformedMessageError as error:
            reject(link, delivery, error.condition, str(error))
        except UnroutableError as error:
            release(link, delivery, error)

    def _change_credit(self, change: int) -> None:
        if change < 0 or not (self._intake.full or self._target.full):
            self._window.change(change)
            self.link.change_credit(change)
        elif not self._stalled:
            self._stalled = True
            full = self._intake if self._intake.full else self._target
            full.when_not_full(self._grant_again)

    def _grant_again(self) -> None:
        self._stalled = False
        self._change_credit(self._window.due())


class AnonymousIncomingLink(_MessageLink):
    """The receiving end of a link without an address: every message names its target.

    :param inspect: as for ``IncomingLink``.
    """

    __slots__ = ("_resolve", "_waiting")

    def __init__(
        self,
        link: ReceiverLink,
        owner: LinkOwner,
        resolve: Router,
        window: CreditWindow,
        intake: Intake,
        *,
        inspect: Inspect = inspect_new,
    ) -> None:
        super().__init__(link, owner, window, intake, inspect)
        self._resolve = resolve
        self._waiting: dict[Queue | Route | Intake, Callable[[], None]] = {}

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """Report the closed link to the connection; its messages stay where they are."""
        self._owner.link_closed(self)

    def end(self) -> None:
        """Wait for the targets no longer, and drop what waits: its client knows that it was not settled."""
        super().end()
        for target, call in self._waiting.items():
            target.stop_waiting(call)
        self._waiting.clear()

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Put a message into its target, reject it, or release it."""
        if link.closed_here:
            release(link, delivery, "its link is closed")
            return
        due, waited = self._window.received(len(data)), bool(self._waiting)
        self._take(delivery, data)
        if waited or self._waiting:
            due = self._window.due()
        if due:
            self._change_credit(due)

    def _take(self, delivery: DeliveryPointer | None, data: bytes, *, again: bool = False) -> None:
        """Put a message into its target, or keep it; ``again`` is for one that was kept."""
        link = self.link
        try:
            envelope = self._inspect(data)
            data = without_origin(data)
            target = self._resolve(to_address(data))
            if isinstance(target, Queue | Route):
                stored = self._intake.full and _is_stored(target)
                if stored and not again:
                    self._hold(self._intake)
                if stored and self._intake.stopped:
                    self._kept.add(delivery, data, functools.partial(self._take, again=True))
                    return
                target.enqueue(data, self._done, delivery, envelope, producer=self._producer)
                if target.full:
                    self._hold(target)
            else:
                self._done(delivery)
                target.request(data)
        except MalformedMessageError as error:
            reject(link, delivery, error.condition, str(error))
        except AddressRefusedError as refused:
            reject(link, delivery, refused.condition, refused.description)
        except UnroutableError as error:
            release(link, delivery, error)

    def _hold(self, target: Queue | Route | Intake) -> None:
        """Give one credit less until a target is no longer full."""
        self._window.hold(target)
        if target not in self._waiting:
            self._waiting[target] = call = functools.partial(self._grant_again, target)
            target.when_not_full(call)

    def _grant_again(self, target: Queue | Route | Intake) -> None:
        del self._waiting[target]
        self._window.unhold(target)
        self._change_credit(self._window.due())

    def _change_credit(self, change: int) -> None:
        if change:
            self._window.change(change)
            self.link.change_credit(change)


class RequestLink:
    """The receiving end of a link to a node of the broker's own."""

    __slots__ = ("_handler", "_owner", "link")

    def __init__(self, link: ReceiverLink, owner: LinkOwner, handler: RequestHandler) -> None:
        self.link = link
        self._owner = owner
        self._handler = handler

    def start(self) -> None:
        """Give the client credit."""
        self.link.grant(CREDIT)

    def link_opened(self, link: ReceiverLink) -> None:
        """The peer attached first; nothing is left to do."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """Report the closed link to the connection."""
        self._owner.link_closed(self)

    def end(self) -> None:
        """It waits for nothing."""

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Hand a request to the node."""
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
        self._handler.request(data)


def _is_stored(target: Queue | Route) -> bool:
    """Whether what it takes needs room on a disk."""
    return isinstance(target, Route) or not target.temporary


def reject(link: ReceiverLink, delivery: DeliveryPointer | None, condition: str, description: str) -> None:
    """Reject one message; one that was sent settled is dropped and logged."""
    if delivery is None:
        logger.warning("a message sent at most once was dropped: %s: %s", condition, description)
        return
    outcome = Outcome(OutcomeState.REJECTED, condition=condition, description=description)
    link.settle(delivery, outcome)


def release(link: ReceiverLink, delivery: DeliveryPointer | None, error: UnroutableError | str) -> None:
    """Release one message; one that was sent settled is dropped, for no sender waits for it."""
    if delivery is None:
        logger.debug("a message sent at most once was dropped: %s", error)
    else:
        link.settle(delivery, RELEASED)
