"""Links on which clients receive from a queue.

Rules
-----
* A message leaves unchanged; only a redelivery and a message with a TTL get a new header.
* A client that does not read delays its own connection only: ``OutgoingConnection`` takes no messages
  while a burst waits inside proton, and resumes the links afterwards.
* A link that is closed in order returns its messages unchanged; one that died returns them with the delivery
  count increased.

Sources: AMQP 1.0 part 2, section 2.6.7 (drain); part 3, sections 3.2.1 and 3.4.
"""

from __future__ import annotations

import logging
from typing import Protocol

import proton

from broker_stub.amqp.conditions import LINK_STOLEN
from broker_stub.amqp.message_format import with_header
from broker_stub.queueing.message import Consumer, Message
from broker_stub.queueing.queue import Queue
from haclient.engine.links import SenderLink
from haclient.outcome import ACCEPTED, Outcome, OutcomeState

logger = logging.getLogger("broker_stub.connections.outgoing_links")

_MAX_UINT = 0xFFFFFFFF


class OutgoingConnection(Protocol):
    """The connection that carries the messages."""

    congested: bool

    def sent(self, size: int) -> None:
        """Count what was given to proton."""

    def link_failed(self) -> None:
        """Drop the connection after an error, which must not affect other connections."""

    def link_closed(self, owner: OutgoingLink) -> None:
        """The client closed the link."""


class OutgoingLink:
    """The sending end of a link from one queue."""

    __slots__ = ("_connection", "_consumer", "_queue", "_settles", "link")

    def __init__(
        self, link: SenderLink, queue: Queue, connection: OutgoingConnection, *, browsing: bool
    ) -> None:
        self.link = link
        self._queue = queue
        self._connection = connection
        self._settles: bool = link.endpoint.remote_snd_settle_mode == proton.Link.SND_SETTLED
        self._consumer: Consumer = queue.subscribe(self, browsing=browsing, settles=self._settles)

    # -- for the queue --------------------------------------------------------------------------

    def capacity(self) -> int:
        """How many messages the link accepts now."""
        return 0 if self._connection.congested else self.link.credit

    def deliver(self, message: Message) -> None:
        """Send the message."""
        try:
            data = message.data
            if message.delivery_count or message.expires_at is not None:
                data = self._with_header(message)
            self.link.send(data, message, settled=self._settles)
            self._connection.sent(len(data))
        except Exception:
            # This runs while another connection sends a message; that one is not at fault.
            logger.exception("delivery failed; its connection is ended")
            self._connection.link_failed()

    def _with_header(self, message: Message) -> bytes:
        ttl_ms = None
        if message.envelope.ttl_ms is not None:
            ttl_ms = min(int((self._queue.remaining(message) or 0) * 1000), _MAX_UINT)
        return with_header(message.data, delivery_count=message.delivery_count, ttl_ms=ttl_ms)

    # -- for the engine -------------------------------------------------------------------------

    def link_opened(self, link: SenderLink) -> None:
        """The peer attached first; nothing is left to do."""

    def credit_given(self, link: SenderLink) -> None:
        """Deliver more messages, or answer a drain."""
        self._queue.ready(self._consumer)
        if link.drain and link.credit > 0 and self._queue.idle_for(self._consumer):
            link.drained()

    def settled(self, link: SenderLink, token: Message, outcome: Outcome | None) -> None:
        """Apply the outcome of a message to the queue."""
        queue, consumer = self._queue, self._consumer
        if outcome is ACCEPTED:
            queue.accept(consumer, token)
        elif outcome is None or outcome.state is OutcomeState.RELEASED:
            queue.release(consumer, token)
        elif outcome.state is OutcomeState.REJECTED:
            queue.reject(consumer, token)
        else:
            queue.modify(
                consumer,
                token,
                delivery_failed=outcome.delivery_failed,
                undeliverable_here=outcome.undeliverable_here,
            )

    def link_closed(self, link: SenderLink, condition: proton.Condition | None) -> None:
        """The client closed the link."""
        self._connection.link_closed(self)
        self.end(died=False)

    # -- for the connection ---------------------------------------------------------------------

    def resume(self) -> None:
        """Deliver again after a congestion."""
        self.credit_given(self.link)

    @property
    def closed(self) -> bool:
        """Whether the link has ended."""
        return self.link.dead

    def steal(self) -> None:
        """Close the link because another receiver takes over; return the unsettled messages."""
        self.link.close(proton.Condition(LINK_STOLEN, "another receiver has taken over"))
        self._connection.link_closed(self)
        self.end(died=True)

    def end(self, *, died: bool) -> None:
        """Return the messages that the client has not settled."""
        self._queue.unsubscribe(self._consumer, died=died)
