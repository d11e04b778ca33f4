"""What consumers of one queue have accepted and had confirmed.  No I/O.

Theory of operation
-------------------
A consumer that asks for confirmations (rcv-settle-mode *second*) gives a message its outcome, and waits.  The
message leaves the queue at once, and the *window* remembers who accepted it.  When all that must have that
have it, the guard completes the dequeue as it completes a producer's transfer, and the consumer is told.

A consumer whose connection is lost meanwhile does not know whether its accept arrived.  It asks when it
attaches again, and the window answers (``resolve``).

Rules
-----
* Who accepted a message is its owner: a link, by its container and its name, in 16 bytes.
* What the window says is told only behind a barrier: when everything that it has is complete.  So it cannot
  be lost again, and nothing is confirmed twice.
* The window has a bound.  Of a message that is in neither the window nor the queue it is not known who took
  it; it does not come again.
* A consumer that attaches again ends the one that it was: an outcome that is still on its way from there must
  not take away what the answer says will come again.
* Where another site gets the dequeues, the event of one is complete before the window is written: else a
  member could know of a dequeue of which the other site is never told.

Source: AMQP 1.0 part 2, sections 2.6.1 (link stealing) and 2.6.13 (resuming deliveries).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from broker_stub.queueing.message import Consumer, Done, Message
from haclient.outcome import OutcomeState

# Far more than the clients of a queue have in doubt after a loss, at 24 bytes each in the store.
DEFAULT_WINDOW = 10_000
OWNER_SIZE, SCOPE_SIZE = 16, 8
_NUMBER_SIZE = 8


def owner_of(container: str, link_name: bytes) -> bytes:
    """Who accepts over a link of that name, of that container."""
    named = container.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(named + b"\x00" + link_name, digest_size=OWNER_SIZE).digest()


class Resumable(Protocol):
    """The consumer's end of a link."""

    def steal(self) -> None:
        """End it, because another one takes over."""


class ConfirmedQueue(Protocol):
    """The queue whose accepts are confirmed."""

    @property
    def identity(self) -> str:
        """The id that the queue keeps, whatever its name."""

    def accept(self, consumer: Consumer, message: Message) -> None:
        """The consumer took responsibility: the message leaves."""

    def message(self, number: int) -> Message | None:
        """The message of that number, if it is still there."""

    def record_confirmed(self, numbers: Sequence[int], owner: bytes, done: Done, token: Any) -> None:
        """Write down who accepted messages that have left; calls ``done(token)`` when that is complete."""


class Confirmations:
    """Those of one queue."""

    __slots__ = ("_links", "_queue", "_window", "scope", "size")

    def __init__(self, queue: ConfirmedQueue, size: int = DEFAULT_WINDOW) -> None:
        self.size = size
        self.scope = hashlib.blake2b(queue.identity.encode(), digest_size=SCOPE_SIZE).digest()
        """What tells the messages of this queue from those of any other, of whatever cluster or site."""
        self._queue = queue
        self._window: dict[int, bytes] = {}
        self._links: dict[bytes, Resumable] = {}

    def __len__(self) -> int:
        return len(self._window)

    # -- the window -----------------------------------------------------------------------------

    def pairs(self) -> list[tuple[bytes, int]]:
        """Every owner with the number of a message, the oldest first."""
        return [(owner, number) for number, owner in self._window.items()]

    def add(self, owner: bytes, number: int) -> None:
        """Remember who accepted a message; the oldest leaves."""
        window = self._window
        window[number] = owner
        if len(window) > self.size:
            del window[next(iter(window))]

    def clear(self) -> None:
        """Forget all of them."""
        self._window.clear()

    # -- consumers ------------------------------------------------------------------------------

    def take_over(self, owner: bytes, link: Resumable) -> None:
        """An owner attaches; its former link ends, if there is one."""
        self.steal(owner)
        self._links[owner] = link

    def steal(self, owner: bytes) -> None:
        """End the link of an owner."""
        former = self._links.pop(owner, None)
        if former is not None:
            former.steal()

    def ended(self, owner: bytes, link: Resumable) -> None:
        """A link has ended."""
        if self._links.get(owner) is link:
            del self._links[owner]

    def accept(
        self, consumer: Consumer, messages: Sequence[Message], owner: bytes, done: Done, token: Any
    ) -> None:
        """A consumer has accepted messages that it holds.

        :param done: called with ``token`` when that is complete.
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
        """What became of messages that an owner accepted, as far as it will not get them again.

        :param tags: delivery tags: the number of a message, in 8 bytes, the lowest first, and ``scope``.
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
