"""What has happened since a replica was sent what it lacked, and waits to be sent to it.

While a replica catches up nobody waits for it, so whatever happens meanwhile is kept for it: numbers of
messages, lists of what has left, ids of messages that came and went.  A replica that is slower than that for
good would have its primary grow without end.  The difference between queue and replica is no part of this:
the queue has it anyway.
"""

from __future__ import annotations

from typing import Any

# Ten seconds of the highest rate that one member has been seen to take, and what a number with its places in
# lists and sets costs: as much memory as the bytes below.
_MOST_EVENTS = 1_000_000
_MOST_BYTES = 64 * 1024 * 1024


class Backlog:
    """Events, and the bytes of those that are encoded already, of all queues."""

    __slots__ = ("events", "size")

    def __init__(self) -> None:
        self.events = 0
        self.size = 0

    def __str__(self) -> str:
        return f"{self.events:,} events of {self.size:,} bytes"

    @property
    def full(self) -> bool:
        """Whether that is more than a replica may be behind."""
        return self.events > _MOST_EVENTS or self.size > _MOST_BYTES

    def add(self, item: Any) -> None:
        """An item of an outbox waits now."""
        self.events += 1
        self.size += _size(item)

    def remove(self, item: Any) -> None:
        """It waits no more."""
        self.events -= 1
        self.size -= _size(item)

    def keep(self, duplicate_id: bytes) -> None:
        """The id of a message that left unsent is kept."""
        self.size += len(duplicate_id)

    def release(self, duplicate_id: bytes) -> None:
        """And needed no more."""
        self.size -= len(duplicate_id)


def _size(item: Any) -> int:
    if isinstance(item, bytes):
        return len(item)
    return len(item[1]) if isinstance(item, tuple) else 0
