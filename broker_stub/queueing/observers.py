"""Interfaces of objects that observe a queue or move its dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from broker_stub.queueing.message import Call, DeadLetterReason, Message

if TYPE_CHECKING:
    from broker_stub.queueing.queue import Queue


class Observer(Protocol):
    """Observes the messages that enter and leave a queue: a store, or a replication."""

    def enqueued(self, queue: Queue, message: Message) -> None:
        """Handle a new message, which has its number and position."""

    def dequeued(self, queue: Queue, message: Message) -> None:
        """Handle a message that has left the queue, for whatever reason."""

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """Undo ``enqueued``, because it raised here or elsewhere; the next copy is not a duplicate."""

    def acquired(self, queue: Queue, message: Message) -> None:
        """Handle the delivery of a message to a consumer: another delivery will be a redelivery."""

    def annotated(self, queue: Queue, message: Message) -> None:
        """Handle annotations that a consumer added; no caller waits for them to be stored."""

    def progress_changed(self, queue: Queue, completion: Message) -> None:
        """Handle new site progress; ``completion`` counts acknowledgements as a message does."""

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        """Record the owner of accepted messages that ``dequeued`` has reported.

        :param numbers: the messages' numbers; empty for a barrier, which completes with everything that left
            before.
        :param owner: see ``confirmations``.
        """


class SiteEventListener(Protocol):
    """Makes site events of a queue's changes; called after every observer."""

    @property
    def full(self) -> bool:
        """True if producers must wait until there is capacity for more events."""

    def when_not_full(self, call: Call) -> None:
        """Call once when it may have capacity again."""

    def stop_waiting(self, call: Call) -> None:
        """Cancel a callback."""

    def enqueued(self, queue: Queue, message: Message) -> None:
        """Handle a producer's message, which has its number and position."""

    def dequeued(self, queue: Queue, message: Message) -> None:
        """Handle a message that has left the queue, for whatever reason."""

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """Undo ``enqueued``, and remove the event."""

    def record(self) -> Message:
        """Return a message that completes when every event so far is complete."""


class Burial(Protocol):
    """Moves undeliverable messages to the dead-letter address of their queue (see ``dead_letters``)."""

    def move(
        self, queue: Queue, message: Message, reason: DeadLetterReason, description: str, gone: Call
    ) -> None:
        """Move a message that no consumer holds.

        :param gone: called when it has left its queue.
        """
