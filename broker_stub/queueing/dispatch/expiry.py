"""Expiry times of the messages of one queue.  No I/O.

A message expires at the end of its time to live or at its ``absolute-expiry-time``, whichever is first.  The
time to live runs by the queue's clock.  The store keeps its end by this member's wall clock, which must be
right only while the member is down.  A replica receives the remaining time, so the members' clocks may differ
by hours.  The ``absolute-expiry-time`` is read from the message itself and compared with each member's own
wall clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator

from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Message

# Milliseconds that a time to live may differ from the primary's: a correction writes the whole message again.
_TOLERANCE_MS = 1000
# Seconds: a sender may mean "for ever" by the largest number, which must fit 63 bits of milliseconds.
_MAX_LIFETIME = 100 * 365 * 86400.0


class Expiry:
    """The numbers of the messages that expire, the soonest first.

    :param clock: monotonic seconds.
    :param now_ms: milliseconds since the epoch.
    """

    __slots__ = ("_clock", "_now_ms", "_soonest")

    def __init__(self, clock: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._soonest: list[tuple[float, int]] = []

    def within(self, message: Message, lifetime: float | None) -> None:
        """Set the seconds that a message has to live; ``None`` if only its absolute expiry ends it.

        A message with neither never expires.
        """
        now_ms = self._now_ms()
        lifetime = None if lifetime is None else min(max(0.0, lifetime), _MAX_LIFETIME)
        self._set(message, now_ms, None if lifetime is None else now_ms + int(lifetime * 1000), lifetime)

    def at(self, message: Message, expires_at_ms: int) -> None:
        """Set the end of the time to live: milliseconds of this member's wall clock, or 0 for never."""
        now_ms = self._now_ms()
        lifetime = (expires_at_ms - now_ms) / 1000 if expires_at_ms else None
        self._set(message, now_ms, expires_at_ms or None, lifetime)

    def correct(self, message: Message, lifetime_ms: int) -> bool:
        """Apply the remaining time to live that the primary reports; return True if it differed.

        A difference of at most a second is ignored, unless the message has no time to live here.
        """
        left = self.lifetime_ms(message)
        differs = left == 0 or abs(left - lifetime_ms) > _TOLERANCE_MS
        if differs:
            self.at(message, self._now_ms() + lifetime_ms)
        return differs

    def _set(self, message: Message, now_ms: int, expires_at_ms: int | None, lifetime: float | None) -> None:
        absolute_ms = message.envelope.expiry_ms
        ends = [] if lifetime is None else [lifetime]
        if absolute_ms:
            ends.append((absolute_ms - now_ms) / 1000)
            if message.envelope.ttl_ms is None:
                # Version 0.1.0 stored and sent the absolute expiry as if it were a time to live.
                expires_at_ms, ends = None, ends[-1:]
        message.expires_at_ms = expires_at_ms
        if ends:
            message.expires_at = self._clock() + min(ends)
            heapq.heappush(self._soonest, (message.expires_at, message.number))

    def lifetime_ms(self, message: Message) -> int:
        """Return the milliseconds left of the time to live, at least 1; 0 if the message has none."""
        if message.expires_at_ms is None or message.expires_at is None:
            return 0
        if message.envelope.expiry_ms:
            return max(1, message.expires_at_ms - self._now_ms())
        return max(1, int((message.expires_at - self._clock()) * 1000))

    def is_expired(self, message: Message) -> bool:
        """Return True if a message has expired."""
        return message.expires_at is not None and message.expires_at <= self._clock()

    def remaining(self, message: Message) -> float | None:
        """Return the seconds until a message expires, at least 0; ``None`` if it never does."""
        return None if message.expires_at is None else max(0.0, message.expires_at - self._clock())

    @property
    def next(self) -> float | None:
        """The time, by the queue's clock, at which the next message may expire; ``None`` for never."""
        return self._soonest[0][0] if self._soonest else None

    def overdue(self) -> Iterator[int]:
        """Remove and yield the numbers of messages that may have expired.

        A message may have left the queue.  If its expiry was changed, its number is also yielded at the
        former time.
        """
        now = self._clock()
        while self._soonest and self._soonest[0][0] <= now:
            yield heapq.heappop(self._soonest)[1]

    def compact(self, present: Collection[int]) -> None:
        """Forget messages that have left the queue, if they are most of the entries."""
        if len(self._soonest) > 2 * len(present) + SLACK:
            self._soonest = [entry for entry in self._soonest if entry[1] in present]
            heapq.heapify(self._soonest)
