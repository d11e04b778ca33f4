"""The parts of a queue: messages, consumers, and the interfaces to links and stores.

Sources: AMQP 1.0 part 3, section 3.2.1 (header) and 3.3 (distribution nodes).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from broker_stub.amqp.message_format import Envelope

Done = Callable[[Any], None]
Call = Callable[[], None]


def nothing() -> None:
    """Do nothing."""


Selects = Callable[["Message"], bool]
"""Return True if a consumer takes a message; called once for each message."""


class MessageState(enum.Enum):
    """The state of a message in its queue; ``LEAVING`` while it is copied to a dead-letter queue."""

    HELD = enum.auto()
    DELAYED = enum.auto()
    AVAILABLE = enum.auto()
    ACQUIRED = enum.auto()
    LEAVING = enum.auto()
    REMOVED = enum.auto()


class DeadLetterReason(enum.StrEnum):
    """The reason why a message is a dead letter: the values of ``x-opt-dead-letter-reason``."""

    REJECTED = "rejected"
    MAX_DELIVERY_COUNT = "max-delivery-count"


class Message:
    """A message of one queue.  Changed only by its queue and by the code that applies a primary's changes.

    :ivar annotations: the annotations of consumers (see ``annotations``): an encoded map, or empty.
    :ivar due_at: when it may be delivered, by the queue's clock; ``None`` for at once.
    :ivar expires_at: when it expires, by the queue's clock.
    :ivar expires_at_ms: the end of its time to live, in milliseconds since the epoch by this member's wall
        clock, for its store.
    :ivar failover_delivery_count: its delivery count after a failover: one more for every consumer that
        acquired it, including the present one and any that released it.
    :ivar producer: the container id of its sender; ``None`` after a restart or failover.
    :ivar pending_acks: how many stores and replicas must still have the message before it is complete.
    :ivar on_complete: the callbacks for completion, such as settling the transfer (see ``durability.guard``).
    """

    __slots__ = (
        "annotations",
        "data",
        "delivery_count",
        "due_at",
        "envelope",
        "expires_at",
        "expires_at_ms",
        "failover_delivery_count",
        "number",
        "on_complete",
        "pending_acks",
        "producer",
        "refused_by",
        "state",
    )

    def __init__(self, number: int, data: bytes, envelope: Envelope) -> None:
        self.number = number
        self.data = data
        self.envelope = envelope
        self.annotations = b""
        self.due_at: float | None = None
        self.expires_at: float | None = None
        self.expires_at_ms: int | None = None
        self.delivery_count = envelope.delivery_count
        self.failover_delivery_count = envelope.delivery_count
        self.state = MessageState.AVAILABLE
        self.refused_by: set[Consumer] | None = None
        self.pending_acks = 0
        self.producer: str | None = None
        self.on_complete: list[tuple[Done, Any]] | None = None

    def set_count(self, count: int) -> None:
        """Set the delivery count of a message that was never delivered by this member."""
        self.delivery_count = self.failover_delivery_count = count

    def __lt__(self, other: Message) -> bool:
        return self.number < other.number


class Replicate(enum.StrEnum):
    """The part of a queue that backups have: the values of ``x-qpid-replicate``."""

    NONE = "none"
    CONFIGURATION = "configuration"
    ALL = "all"


class Sink(Protocol):
    """The destination of a consumer's messages: a link, or a test."""

    def capacity(self) -> int:
        """Return how many messages it takes now."""

    def deliver(self, message: Message) -> None:
        """Send the message."""

    def queue_deleted(self) -> None:
        """Handle the end of the queue; outcomes have no effect any more."""

    def idle(self) -> None:
        """Handle the end of a search over several iterations of the event loop: nothing more matches now."""


class NoSink:
    """The sink of a consumer that has ended: it has no capacity."""

    __slots__ = ()

    def capacity(self) -> int:
        """Return 0."""
        return 0

    def deliver(self, message: Message) -> None:
        """Never called, because there is no capacity."""
        raise AssertionError(f"message {message.number} for a consumer that is gone")

    def queue_deleted(self) -> None:
        """Do nothing."""

    def idle(self) -> None:
        """Do nothing."""


NO_SINK = NoSink()


class Consumer:
    """A consumer of a queue; made by ``Queue.subscribe``.

    :param browsing: gets copies and settles nothing (distribution mode ``copy``).
    :param settles: messages are removed when they are delivered (at-most-once).
    :param selects: returns True for messages that it takes; ``None`` for all.
    :ivar cursor: the number of the last message that a browse or selective consumer passed.
    :ivar ahead: see ``browse``; ``returned``: see ``selective``; ``candidates``: see ``deferred``.
    """

    __slots__ = (
        "ahead",
        "browsing",
        "candidates",
        "cursor",
        "held",
        "returned",
        "selects",
        "settles",
        "sink",
        "waiting",
    )

    def __init__(self, sink: Sink, *, browsing: bool, settles: bool, selects: Selects | None = None) -> None:
        self.selects = selects
        self.returned: list[tuple[int, int, Message]] = []
        self.candidates: list[tuple[int, int]] = []
        self.sink: Sink = sink
        self.browsing = browsing
        self.settles = settles
        self.waiting = False
        self.cursor = 0
        self.ahead: list[int] = []
        self.held: set[Message] = set()


class Guard(Protocol):
    """Completes a message when every required store and replica has it.

    :ivar open: True if completions are reported at once.
    """

    open: bool

    def when_complete(self, message: Message, done: Done, token: Any) -> None:
        """Call ``done(token)`` once the message is complete."""

    def acknowledged(self, message: Message) -> None:
        """Count one of the stores and replicas that the message waits for."""


@dataclass(slots=True)
class Counters:
    """The number of messages of a queue by event, since the queue was made.

    :param dead_lettered: moved to the dead-letter address.
    :param dropped: removed at the limit of deliveries, without a dead-letter address.
    """

    enqueued: int = 0
    dequeued: int = 0
    acquired: int = 0
    rejected: int = 0
    expired: int = 0
    redelivered: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    dropped: int = 0


SEQUENCE_BITS = 40
"""A message's number is its primary's generation, shifted by these bits, plus a sequence.

There is room for eight million generations and a trillion messages in each, within SQLite's 63 bits.
"""

SAFE = Message(0, b"", Envelope())
"""Stands for a message that is complete."""
