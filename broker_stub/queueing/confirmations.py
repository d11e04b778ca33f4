"""Confirmed accepts: the messages of one queue that consumers accepted and asked to have confirmed.  No I/O.

Theory of operation
-------------------
A consumer that wants confirmations (rcv-settle-mode *second*) sends an outcome and waits for the settlement.
The message leaves the queue at once, and the *window* remembers its owner.  When every required store and
replica has recorded this, the guard completes the dequeue like a producer's transfer, and the consumer gets
its confirmation.

If a consumer loses its connection meanwhile, it does not know whether its accept arrived.  When it attaches
again, it asks, and the window answers (``resolve``).

Rules
-----
* The owner of an accepted message is a link, identified by its container and name, in 16 bytes.
* An answer is sent only behind a barrier: when everything in the window is complete.  So the record cannot be
  lost afterwards, and nothing is confirmed twice.
* The window is bounded.  If a message is in neither the window nor the queue, its owner is unknown, and the
  message is not delivered again.
* When a consumer attaches again, its former link ends.  Otherwise a late outcome on that link could remove a
  message that the answer promises to deliver again.
* If another site gets the dequeues, the event of a dequeue is complete before the window is written.
  Otherwise a member could know of a dequeue that is never reported to the other site.

Source: AMQP 1.0 part 2, sections 2.6.1 (link stealing) and 2.6.13 (resuming deliveries).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from broker_stub.queueing.message import Consumer, Done, Message
from haclient.outcome import OutcomeState

# Far more messages than a queue's clients have in doubt after a loss; each takes 24 bytes in the store.
DEFAULT_WINDOW = 10_000
OWNER_SIZE, SCOPE_SIZE = 16, 8
_NUMBER_SIZE = 8


def owner_of(container: str, link_name: bytes) -> bytes:
    """Return the owner id of a link of this name and container."""
    named = container.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(named + b"\x00" + link_name, digest_size=OWNER_SIZE).digest()


class Resumable(Protocol):
    """The consumer's end of a link."""

    def steal(self) -> None:
        """End the link because another one takes over."""


class ConfirmedQueue(Protocol):
    """The queue whose accepts are confirmed."""

    @property
    def identity(self) -> str:
        """The id of the queue, independent of its name."""

    def accept(self, consumer: Consumer, message: Message) -> None:
        """Remove a message that the consumer accepted."""

    def message(self, number: int) -> Message | None:
        """Return the message with a number, if it is still in the queue."""

    def record_confirmed(self, numbers: Sequence[int], owner: bytes, done: Done, token: Any) -> None:
        """Record the owner of accepted messages; call ``done(token)`` when the record is complete."""


class Confirmations:
    """The confirmed accepts of one queue."""

    __slots__ = ("_links", "_queue", "_window", "scope", "size")

    def __init__(self, queue: ConfirmedQueue, size: int = DEFAULT_WINDOW) -> None:
        self.size = size
        self.scope = hashlib.blake2b(queue.identity.encode(), digest_size=SCOPE_SIZE).digest()
        """Distinguishes the messages of this queue from those in any other queue, cluster or site."""
        self._queue = queue
        self._window: dict[int, bytes] = {}
        self._links: dict[bytes, Resumable] = {}

    def __len__(self) -> int:
        return len(self._window)

    # -- the window -----------------------------------------------------------------------------

    def pairs(self) -> list[tuple[bytes, int]]:
        """Return every owner with the number of a message, the oldest first."""
        return [(owner, number) for number, owner in self._window.items()]

    def add(self, owner: bytes, number: int) -> None:
        """Remember the owner of an accepted message; drop the oldest entry if the window is full."""
        window = self._window
        window[number] = owner
        if len(window) > self.size:
            del window[next(iter(window))]

    def clear(self) -> None:
        """Forget all entries of the window."""
        self._window.clear()

    # -- consumers ------------------------------------------------------------------------------

    def take_over(self, owner: bytes, link: Resumable) -> None:
        """Register the link of an owner that attaches, and end its former link."""
        self.steal(owner)
        self._links[owner] = link

    def steal(self, owner: bytes) -> None:
        """End the link of an owner."""
        former = self._links.pop(owner, None)
        if former is not None:
            former.steal()

    def ended(self, owner: bytes, link: Resumable) -> None:
        """Forget a link that has ended."""
        if self._links.get(owner) is link:
            del self._links[owner]

    def accept(
        self, consumer: Consumer, messages: Sequence[Message], owner: bytes, done: Done, token: Any
    ) -> None:
        """Remove accepted messages that a consumer holds, and remember their owner.

        :param done: called with ``token`` when the record is complete.
        """
        numbers = tuple(message.number for message in messages)
        for number in numbers:
            self.add(owner, number)
        for message in messages:
            self._queue.accept(consumer, message)
        self._queue.record_confirmed(numbers, owner, done, token)

    def when_recorded(self, done: Done, token: Any) -> None:
        """Call ``done(token)`` when everything that has left the queue so far is complete."""
        self._queue.record_confirmed((), b"", done, token)

    def resolve(self, tags: Iterable[bytes], owner: bytes) -> dict[bytes, int]:
        """Return the final state of those messages that this owner will not get again.

        :param tags: delivery tags: the number of a message in 8 bytes, lowest byte first, and ``scope``.
        :returns: the code of the delivery state by tag: accepted by this owner, or gone in another way.
        """
        found = {}
        for tag in tags:
            if len(tag) != _NUMBER_SIZE + SCOPE_SIZE or not tag.endswith(self.scope):
                continue
            number = int.from_bytes(tag[:_NUMBER_SIZE], "little")
            if self._window.get(number) == owner:
                found[tag] = OutcomeState.ACCEPTED.value
            elif self._queue.message(number) is None:
                found[tag] = OutcomeState.REJECTED.value
        return found
