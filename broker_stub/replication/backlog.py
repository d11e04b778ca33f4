"""Events that wait to be sent to a replica which is still catching up.

No message waits for a replica while it catches up, so its primary keeps every later event for it: message
numbers, lists of removed messages, ids of messages that came and went. Without a limit, a replica that is
always slower than the primary would make the primary's memory grow forever. Messages that the replica lacked
at the start do not count: the queue holds them anyway.
"""

from __future__ import annotations

from typing import Any

# Ten seconds at the highest rate that one member has been seen to take. Including its entries in lists and
# sets, a number costs about as much memory as the bytes below.
_MOST_EVENTS = 1_000_000
_MOST_BYTES = 64 * 1024 * 1024


class Backlog:
    """Number of waiting events of all queues, and the size of the encoded ones."""

    __slots__ = ("events", "size")

    def __init__(self) -> None:
        self.events = 0
        self.size = 0

    def __str__(self) -> str:
        return f"{self.events:,} events of {self.size:,} bytes"

    @property
    def full(self) -> bool:
        """Return whether the replica is further behind than allowed."""
        return self.events > _MOST_EVENTS or self.size > _MOST_BYTES

    def add(self, item: Any) -> None:
        """Count an item added to an outbox."""
        self.events += 1
        self.size += _size(item)

    def remove(self, item: Any) -> None:
        """Stop counting an item that left its outbox."""
        self.events -= 1
        self.size -= _size(item)

    def keep(self, duplicate_id: bytes) -> None:
        """Count the kept id of a message that left its queue before it was sent."""
        self.size += len(duplicate_id)

    def release(self, duplicate_id: bytes) -> None:
        """Stop counting an id that is no longer kept."""
        self.size -= len(duplicate_id)


def _size(item: Any) -> int:
    if isinstance(item, bytes):
        return len(item)
    return len(item[1]) if isinstance(item, tuple) else 0
