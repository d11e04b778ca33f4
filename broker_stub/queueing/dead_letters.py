"""Moves messages that cannot be delivered to the dead-letter address of their queue.  No I/O.

Theory of operation
-------------------
A dead letter is a copy, with annotations that say where it was and why it is there.  The message itself
stays in its queue, where no consumer gets it, until the copy is complete as a producer's message is: in the
stores and on the backups that must have it.  Then it leaves.  If the member dies in between, the next primary
has the message again, and perhaps its copy; the copy's duplicate-detection id is made of the queue's identity
and the message's number, so a second copy is recognised as long as the dead-letter queue remembers the first.

Rules
-----
* A message is never lost for want of a dead-letter queue: while there is none, none can be made, no binding
  fits, it is full, or nothing more can be stored (a copy that a full disk refuses would hold up those who
  accept), the message waits in its queue, and counts as one of its messages.  It is tried again
  at each ``retry``.  After a restart or a failover it is available again.
* A dead letter has no time to live, no delay and no failed deliveries; its bare message is unchanged, so an
  ``absolute-expiry-time`` still holds.
* Without a dead-letter address a rejected message is removed, and so is one that has reached the limit of
  deliveries: as in ActiveMQ Artemis and RabbitMQ.

Source: the annotations ``x-opt-ORIG-...`` are those of ActiveMQ Artemis, "Undelivered messages".
"""

from __future__ import annotations

import logging
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

if TYPE_CHECKING:
    from broker_stub.queueing.queue import Queue

logger = logging.getLogger("broker_stub.queueing.dead_letters")

_ADDRESS, _QUEUE = (
    message_annotations.symbol(b"x-opt-ORIG-ADDRESS"),
    message_annotations.symbol(b"x-opt-ORIG-QUEUE"),
)
_REASON = message_annotations.symbol(b"x-opt-dead-letter-reason")
_DESCRIPTION = message_annotations.symbol(b"x-opt-dead-letter-description")
_COUNT = message_annotations.symbol(b"x-opt-delivery-count")
_ID = message_annotations.symbol(DEAD_LETTER_ID)
# A delay is over when a message has been delivered, and a description may be missing this time.
_REMOVED = (
    message_annotations.symbol(DELIVERY_TIME),
    message_annotations.symbol(DELIVERY_DELAY),
    _DESCRIPTION,
)
# Characters of a description: with two names of any length they stay within ``wire.MOST_OVERHEAD``.
_MAX_DESCRIPTION = 256
# Messages that one retry tries: a few milliseconds of work.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    queue: Queue
    message: Message
    reason: DeadLetterReason
    description: str
    gone: Call

    @property
    def is_there(self) -> bool:
        """Whether the message is still to be moved: its queue may be gone, or hold other messages."""
        return (
            not self.queue.deleted
            and self.message.state is MessageState.LEAVING
            and self.queue.message(self.message.number) is self.message
        )


class DeadLetters:
    """The dead letters of one member.

    :param resolve: the node of an address, made where that is allowed; ``None`` when there is none.
    :param intake: nothing is copied while it is stopped.
    """

    def __init__(self, resolve: Callable[[str, Queue], Queue | Route | None], intake: Intake) -> None:
        self._resolve = resolve
        self._intake = intake
        self._waiting: deque[_DeadLetter] = deque()
        self._reported: set[str] = set()
        """Addresses that could take nothing, as the log says already."""

    def __len__(self) -> int:
        """How many wait for a dead-letter queue that takes them."""
        return len(self._waiting)

    def move(
        self, queue: Queue, message: Message, reason: DeadLetterReason, description: str, gone: Call
    ) -> None:
        """Move a message that no consumer holds.

        :param gone: called when it has left its queue.
        """
        message.state = MessageState.LEAVING
        self._move(_DeadLetter(queue, message, reason, description, gone))

    def retry(self) -> None:
        """Try those again that wait, some at a time."""
        for _ in range(min(len(self._waiting), _AT_ONCE)):
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
        """Enqueue the copy; why that is not possible now."""
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
            target.enqueue(data, _moved, letter, inspect(data))
        except UnroutableError as error:
            return str(error)
        except Exception as error:
            logger.exception("message %d of %s cannot be a dead letter", message.number, queue.name)
            return f"{type(error).__name__}: {error}"
        return None


def _moved(letter: _DeadLetter) -> None:
    """The copy is complete: the message itself leaves."""
    if letter.is_there:
        letter.queue.drop(letter.message)
        letter.queue.counters.dead_lettered += 1
        letter.gone()


def dead_letter(queue: Queue, message: Message, reason: DeadLetterReason, description: str = "") -> bytes:
    """The copy of a message for a dead-letter queue."""
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
        # Most annotations are not read when a message comes, and it must not stay for ever now.
        section = message_annotations.section_of(changes)
    # Delivery annotations are for one hop: AMQP 1.0 part 3, section 3.2.2.
    return parts.header + section + parts.rest


def _with_added(section: bytes, message: Message) -> bytes:
    """The annotations of a message with those of its consumers.

    A dead letter that becomes one again does not grow by them beyond ``MOST_BYTES``: it may do so for ever.
    """
    if not message.annotations:
        return section
    whole = message_annotations.changed(section, message_annotations.read_map(message.annotations))
    return whole if len(whole) <= MOST_BYTES or _ID not in message_annotations.read(section) else section
