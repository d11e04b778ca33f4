"""The messages of one queue that are not to be delivered yet.  No I/O.

``x-opt-delivery-time`` is a time of the wall clock, and ``x-opt-delivery-delay`` counts from the enqueue, in
milliseconds both.  A delay is written into the message as the time by this member's clock when it ends: so it
is in the store.  A replica is sent what is left of it, and writes the time by its own clock.  So clocks of
members may be hours apart, and have to be right only for as long as a member is down.  A time that the
sender gave is each member's wall time, as ``absolute-expiry-time`` is.

Rules
-----
* No message is delivered before its time by the queue's clock; how much later depends on ``call_at`` alone.
* A message that has become due has the place in the queue that its arrival gave it.
* A message may expire before it is due.
* At most ``_AT_ONCE`` messages become due in one call: others wait meanwhile.

Sources: the annotations are those of ActiveMQ Artemis ("Scheduled messages", AMQP).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Protocol

from broker_stub.amqp import message_annotations
from broker_stub.amqp.message_format import DELIVERY_TIME
from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Message, MessageState

_AT_ONCE = 1000
# Seconds until the timer looks again in any case: event loops differ in what they make of a distant time.
_LONGEST_TIMER = 3600.0
# Milliseconds: who means "for ever" by the largest number must not overflow a timestamp.
_MAX_DELAY = 100 * 365 * 86_400_000
# Milliseconds that a delay may differ from the primary's: a correction writes the whole message anew.
_TOLERANCE_MS = 1000
_NOT_ACQUIRED = (MessageState.AVAILABLE, MessageState.DELAYED)
_KEY = message_annotations.symbol(DELIVERY_TIME)


class Timer(Protocol):
    """A call in the future."""

    def cancel(self) -> None:
        """Do not call."""


class NoTimer:
    """A call that nobody makes."""

    def cancel(self) -> None:
        """Nothing to do."""


CallAt = Callable[[float, Callable[[], None]], Timer]


def never(_at: float, _call: Callable[[], None]) -> Timer:
    """For queues that are looked at by hand."""
    return NoTimer()


def with_delivery_time(data: bytes, due_ms: int) -> bytes:
    """A message to be delivered at a time of this member's wall clock."""
    parts = message_annotations.split(data)
    section = message_annotations.changed(
        parts.message_annotations, {_KEY: message_annotations.timestamp(due_ms)}
    )
    return parts.header + parts.delivery_annotations + section + parts.rest


def _set_time(message: Message, due_ms: int) -> None:
    message.data = with_delivery_time(message.data, due_ms)
    message.envelope = message.envelope._replace(deliver_at_ms=due_ms)


class DelayedMessages:
    """Those of one queue.

    :param messages: of the queue, by number.
    :param clocks: seconds, only ever growing, and milliseconds since the epoch.
    :param call_at: calls at a time of the first clock.
    :param available: makes a message available, at its position.
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
        """A message that asks for a later delivery gets the time at which it is due, if it is not yet."""
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
        """Take a message that would be available, unless it is due; whether it is not."""
        if message.due_at is None or self.is_due(message):
            message.due_at = None
            return False
        message.state = MessageState.DELAYED
        heapq.heappush(self._soonest, (message.due_at, message.number))
        self._set_timer()
        return True

    def left_ms(self, message: Message) -> int:
        """Milliseconds until a message is due, 0 when it is."""
        return 0 if message.due_at is None else max(0, int((message.due_at - self._clock()) * 1000) + 1)

    def correct(self, left: Iterable[tuple[int, int]]) -> list[Message]:
        """Take from the primary what is left of delays, in milliseconds; those that had another one."""
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
        """Whether a message may be delivered."""
        return message.due_at is None or message.due_at <= self._clock()

    def deliver_due(self) -> None:
        """Make available what is due now, and set the timer for the rest."""
        self._timer_at = None
        now, left = self._clock(), _AT_ONCE
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
        """Forget those that have left the queue, if they are most of them."""
        if len(self._soonest) > 2 * len(self._messages) + SLACK:
            self._soonest = [entry for entry in self._soonest if entry[1] in self._messages]
            heapq.heapify(self._soonest)

    def close(self) -> None:
        """The queue is gone."""
        self._timer.cancel()
        self._soonest.clear()
