"""Links on which clients receive from a queue.

Rules
-----
* A message is sent unchanged, with two exceptions. Redeliveries and messages with a TTL get a new header.
  Annotations that consumers have added are merged.
* A client that does not read delays only its own connection. ``OutgoingConnection`` accepts no messages while
  a burst waits inside proton, and resumes the links afterwards.
* If a link closes normally, its messages return unchanged; if it died, their delivery count is increased.
* A message larger than the client accepts stays in the queue, and the link is closed.
* In rcv-settle-mode *second* an outcome is settled when it has taken effect: for accepted and rejected, when
  the dequeue is complete (``queueing.confirmations``). Outcomes received before the link ends still take
  effect.
* When its queue is deleted, the link is closed.

Sources: AMQP 1.0 part 2, section 2.6.7 (drain); part 3, sections 3.2.1 and 3.4.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Sequence
from typing import Protocol

import proton

from broker_stub.amqp.conditions import (
    LINK_MESSAGE_SIZE_EXCEEDED,
    LINK_STOLEN,
    NOT_IMPLEMENTED,
    RESOURCE_DELETED,
)
from broker_stub.amqp.message_header import with_header
from broker_stub.queueing.annotations import annotated
from broker_stub.queueing.message import Consumer, Message, Selects
from broker_stub.queueing.queue import Queue
from haclient.engine.links import DeliveryPointer, SenderLink
from haclient.outcome import ACCEPTED, Outcome, OutcomeState
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.connections.outgoing_links")

_MAX_UINT = 0xFFFFFFFF
# proton counts credit as a signed number. A value a little below zero usually means that a client reduced its
# credit after the messages were sent. On a link that has sent nothing, it is an overflow.
_MAX_CREDIT, _OVERFLOW = 2**31 - 1, -(2**30)


class OutgoingConnection(Protocol):
    """The connection that carries the messages."""

    congested: bool

    def sent(self, size: int) -> None:
        """Count bytes given to proton."""

    def link_failed(self) -> None:
        """Drop this connection after an error, so that other connections are unaffected."""

    def link_closed(self, owner: OutgoingLink) -> None:
        """Handle a link that the client closed."""


class OutgoingLink:
    """The sending end of a link from one queue.

    :param owner: owner of accepts over this link, if it asks for confirmations; see
        ``queueing.confirmations``.
    """

    __slots__ = (
        "_accepted",
        "_connection",
        "_consumer",
        "_drained",
        "_max_size",
        "_owner",
        "_queue",
        "_settles",
        "link",
    )

    def __init__(
        self,
        link: SenderLink,
        queue: Queue,
        connection: OutgoingConnection,
        *,
        browsing: bool,
        selects: Selects | None = None,
        owner: bytes | None = None,
    ) -> None:
        self.link = link
        self._queue = queue
        self._connection = connection
        self._drained = False
        self._settles: bool = link.endpoint.remote_snd_settle_mode == proton.Link.SND_SETTLED
        self._max_size: int = link.endpoint.remote_max_message_size
        # A message must not leave the queue before it is known to be small enough.
        settles = self._settles and not self._max_size
        self._consumer: Consumer = queue.subscribe(self, browsing=browsing, settles=settles, selects=selects)
        self._owner = owner
        self._accepted: list[tuple[DeliveryPointer, Message]] = []
        """Messages accepted in this iteration of the event loop, not yet confirmed."""
        if owner is not None:
            link.confirm_outcomes()
            link.set_tag_scope(queue.confirmations.scope)
            queue.confirmations.take_over(owner, self)

    # -- for the queue --------------------------------------------------------------------------

    def capacity(self) -> int:
        """Return the number of messages that the link accepts now."""
        return 0 if self._connection.congested else self.link.credit

    def deliver(self, message: Message) -> None:
        """Send a message."""
        try:
            data = message.data
            if message.annotations:
                data = annotated(data, message.annotations)
            if message.delivery_count or message.expires_at is not None:
                data = self._with_header(message, data)
            if 0 < self._max_size < len(data):
                self._refuse(len(data))
                return
            number = None if self._owner is None else message.number
            self.link.send(data, message, settled=self._settles, number=number)
            self._connection.sent(len(data))
            if self._settles:
                self._queue.accept(self._consumer, message)
        except Exception:
            # This runs while another connection enqueues a message; that connection is not at fault.
            logger.exception("delivery failed; its connection is ended")
            self._connection.link_failed()

    def idle(self) -> None:
        """Continue, or answer a drain, after the queue has offered all messages."""
        if not self.link.dead:
            self.credit_given(self.link)

    def queue_deleted(self) -> None:
        """Close the link: its queue was deleted."""
        self._close(RESOURCE_DELETED, f"{self._queue.name} is deleted", died=False)

    def _with_header(self, message: Message, data: bytes) -> bytes:
        ttl_ms = None
        if message.envelope.ttl_ms is not None:
            ttl_ms = min(int((self._queue.expiry.remaining(message) or 0) * 1000), _MAX_UINT)
        return with_header(data, delivery_count=message.delivery_count, ttl_ms=ttl_ms)

    # -- for the engine -------------------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """Ignored: the peer attached the link."""

    def credit_given(self, link: SenderLink) -> None:
        """Deliver more messages, or answer a drain."""
        if link.credit < (_OVERFLOW if link.sent or self._drained else 0):
            self._close(NOT_IMPLEMENTED, f"a link-credit above {_MAX_CREDIT} is not supported", died=False)
            return
        self._queue.ready(self._consumer)
        if link.drain and link.credit > 0 and self._queue.idle_for(self._consumer):
            self._drained = True
            link.drained()

    def settled(self, link: SenderLink, token: Message, outcome: Outcome | None) -> None:
        """Apply the outcome of a message to the queue."""
        queue, consumer = self._queue, self._consumer
        if outcome is ACCEPTED:
            queue.accept(consumer, token)
        elif outcome is None or outcome.state is OutcomeState.RELEASED:
            queue.release(consumer, token)
        elif outcome.state is OutcomeState.REJECTED:
            queue.reject(consumer, token, outcome.description or outcome.condition or "")
        else:
            queue.modify(
                consumer,
                token,
                delivery_failed=outcome.delivery_failed,
                undeliverable_here=outcome.undeliverable_here,
                annotations=outcome.annotations,
            )

    def outcome_given(
        self, link: SenderLink, delivery: DeliveryPointer, token: Message, outcome: Outcome
    ) -> None:
        """Apply the outcome of a message to the queue, and confirm it when the effect is complete."""
        if outcome is ACCEPTED:
            if not self._accepted:
                asyncio.get_running_loop().call_soon(self._take_accepted)
            self._accepted.append((delivery, token))
        elif outcome.state is OutcomeState.REJECTED:
            # A dead letter has left when its copy is complete; before that, a failover restores it.
            gone = functools.partial(
                self._queue.confirmations.when_recorded, self._confirm_rejected, delivery
            )
            why = outcome.description or outcome.condition or ""
            self._queue.reject(self._consumer, token, why, gone)
        else:
            # Confirm before the message is available again: this link may get it next, with the same tag.
            link.confirm(delivery, outcome.state, at_once=True)
            self.settled(link, token, outcome)

    def _take_accepted(self) -> None:
        accepted, self._accepted = self._accepted, []
        consumer, owner = self._consumer, self._owner
        taken = [(delivery, message) for delivery, message in accepted if message in consumer.held]
        if taken and owner is not None:
            deliveries, messages = zip(*taken, strict=True)
            self._queue.confirmations.accept(consumer, messages, owner, self._confirm_accepted, deliveries)
        state = OutcomeState.ACCEPTED if consumer.browsing else OutcomeState.RELEASED
        for delivery, message in accepted if len(taken) < len(accepted) else ():
            if (delivery, message) not in taken:
                self.link.confirm(delivery, state)

    def _confirm_accepted(self, deliveries: Sequence[DeliveryPointer]) -> None:
        for delivery in deliveries:
            self.link.confirm(delivery, OutcomeState.ACCEPTED)

    def _confirm_rejected(self, delivery: DeliveryPointer) -> None:
        self.link.confirm(delivery, OutcomeState.REJECTED)

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """End the link that the client closed."""
        self.end(died=False)
        self._connection.link_closed(self)

    def resolve(self, tags: Iterable[bytes]) -> dict[bytes, int]:
        """Return the outcomes of the client's unsettled deliveries; see ``Confirmations.resolve``."""
        return {} if self._owner is None else self._queue.confirmations.resolve(tags, self._owner)

    # -- for the connection ---------------------------------------------------------------------

    def resume(self) -> None:
        """Deliver again after congestion."""
        self.credit_given(self.link)

    @property
    def closed(self) -> bool:
        """Return whether the link has ended."""
        return self.link.dead

    def steal(self) -> None:
        """Close the link because another receiver takes over; return the unsettled messages."""
        self._close(LINK_STOLEN, "another receiver has taken over", died=True)

    def _refuse(self, size: int) -> None:
        why = f"a message of {size} bytes is next, and the link's max-message-size is {self._max_size}"
        self._close(LINK_MESSAGE_SIZE_EXCEEDED, why, died=False)

    def _close(self, condition: str, why: str, *, died: bool) -> None:
        self.link.close(proton.Condition(condition, why))
        self.end(died=died)
        self._connection.link_closed(self)

    def end(self, *, died: bool) -> None:
        """Return the messages that the client has not settled."""
        if self._accepted:
            self._take_accepted()
        if self._owner is not None:
            self._queue.confirmations.ended(self._owner, self)
        self._queue.unsubscribe(self._consumer, died=died)
