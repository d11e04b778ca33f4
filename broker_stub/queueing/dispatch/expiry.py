"""When the messages of one queue expire.  No I/O.

A message expires with its time to live or at its ``absolute-expiry-time``, whichever is first.  The time to
live runs by the queue's clock.  A store has its end by the wall clock of this member, which has to be right
only for as long as the member is down; a replica is sent what is left of it, so the members' clocks may be
hours apart.  The ``absolute-expiry-time`` is each member's wall time, and is read from the message itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator

from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Message

# Milliseconds that a time to live may differ from the primary's: a correction writes the whole message anew.
_TOLERANCE_MS = 1000
# Seconds: who means "for ever" by the largest number must not overflow a store's 63 bits of milliseconds.
_MAX_LIFETIME = 100 * 365 * 86400.0


class Expiry:
    """The numbers of the messages that expire, the soonest first.

    :param clock: seconds, only ever growing.
    :param now_ms: milliseconds since the epoch.
    """

    __slots__ = ("_clock", "_now_ms", "_soonest")

    def __init__(self, clock: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._soonest: list[tuple[float, int]] = []

    def within(self, message: Message, lifetime: float | None) -> None:
        """A message has so many seconds to live, ``None`` where only its absolute expiry ends it."""
        now_ms = self._now_ms()
        lifetime = None if lifetime is None else min(max(0.0, lifetime), _MAX_LIFETIME)
        self._set(message, now_ms, None if lifetime is None else now_ms + int(lifetime * 1000), lifetime)

    def at(self, message: Message, expires_at_ms: int) -> None:
        """The time to live ends at a time of this member's wall clock, in milliseconds; 0 for never."""
        now_ms = self._now_ms()
        lifetime = (expires_at_ms - now_ms) / 1000 if expires_at_ms else None
        self._set(message, now_ms, expires_at_ms or None, lifetime)

    def correct(self, message: Message, lifetime_ms: int) -> bool:
        """Take from the primary what is left of a time to live; whether it was another one."""
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
        """What is left of the time to live, at least 1; 0 for a message that has none."""
        if message.expires_at_ms is None or message.expires_at is None:
            return 0
        if message.envelope.expiry_ms:
            return max(1, message.expires_at_ms - self._now_ms())
        return max(1, int((message.expires_at - self._clock()) * 1000))

    def is_expired(self, message: Message) -> bool:
        """Whether it has expired."""
        return message.expires_at is not None and message.expires_at <= self._clock()

    def remaining(self, message: Message) -> float | None:
        """Seconds until a message expires, ``None`` when it never does."""
        return None if message.expires_at is None else max(0.0, message.expires_at - self._clock())

    @property
    def next(self) -> float | None:
        """When the next message may expire, by the queue's clock; ``None`` for never."""
        return self._soonest[0][0] if self._soonest else None

    def overdue(self) -> Iterator[int]:
        """The numbers of the expired ones, each once."""
        now = self._clock()
        while self._soonest and self._soonest[0][0] <= now:
            yield heapq.heappop(self._soonest)[1]

    def compact(self, present: Collection[int]) -> None:
        """Forget those that have left the queue, if they are most of them."""
        if len(self._soonest) > 2 * len(present) + SLACK:
            self._soonest = [entry for entry in self._soonest if entry[1] in present]
            heapq.heapify(self._soonest)
