"""Links on which clients send: to one target, or to the target that each message names.

A target is a queue, or an exchange (``exchanges.Route``) with the same methods.

Rules
-----
* A link starts with a credit of ``CREDIT`` messages, or fewer if they are large (``credit``). Credit is
  renewed when half is used, unless the target is full.
* A member without room for messages gives no credit and keeps arriving messages until it has room
  (``intake``).
* A message that arrives after the member closed the link is released.
* The member settles a delivery only when the target has made the message safe.
* A message that an exchange routes to no queue is released.
* Malformed messages are rejected, and the link continues. Messages that raise other errors are rejected too.
  Only if the store fails, the connection ends and its client resends to another primary.
* If users must authenticate, a message with another user's ``user-id`` is rejected.
* Annotations that mark a message of another site or a dead letter are removed, since only brokers may set
  them. A client could use them to have a real dead letter dropped as a duplicate after a failover.

Sources: AMQP 1.0 part 2, section 2.6.7 (flow control); part 3, section 3.4; "Anonymous Terminus for Message
Routing", version 1.0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import proton

from broker_stub.amqp import message_annotations
from broker_stub.amqp.conditions import (
    INTERNAL_ERROR,
    RESOURCE_DELETED,
    UNAUTHORIZED_ACCESS,
)
from broker_stub.amqp.message_format import (
    DEAD_LETTER_ID,
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
from broker_stub.store.errors import StoreFailedError
from haclient.engine.links import DeliveryPointer, ReceiverLink
from haclient.outcome import RELEASED, Outcome, OutcomeState
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.connections.incoming_links")

# Enough for 100,000 messages a second on a link with a round trip of 10 ms.
CREDIT = 1000
# Bytes of a name in an error, at most.
_LONGEST_NAME = 100
# Characters of an unexpected error in an outcome, at most: the error may quote bytes of the message.
_LONGEST_DESCRIPTION = 200


class Router(Protocol):
    """Finds the target of a message by its ``to``; raises ``AddressRefusedError``."""

    def __call__(self, address: str | None, /) -> Queue | Route | RequestHandler:
        """Return the target of an address."""


class LinkOwner(Protocol):
    """The connection of a link."""

    @property
    def client_id(self) -> str:
        """The container id."""

    def link_closed(self, owner: IncomingLink | AnonymousIncomingLink | RequestLink) -> None:
        """Handle a link that the client closed."""


Inspect = Callable[[bytes], Envelope]


class UserIdError(MalformedMessageError):
    """A message names another user as its sender."""

    condition = UNAUTHORIZED_ACCESS


def inspect_of(user: str | None) -> Inspect:
    """Return the inspection of messages of one authenticated user; ``None`` for a user without a name."""
    name = (user or "").encode()

    def inspect(data: bytes) -> Envelope:
        claimed = user_id(data)
        if claimed and claimed != name:
            raise UserIdError(f"its user-id is {claimed[:_LONGEST_NAME]!r}, and its sender is {user!r}")
        return inspect_new(data)

    return inspect


class RequestHandler(Protocol):
    """A node of the broker that handles whole messages, such as management."""

    def request(self, data: bytes) -> None:
        """Handle one encoded message."""


class _MessageLink:
    """The receiving end of a link on which a client sends messages.

    :param inspect: checks a message, and reads the fields that a queue needs.
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
        """Drop kept messages without waiting for a Detach, which a misbehaving client may never send."""
        self.end()

    def link_opened(self, link: ReceiverLink) -> None:
        """Ignored: the peer attached the link."""

    def end(self) -> None:
        """Drop kept messages; the client knows that they were not settled."""
        self._kept.end()

    def _change_credit(self, change: int) -> None:
        raise NotImplementedError

    def _done(self, delivery: DeliveryPointer | None) -> None:
        if delivery is not None:
            self.link.settle(delivery)


class IncomingLink(_MessageLink):
    """The receiving end of a link to one target.

    :param inspect: checks a message, and reads the fields that a queue needs.
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
        """Report the closed link to the connection; its messages stay in the queue."""
        self._owner.link_closed(self)

    def end(self) -> None:
        """Stop waiting for the target and drop kept messages; the client knows that they were not settled."""
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
            data = _without_broker_annotations(data)
            target = self._target
            if target.deleted:
                reject(link, delivery, RESOURCE_DELETED, f"{target.name} is deleted")
            else:
                target.enqueue(data, self._done, delivery, envelope, producer=self._producer)
        except Exception as error:  # noqa: BLE001 - ``refuse`` logs it
            refuse(link, delivery, error)

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
        """Report the closed link to the connection; its messages stay in their queues."""
        self._owner.link_closed(self)

    def end(self) -> None:
        """Stop waiting for targets and drop kept messages; the client knows that they were not settled."""
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
        """Put a message into its target, or keep it; ``again`` marks one that was kept before."""
        try:
            envelope = self._inspect(data)
            data = _without_broker_annotations(data)
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
        except AddressRefusedError as refused:
            reject(self.link, delivery, refused.condition, refused.description)
        except Exception as error:  # noqa: BLE001 - ``refuse`` logs it
            refuse(self.link, delivery, error)

    def _hold(self, target: Queue | Route | Intake) -> None:
        """Reduce the credit by one until the target is no longer full."""
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
    """The receiving end of a link to a node of the broker, such as management."""

    __slots__ = ("_handler", "_owner", "link")

    def __init__(self, link: ReceiverLink, owner: LinkOwner, handler: RequestHandler) -> None:
        self.link = link
        self._owner = owner
        self._handler = handler

    def start(self) -> None:
        """Give the client credit."""
        self.link.grant(CREDIT)

    def link_opened(self, link: ReceiverLink) -> None:
        """Ignored: the peer attached the link."""

    def link_closed(self, link: ReceiverLink, condition: proton.Condition | None) -> None:
        """Report the closed link to the connection."""
        self._owner.link_closed(self)

    def end(self) -> None:
        """Do nothing: this link keeps no messages."""

    def delivered(self, link: ReceiverLink, delivery: DeliveryPointer | None, data: bytes) -> None:
        """Pass a request to the node."""
        if delivery is not None:
            link.settle(delivery)
        link.grant(1)
        self._handler.request(data)


def _without_broker_annotations(data: bytes) -> bytes:
    """Return a client's message without the annotations that only brokers may set."""
    data = without_origin(data)
    return message_annotations.without(data, DEAD_LETTER_ID) if DEAD_LETTER_ID in data else data


def _is_stored(target: Queue | Route) -> bool:
    """Return whether the target's messages need room on disk."""
    return isinstance(target, Route) or not target.temporary


def refuse(link: ReceiverLink, delivery: DeliveryPointer | None, error: Exception) -> None:
    """Settle a message that its target did not accept, with the reason.

    :raises StoreFailedError: if the store failed: the client keeps the message for another primary.
    """
    match error:
        case MalformedMessageError():
            reject(link, delivery, error.condition, str(error))
        case UnroutableError():
            release(link, delivery, error)
        case StoreFailedError():
            raise error
        case _:
            logger.error("a message was rejected, for taking it has failed", exc_info=error)
            description = f"{type(error).__name__}: {error}"
            reject(link, delivery, INTERNAL_ERROR, description[:_LONGEST_DESCRIPTION])


def reject(link: ReceiverLink, delivery: DeliveryPointer | None, condition: str, description: str) -> None:
    """Reject one message; a pre-settled one is dropped and logged."""
    if delivery is None:
        logger.warning("a message sent at most once was dropped: %s: %s", condition, description)
        return
    outcome = Outcome(OutcomeState.REJECTED, condition=condition, description=description)
    link.settle(delivery, outcome)


def release(link: ReceiverLink, delivery: DeliveryPointer | None, error: UnroutableError | str) -> None:
    """Release one message; a pre-settled one is dropped, because no sender waits for it."""
    if delivery is None:
        logger.debug("a message sent at most once was dropped: %s", error)
    else:
        link.settle(delivery, RELEASED)
