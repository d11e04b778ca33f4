"""The interfaces of those who are told what enters and leaves a queue, or take its messages over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from broker_stub.queueing.message import Call, DeadLetterReason, Message

if TYPE_CHECKING:
    from broker_stub.queueing.queue import Queue


class Observer(Protocol):
    """Observes what enters and leaves a queue: a replication, a store."""

    def enqueued(self, queue: Queue, message: Message) -> None:
        """The message has its number and its place."""

    def dequeued(self, queue: Queue, message: Message) -> None:
        """The message is gone, for whatever reason."""

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """The message is not in the queue after all, for ``enqueued`` raised here or elsewhere.

        A second copy of it is a first one then.
        """

    def acquired(self, queue: Queue, message: Message) -> None:
        """A consumer was given the message: another delivery will be a redelivery."""

    def annotated(self, queue: Queue, message: Message) -> None:
        """A consumer has added annotations to the message, which nobody waits for."""

    def progress_changed(self, queue: Queue, completion: Message) -> None:
        """The queue's site progress has changed; ``completion`` counts acknowledgements as a message does."""

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        """Messages that ``dequeued`` has reported were accepted, and wait to be confirmed.

        :param numbers: of the messages; none for a barrier, to complete with all that has left before.
        :param owner: see ``confirmations``.
        """


class SiteEventListener(Protocol):
    """Makes site events of a queue's changes, after every observer."""

    @property
    def full(self) -> bool:
        """True without room for more events: producers wait then."""

    def when_not_full(self, call: Call) -> None:
        """Call once when there may be room again."""

    def stop_waiting(self, call: Call) -> None:
        """Do not call it any more."""

    def enqueued(self, queue: Queue, message: Message) -> None:
        """A producer's message has its number and its place."""

    def dequeued(self, queue: Queue, message: Message) -> None:
        """The message is gone, for whatever reason."""

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """The message is not in the queue after all, and neither is its event."""

    def record(self) -> Message:
        """A message that completes when every event so far is complete."""


class Burial(Protocol):
    """Moves what cannot be delivered to the dead-letter address of its queue (see ``dead_letters``)."""

    def move(
        self, queue: Queue, message: Message, reason: DeadLetterReason, description: str, gone: Call
    ) -> None:
        """Move a message that no consumer holds.

        :param gone: called when it has left its queue.
        """
