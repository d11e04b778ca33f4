"""What a queue works with: messages, consumers, and the interfaces to those who send and complete.

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
    """Nobody waits for it."""


Selects = Callable[["Message"], bool]
"""Whether a consumer takes a message; it is asked once about each."""


class MessageState(enum.Enum):
    """The state of a message in its queue; one that is leaving is copied to a dead-letter queue."""

    HELD = enum.auto()
    DELAYED = enum.auto()
    AVAILABLE = enum.auto()
    ACQUIRED = enum.auto()
    LEAVING = enum.auto()
    REMOVED = enum.auto()


class DeadLetterReason(enum.StrEnum):
    """Why a message is a dead letter: the values of ``x-opt-dead-letter-reason``."""

    REJECTED = "rejected"
    MAX_DELIVERY_COUNT = "max-delivery-count"


class Message:
    """One message of one queue.  Changes only through its queue, or a backup's copy of it.

    :ivar annotations: what consumers have added (see ``annotations``): an encoded map; empty for nothing.
    :ivar due_at: when it may be delivered, by the queue's clock; ``None`` for at once.
    :ivar expires_at: by the queue's clock; ``expires_at_ms``: where its time to live ends, in milliseconds
        since the epoch by this member's wall clock, for its store.
    :ivar failover_delivery_count: the delivery count that it has after a failover: one more for every
        consumer that acquired it, also for one that has it now or released it.
    :ivar producer: the container id of who sent it here; ``None`` after a restart or failover.
    :ivar pending_acks: how many stores and replicas must still have the message before its producer's
        transfer is settled; ``on_complete``: the callbacks that do so (see ``durability.guard``).
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
        """Take a delivery count, for a message that no consumer here was ever given."""
        self.delivery_count = self.failover_delivery_count = count

    def __lt__(self, other: Message) -> bool:
        return self.number < other.number


class Replicate(enum.StrEnum):
    """What of a queue the backups have: the values of ``x-qpid-replicate``."""

    NONE = "none"
    CONFIGURATION = "configuration"
    ALL = "all"


class Sink(Protocol):
    """Where a consumer's messages go: a link, or a test."""

    def capacity(self) -> int:
        """How many messages it takes now."""

    def deliver(self, message: Message) -> None:
        """Send the message."""

    def queue_deleted(self) -> None:
        """The queue is gone: nothing more comes, and outcomes change nothing."""

    def idle(self) -> None:
        """After a search that took several iterations of the loop there is nothing more for it now."""


class NoSink:
    """Where the messages of a consumer go that is gone: nowhere, for it has no room."""

    __slots__ = ()

    def capacity(self) -> int:
        """None."""
        return 0

    def deliver(self, message: Message) -> None:
        """Not called, for there is no room."""
        raise AssertionError(f"message {message.number} for a consumer that is gone")

    def queue_deleted(self) -> None:
        """It is gone already."""

    def idle(self) -> None:
        """Nobody waits for anything."""


NO_SINK = NoSink()


class Consumer:
    """One taker of a queue's messages; ``Queue.subscribe`` makes it.

    :param browsing: gets copies and settles nothing (distribution mode ``copy``).
    :param settles: messages are removed when they are delivered (at-most-once).
    :param selects: which messages it takes; ``None`` for any.
    :ivar cursor: the number that a browse or selective consumer passed last; ``ahead``: see ``browse``;
        ``returned``: see ``selective``; ``candidates``: see ``deferred``.
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
    """Completes a message when every store and replica that must have it has it.

    :ivar open: whether what is complete is reported at once.
    """

    open: bool

    def when_complete(self, message: Message, done: Done, token: Any) -> None:
        """Call ``done(token)`` once the message is safe."""

    def acknowledged(self, message: Message) -> None:
        """A store or replica that the message waits for has it."""


@dataclass(slots=True)
class Counters:
    """What happened to a queue's messages since it was made.

    :param dead_lettered: moved to the dead-letter address.
    :param dropped: removed at the limit of deliveries, where there is no dead-letter address.
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
"""A message's number is its primary's generation above so many bits of sequence: room for eight
million generations and a trillion messages in each, within SQLite's 63 bits."""

SAFE = Message(0, b"", Envelope())
"""Stands for a message that is complete."""
