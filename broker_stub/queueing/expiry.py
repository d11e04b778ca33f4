"""When the messages of one queue expire.  No I/O.

A message has both times: by the queue's clock, which decides here, and by the wall clock, which
goes to stores and replicas.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator

from broker_stub.queueing.message import Message
from broker_stub.queueing.ready_list import SLACK


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

    def within(self, message: Message, lifetime: float) -> None:
        """A message expires after so many seconds."""
        message.expires_at_ms = self._now_ms() + int(lifetime * 1000)
        self._push(message, self._clock() + lifetime)

    def at(self, message: Message, expires_at_ms: int) -> None:
        """A message expires at a time of the wall clock, in milliseconds since the epoch."""
        message.expires_at_ms = expires_at_ms
        self._push(message, self._clock() + (expires_at_ms - self._now_ms()) / 1000)

    def _push(self, message: Message, expires_at: float) -> None:
        message.expires_at = expires_at
        heapq.heappush(self._soonest, (expires_at, message.number))

    def is_expired(self, message: Message) -> bool:
        """Whether it has expired."""
        return message.expires_at is not None and message.expires_at <= self._clock()

    def remaining(self, message: Message) -> float | None:
        """Seconds until a message expires, ``None`` when it never does."""
        return None if message.expires_at is None else max(0.0, message.expires_at - self._clock())

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
