"""Limits at which a queue stops and resumes giving credit.  No I/O.

Rules
-----
* When a queue reaches its high watermark, in messages or in bytes, senders get no new credit until it is
  below the low watermark.  The queue still takes messages.
* The same holds for the bytes of all queues together.
* Another site's events are applied until the bytes are an eighth above the limit, because later events may
  empty the queues that earlier ones filled.
* At the limit of queues a new queue is refused, except a queue from a store or from the primary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The limits at which a queue stops giving credit to its senders.

    :param messages, size: high watermarks in messages and bytes.
    :param low_watermark: fraction of both high watermarks below which senders get credit again.
    :param duplicates: how many duplicate-detection ids are remembered.
    """

    messages: int = 1_000_000
    size: int = 512 * 1024 * 1024
    low_watermark: float = 0.8
    duplicates: int = DEFAULT_WINDOW


DEFAULT_LIMITS = QueueLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """The limits of all queues of a member together.

    :param queues: the most queues, temporary ones included.
    :param size: high watermark in bytes of messages.
    :param low_watermark: fraction of ``size`` below which senders get credit again.
    """

    # The largest number with which joining and failover are measured.
    queues: int = 100_000
    # Eight queues of the default limit.
    size: int = 4 * 1024 * 1024 * 1024
    low_watermark: float = 0.8


DEFAULT_STORE_LIMITS = StoreLimits()


class TotalSize:
    """The bytes of all queues, and the callbacks that wait until they are fewer.

    :ivar waiting: called below the low watermark.
    :ivar excess: called when the bytes are no longer ``excessive``.
    """

    __slots__ = ("_excessive", "_high", "_low", "excess", "size", "waiting")

    def __init__(self, limits: StoreLimits = DEFAULT_STORE_LIMITS) -> None:
        self._high = limits.size
        self._low = int(limits.size * limits.low_watermark)
        self._excessive = limits.size + limits.size // 8
        self.size = 0
        self.waiting: dict[Callable[[], None], None] = {}
        self.excess: dict[Callable[[], None], None] = {}

    @property
    def full(self) -> bool:
        """True if senders should get no new credit."""
        return self.size >= self._high

    @property
    def excessive(self) -> bool:
        """True if another site's events must wait as well."""
        return self.size >= self._excessive

    def remove(self, size: int) -> None:
        """Subtract bytes, and call the callbacks that wait for this."""
        self.size -= size
        if self.waiting and self.size <= self._low:
            waiting, self.waiting = self.waiting, {}
            for call in waiting:
                call()
        if self.excess and not self.excessive:
            waiting, self.excess = self.excess, {}
            for call in waiting:
                call()


class Watermarks:
    """The limits of one queue, and the callbacks of senders that wait for credit.

    :param total: the bytes of all queues, including this one.
    """

    __slots__ = ("_limits", "total", "waiting")

    def __init__(self, limits: QueueLimits, total: TotalSize) -> None:
        self._limits = limits
        self.total = total
        self.waiting: dict[Callable[[], None], None] = {}

    def full(self, depth: int, size: int) -> bool:
        """Return True if senders should get no new credit."""
        return self.full_itself(depth, size) or self.total.full

    def full_itself(self, depth: int, size: int) -> bool:
        """Return True if the queue has reached its own limits, whatever the bytes of all queues."""
        return depth >= self._limits.messages or size >= self._limits.size

    def wait(self, call: Callable[[], None]) -> None:
        """Call once when there may be credit again."""
        self.waiting[call] = None
        if self.total.full:
            self.total.waiting[self.notify] = None

    def shrunk(self, depth: int, size: int) -> None:
        """Call the waiting callbacks if the queue, with this depth and size, is below its low watermarks."""
        limits = self._limits
        if self.total.full:
            self.total.waiting[self.notify] = None
        elif depth <= limits.messages * limits.low_watermark and size <= limits.size * limits.low_watermark:
            self.notify()

    def notify(self) -> None:
        """Call every waiting callback; a sender whose target is still full waits again."""
        waiting, self.waiting = self.waiting, {}
        for call in waiting:
            call()

    def close(self, size: int) -> None:
        """Subtract the bytes of a deleted queue from the total; later removals do not count."""
        total, self.total = self.total, TotalSize()
        total.waiting.pop(self.notify, None)
        self.notify()
        total.remove(size)
