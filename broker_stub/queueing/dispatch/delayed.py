"""Messages of one queue with a delayed delivery.  No I/O.

``x-opt-delivery-time`` is a wall-clock time, and ``x-opt-delivery-delay`` counts from the enqueue; both are
in milliseconds.  A delivery time overrides a delay.  The queue adds to a message with a delay the time at
which it ends, on this member's wall clock, so the store keeps it.  A replica receives the remaining delay
and writes the time by its own clock.  So members' clocks may differ by hours, and each must be right only
while its member is down.  A delivery time that the sender gave is compared with each member's own wall
clock, like ``absolute-expiry-time``.

Rules
-----
* No message is delivered before its time by the queue's clock; how much later depends only on ``call_at``.
* When a message becomes due, it takes the position in the queue that it got on arrival.
* A message may expire before it is due.
* At most ``_MAX_PER_CALL`` messages become due in one call, which blocks the event loop.

Sources: the annotations are those in ActiveMQ Artemis ("Scheduled messages", AMQP).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Protocol

from broker_stub.amqp import message_annotations
from broker_stub.amqp.message_format import DELIVERY_TIME
from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Message, MessageState

_MAX_PER_CALL = 1000
# Seconds; the longest timer that is set, because event loops differ in how they treat a distant time.
_LONGEST_TIMER = 3600.0
# Milliseconds: a sender may use the largest number for "for ever", which must not overflow a timestamp.
_MAX_DELAY = 100 * 365 * 86_400_000
# Milliseconds that a delay may differ from the primary's: a correction writes the whole message again.
_TOLERANCE_MS = 1000
_NOT_ACQUIRED = (MessageState.AVAILABLE, MessageState.DELAYED)
_KEY = message_annotations.symbol(DELIVERY_TIME)


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class NoTimer:
    """A timer without a call."""

    def cancel(self) -> None:
        """Do nothing."""


CallAt = Callable[[float, Callable[[], None]], Timer]


def never(_at: float, _call: Callable[[], None]) -> Timer:
    """Schedule nothing: for queues whose due messages the caller delivers itself."""
    return NoTimer()


def with_delivery_time(data: bytes, due_ms: int) -> bytes:
    """Return the encoded message with a delivery time, which replaces an earlier one.

    A delay in the message stays, and has no effect any more.

    :param due_ms: the time, by this member's wall clock.
    """
    parts = message_annotations.split(data)
    section = message_annotations.changed(
        parts.message_annotations, {_KEY: message_annotations.timestamp(due_ms)}
    )
    return parts.header + parts.delivery_annotations + section + parts.rest


def _set_time(message: Message, due_ms: int) -> None:
    message.data = with_delivery_time(message.data, due_ms)
    message.envelope = message.envelope._replace(deliver_at_ms=due_ms)


class DelayedMessages:
    """The delayed messages of one queue.

    :param messages: the queue's messages by number.
    :param clocks: monotonic seconds, and milliseconds since the epoch.
    :param call_at: calls at a time of the first clock.
    :param available: makes a message available at its position.
    """

    __slots__ = (
        "_available",
        "_call_at",
        "_clock",
        "_messages",
        "_now_ms",
        "_soonest",
        "_timer",
        "_timer_at",
    )

    def __init__(
        self,
        messages: dict[int, Message],
        clocks: tuple[Callable[[], float], Callable[[], int]],
        call_at: CallAt,
        available: Callable[[Message], None],
    ) -> None:
        self._messages = messages
        self._clock, self._now_ms = clocks
        self._call_at = call_at
        self._available = available
        self._soonest: list[tuple[float, int]] = []
        self._timer: Timer = NoTimer()
        self._timer_at: float | None = None

    def schedule(self, message: Message) -> None:
        """Set ``due_at`` of a message that is not due yet; ``hold_back`` then delays it.

        If the message has a delay, its delivery time is written into its bytes.
        """
        envelope, now_ms = message.envelope, self._now_ms()
        due_ms = envelope.deliver_at_ms
        if due_ms is None:
            due_ms = now_ms + max(0, envelope.delay_ms or 0)
        due_ms = min(due_ms, now_ms + _MAX_DELAY)
        if envelope.delay_ms is not None:
            _set_time(message, due_ms)
        left = (due_ms - now_ms) / 1000
        if left > 0:
            message.due_at = self._clock() + left

    def hold_back(self, message: Message) -> bool:
        """Delay a message that would be available; return False if it is due already."""
        if message.due_at is None or self.is_due(message):
            message.due_at = None
            return False
        message.state = MessageState.DELAYED
        heapq.heappush(self._soonest, (message.due_at, message.number))
        self._set_timer()
        return True

    def left_ms(self, message: Message) -> int:
        """Return the milliseconds until a message is due, 0 if it is due."""
        return 0 if message.due_at is None else max(0, int((message.due_at - self._clock()) * 1000) + 1)

    def correct(self, left: Iterable[tuple[int, int]]) -> list[Message]:
        """Apply remaining delays from the primary; return the messages whose bytes have changed.

        Delays that differ by a second at most are kept, and unknown messages are skipped.  A delayed message
        without a remaining delay becomes available at once.

        :param left: numbers of messages, and their remaining delays in milliseconds.
        """
        present = ((self._messages.get(number), min(left_ms, _MAX_DELAY)) for number, left_ms in left)
        corrected = []
        for message, left_ms in present:
            if message is not None and abs(self.left_ms(message) - left_ms) > _TOLERANCE_MS:
                corrected.append(message)
                _set_time(message, self._now_ms() + left_ms)
                message.due_at = self._clock() + left_ms / 1000
                before = message.state
                if before in _NOT_ACQUIRED and not self.hold_back(message) and before is MessageState.DELAYED:
                    self._become_due(message)
        return corrected

    def is_due(self, message: Message) -> bool:
        """Return True if a message may be delivered."""
        return message.due_at is None or message.due_at <= self._clock()

    def deliver_due(self) -> None:
        """Make due messages available, and set the timer for the rest."""
        self._timer_at = None
        now, left = self._clock(), _MAX_PER_CALL
        while self._soonest and self._soonest[0][0] <= now and left:
            left -= 1
            message = self._messages.get(heapq.heappop(self._soonest)[1])
            if message is not None and message.state is MessageState.DELAYED and self.is_due(message):
                self._become_due(message)
        self._set_timer()

    def _become_due(self, message: Message) -> None:
        message.due_at = None
        message.state = MessageState.AVAILABLE
        self._available(message)

    def _set_timer(self) -> None:
        if not self._soonest:
            return
        at = min(self._soonest[0][0], self._clock() + _LONGEST_TIMER)
        if self._timer_at is None or at < self._timer_at:
            self._timer.cancel()
            self._timer, self._timer_at = self._call_at(at, self.deliver_due), at

    def compact(self) -> None:
        """Forget messages that have left the queue, if they are most of the entries."""
        if len(self._soonest) > 2 * len(self._messages) + SLACK:
            self._soonest = [entry for entry in self._soonest if entry[1] in self._messages]
            heapq.heapify(self._soonest)

    def close(self) -> None:
        """Cancel the timer when the queue is deleted."""
        self._timer.cancel()
        self._soonest.clear()
