"""What a queue deals in: messages, consumers, and the seams to whoever sends, stores or watches.

Sources: AMQP 1.0 part 3, section 3.2.1 (header) and 3.3 (distribution nodes).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from broker_stub.dedup import DEFAULT_WINDOW
from broker_stub.sections import Envelope

if TYPE_CHECKING:
    from broker_stub.queues import Queue

Done = Callable[[Any], None]


class Place(enum.Enum):
    """Where a message is in its life."""

    AVAILABLE = enum.auto()
    ACQUIRED = enum.auto()
    GONE = enum.auto()


class Message:
    """One message of one queue.  Changes only through its queue."""

    __slots__ = ("data", "delivery_count", "envelope", "expires_at", "number", "place", "refused_by")

    def __init__(self, number: int, data: bytes, envelope: Envelope, expires_at: float | None) -> None:
        self.number = number
        self.data = data
        self.envelope = envelope
        self.expires_at = expires_at
        self.delivery_count = envelope.delivery_count
        self.place = Place.AVAILABLE
        self.refused_by: set[Consumer] | None = None

    def __lt__(self, other: Message) -> bool:
        return self.number < other.number


class Sink(Protocol):
    """Where a consumer's messages go: a link, or a test."""

    def room(self) -> int:
        """How many messages it takes now."""

    def deliver(self, message: Message) -> None:
        """Send the message."""


class NoSink:
    """Where the messages of a consumer go that is gone: nowhere, for it has no room."""

    __slots__ = ()

    def room(self) -> int:
        """None."""
        return 0

    def deliver(self, message: Message) -> None:
        """Not called, for there is no room."""
        raise AssertionError(f"message {message.number} for a consumer that is gone")


NO_SINK = NoSink()


class Consumer:
    """One taker of a queue's messages; ``Queue.subscribe`` makes it.

    :param browsing: gets copies and settles nothing (distribution mode ``copy``).
    :param settles: messages are gone when they are handed over (at-most-once).
    """

    __slots__ = ("browsing", "cursor", "held", "settles", "sink", "waiting")

    def __init__(self, sink: Sink, *, browsing: bool, settles: bool) -> None:
        self.sink: Sink = sink
        self.browsing = browsing
        self.settles = settles
        self.waiting = False
        self.cursor = 0
        self.held: set[Message] = set()


class Observer(Protocol):
    """Learns what comes into and leaves a queue: a replication, a store."""

    def enqueued(self, queue: Queue, message: Message) -> None:
        """The message has its number and its place."""

    def dequeued(self, queue: Queue, message: Message) -> None:
        """The message is gone, for whatever reason."""


class Guard(Protocol):
    """Holds the completion of a message until whoever must have it, has it."""

    def hold(self, queue: Queue, number: int, done: Done, token: Any) -> None:
        """Call ``done(token)`` once message ``number`` is safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """When a queue stops giving credit to its senders.

    :param messages: high-water mark in messages.
    :param size: high-water mark in bytes.
    :param resume: below this part of both marks credit is given again.
    :param duplicates: how many duplicate-detection ids are remembered.
    """

    messages: int = 1_000_000
    size: int = 512 * 1024 * 1024
    resume: float = 0.8
    duplicates: int = DEFAULT_WINDOW


@dataclass(slots=True)
class Counters:
    """What happened to a queue's messages since it was made."""

    enqueued: int = 0
    dequeued: int = 0
    acquired: int = 0
    rejected: int = 0
    expired: int = 0
    redelivered: int = 0
    duplicates: int = 0


DEFAULT_LIMITS = QueueLimits()
