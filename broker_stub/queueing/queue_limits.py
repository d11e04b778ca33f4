"""When a queue gives credit again.  No I/O.

Rules
-----
* At its high watermark, in messages or in bytes, a queue still takes messages, but senders get no new credit
  until it is below the low watermark.
* The same holds for the bytes of all queues together.
* Events of another site go on being applied until the bytes are an eighth above the limit: behind those that
  fill a queue come those that empty it.
* At the limit of queues a new one is refused; those of a store or of a primary are taken in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """When a queue stops giving credit to its senders.

    :param messages: high watermark in messages.
    :param size: high watermark in bytes.
    :param low_watermark: below this part of both high watermarks senders get credit again.
    :param duplicates: how many duplicate-detection ids are remembered.
    """

    messages: int = 1_000_000
    size: int = 512 * 1024 * 1024
    low_watermark: float = 0.8
    duplicates: int = DEFAULT_WINDOW


DEFAULT_LIMITS = QueueLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """What all queues of a member may have together.

    :param queues: temporary ones included.
    :param size: high watermark in bytes of messages.
    :param low_watermark: below this part of it senders get credit again.
    """

    # As many as joining and failing over are measured with.
    queues: int = 100_000
    # Eight queues of the default size.
    size: int = 4 * 1024 * 1024 * 1024
    low_watermark: float = 0.8


DEFAULT_STORE_LIMITS = StoreLimits()


class TotalSize:
    """The bytes of all queues, and the callbacks of those who wait for them to be fewer.

    :ivar waiting: called below the low watermark.
    :ivar excess: called when they are not ``excessive`` any more.
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
        """Whether senders should get no new credit."""
        return self.size >= self._high

    @property
    def excessive(self) -> bool:
        """Whether events of another site wait as well."""
        return self.size >= self._excessive

    def remove(self, size: int) -> None:
        """Subtract the bytes of what has left; call those who wait for that."""
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

    :param total: the bytes of all queues, of which it is one.
    """

    __slots__ = ("_limits", "total", "waiting")

    def __init__(self, limits: QueueLimits, total: TotalSize) -> None:
        self._limits = limits
        self.total = total
        self.waiting: dict[Callable[[], None], None] = {}

    def full(self, depth: int, size: int) -> bool:
        """Whether senders should get no new credit."""
        return self.full_itself(depth, size) or self.total.full

    def full_itself(self, depth: int, size: int) -> bool:
        """The same, whatever all queues have together."""
        return depth >= self._limits.messages or size >= self._limits.size

    def wait(self, call: Callable[[], None]) -> None:
        """Call once when there may be credit again."""
        self.waiting[call] = None
        if self.total.full:
            self.total.waiting[self.notify] = None

    def shrunk(self, depth: int, size: int) -> None:
        """The queue has so many messages and bytes now: call those who wait for that."""
        limits = self._limits
        if self.total.full:
            self.total.waiting[self.notify] = None
        elif depth <= limits.messages * limits.low_watermark and size <= limits.size * limits.low_watermark:
            self.notify()

    def notify(self) -> None:
        """Call all who wait; one whose target is full still waits again."""
        waiting, self.waiting = self.waiting, {}
        for call in waiting:
            call()

    def close(self, size: int) -> None:
        """The queue is deleted, with so many bytes; what leaves it later is not counted."""
        total, self.total = self.total, TotalSize()
        total.waiting.pop(self.notify, None)
        self.notify()
        total.remove(size)
