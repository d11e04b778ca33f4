"""When a queue gives credit again.  No I/O.

Rule: at its high watermark, in messages or in bytes, a queue still takes messages, but senders
get no new credit until it is below the low watermark.
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


class Watermarks:
    """The limits of one queue, and the callbacks of senders that wait for credit."""

    __slots__ = ("_limits", "waiting")

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self.waiting: list[Callable[[], None]] = []

    def full(self, depth: int, size: int) -> bool:
        """Whether senders should get no new credit."""
        return depth >= self._limits.messages or size >= self._limits.size

    def shrunk(self, depth: int, size: int) -> None:
        """The queue has so many messages and bytes now: call those who wait for that."""
        limits = self._limits
        if depth <= limits.messages * limits.low_watermark and size <= limits.size * limits.low_watermark:
            self.notify()

    def notify(self) -> None:
        """Call all who wait."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()
