"""Moves undeliverable messages to the dead-letter address of their queue.  No I/O.

Theory of operation
-------------------
A dead letter is a copy with annotations that name the original queue and the reason.  The message itself
stays in its queue, and no consumer gets it, until the copy is complete like a producer's message: every
required store and backup has it.  Then the message leaves.  If the member dies in between, the next primary
has the message again, and perhaps its copy.  The copy's duplicate-detection id consists of the queue's
identity and the message's number.  So a second copy is recognised while the dead-letter queue remembers the
first.

Rules
-----
* A message is never lost because its dead letter cannot be stored.  There may be no dead-letter queue, and
  none can be made.  No binding may fit, the queue may be full, or the intake is stopped (copies that a full
  disk refuses would block consumers' accepts).  Then the message waits in its queue and counts as one of its
  messages.  Each ``retry`` tries again.  After a restart or a failover the message is available again.
* A dead letter has no time to live, no delay and no failed deliveries.  Its bare message is unchanged, so its
  ``absolute-expiry-time`` still applies.
* Without a dead-letter address, the dispatcher removes a message that was rejected or has reached the limit
  of deliveries, as in ActiveMQ Artemis and RabbitMQ.  The queue drops expired messages.

Source: the annotations ``x-opt-ORIG-...`` are from ActiveMQ Artemis, "Undelivered messages".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_stub.amqp import message_annotations
from broker_stub.amqp.message_format import (
    DEAD_LETTER_ID,
    DELIVERY_DELAY,
    DELIVERY_TIME,
    MalformedMessageError,
    inspect,
)
from broker_stub.amqp.message_header import with_header
from broker_stub.queueing.annotations import MOST_BYTES
from broker_stub.queueing.exchanges import ExchangeType, Route, UnroutableError
from broker_stub.queueing.intake import Intake
from broker_stub.queueing.message import Call, DeadLetterReason, Message, MessageState
from haclient.printable.log import get_logger

if TYPE_CHECKING:
    from broker_stub.queueing.queue import Queue

logger = get_logger("broker_stub.queueing.dead_letters")

_ADDRESS, _QUEUE = (
    message_annotations.symbol(b"x-opt-ORIG-ADDRESS"),
    message_annotations.symbol(b"x-opt-ORIG-QUEUE"),
)
_REASON = message_annotations.symbol(b"x-opt-dead-letter-reason")
_DESCRIPTION = message_annotations.symbol(b"x-opt-dead-letter-description")
_COUNT = message_annotations.symbol(b"x-opt-delivery-count")
_ID = message_annotations.symbol(DEAD_LETTER_ID)
# The delay ended before the message was delivered, and an older description may not apply this time.
_REMOVED = (
    message_annotations.symbol(DELIVERY_TIME),
    message_annotations.symbol(DELIVERY_DELAY),
    _DESCRIPTION,
)
# Characters of a description: together with two names of any length, within ``wire.MOST_OVERHEAD``.
_MAX_DESCRIPTION = 256
# Messages per retry: a few milliseconds of work.
_MAX_PER_RETRY = 1000


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    queue: Queue
    message: Message
    reason: DeadLetterReason
    description: str
    gone: Call

    @property
    def is_there(self) -> bool:
        """True if the message is still to be moved: its queue exists and still has it."""
        return (
            not self.queue.deleted
            and self.message.state is MessageState.LEAVING
            and self.queue.message(self.message.number) is self.message
        )


class DeadLetters:
    """The dead letters of one member.

    :param resolve: returns the node of an address, and makes it if allowed; ``None`` if there is none.
    :param intake: while it is stopped, nothing is copied.
    """

    def __init__(self, resolve: Callable[[str, Queue], Queue | Route | None], intake: Intake) -> None:
        self._resolve = resolve
        self._intake = intake
        self._waiting: deque[_DeadLetter] = deque()
        self._reported: set[str] = set()
        """Addresses that could take nothing and were logged already."""

    def __len__(self) -> int:
        """The number of messages that wait for a dead-letter queue."""
        return len(self._waiting)

    def move(
        self, queue: Queue, message: Message, reason: DeadLetterReason, description: str, gone: Call
    ) -> None:
        """Move a message that no consumer holds; its queue has a dead-letter address.

        If that is not possible now, the message waits for ``retry``.

        :param gone: called when the message has moved; not if it leaves otherwise, as with a deleted queue.
        """
        message.state = MessageState.LEAVING
        self._move(_DeadLetter(queue, message, reason, description, gone))

    def retry(self) -> None:
        """Try to move the waiting messages again, at most ``_MAX_PER_RETRY`` at a time."""
        for _ in range(min(len(self._waiting), _MAX_PER_RETRY)):
            letter = self._waiting.popleft()
            if letter.is_there:
                self._move(letter)
        if not self._waiting:
            self._reported.clear()

    def _move(self, letter: _DeadLetter) -> None:
        why = self._try(letter)
        if why is None:
            return
        self._waiting.append(letter)
        address = letter.queue.options.dead_letter_address
        if address not in self._reported:
            self._reported.add(address)
            logger.warning("dead letters of %s wait for %s: %s", letter.queue.name, address, why)

    def _try(self, letter: _DeadLetter) -> str | None:
        """Enqueue the copy; return the reason if that is not possible now."""
        if self._intake.stopped:
            return "nothing more can be stored"
        queue, message = letter.queue, letter.message
        address = queue.options.dead_letter_address
        target = self._resolve(address, queue)
        if target is None:
            return "there is no such queue or exchange"
        if isinstance(target, Route) and target.exchange.type is ExchangeType.REPLICATION:
            return "it applies site events"
        if target is queue:
            return "it is the queue itself"
        if target.full_itself:
            return "it is full"
        try:
            data = dead_letter(queue, message, letter.reason, letter.description)
            target.enqueue(data, _copy_complete, letter, inspect(data))
        except UnroutableError as error:
            return str(error)
        except Exception as error:
            logger.exception("message %d of %s cannot be a dead letter", message.number, queue.name)
            return f"{type(error).__name__}: {error}"
        return None


def _copy_complete(letter: _DeadLetter) -> None:
    """Remove the message itself: its copy is complete."""
    if letter.is_there:
        letter.queue.drop(letter.message)
        letter.queue.counters.dead_lettered += 1
        letter.gone()


def dead_letter(queue: Queue, message: Message, reason: DeadLetterReason, description: str = "") -> bytes:
    """Return the copy of a message for a dead-letter queue."""
    data = with_header(message.data, delivery_count=0, keep_ttl=False)
    parts = message_annotations.split(data)
    name = message_annotations.string(queue.name)
    changes = {
        _ADDRESS: name,
        _QUEUE: name,
        _REASON: message_annotations.string(reason),
        _COUNT: message_annotations.uint(message.delivery_count),
        _ID: message_annotations.string(f"{queue.identity}:{message.number}"),
    }
    if description:
        changes[_DESCRIPTION] = message_annotations.string(description[:_MAX_DESCRIPTION])
    try:
        section = message_annotations.changed(
            _with_added(parts.message_annotations, message), changes, _REMOVED
        )
    except MalformedMessageError:
        # The annotations were not checked on arrival.  Replace them, so that the message can be moved.
        section = message_annotations.section_of(changes)
    # Delivery annotations are for one hop: AMQP 1.0 part 3, section 3.2.2.
    return parts.header + section + parts.rest


def _with_added(section: bytes, message: Message) -> bytes:
    """Return the annotations of a message with its consumers' added.

    A message may become a dead letter again and again.  So if it is one already, annotations that would make
    them exceed ``MOST_BYTES`` are left out.
    """
    if not message.annotations:
        return section
    whole = message_annotations.changed(section, message_annotations.read_map(message.annotations))
    return whole if len(whole) <= MOST_BYTES or _ID not in message_annotations.read(section) else section
