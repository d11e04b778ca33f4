"""A bounded window of duplicate-detection ids, one per queue.

Rules
-----
* The first copy of a message registers its id.  While the id is in the window, the broker accepts and drops
  further copies.  The oldest ids leave first.
* If a message does not enter the queue after all (``dispatch.arrivals``), its id leaves the window.  Stores
  and replicas record this as a later entry of the id with the number ``NO_MESSAGE``.

Source: ActiveMQ Artemis, "Duplicate Message Detection" (``id-cache-size``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

# The default of Artemis's id-cache-size: far more than a sender has unsettled at once.
DEFAULT_WINDOW = 20_000
NO_MESSAGE = 0
"""In place of a message's number: the id is no longer in the window.  Real numbers begin with 1."""


class DuplicateWindow:
    """The most recent ids, each with the number of its message in the queue."""

    __slots__ = ("_ids", "_messages", "_size")

    def __init__(self, size: int = DEFAULT_WINDOW) -> None:
        self._size = size
        self._messages: dict[bytes, int] = {}
        self._ids: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def pairs(self) -> list[tuple[bytes, int]]:
        """Return every id with its message, the oldest first."""
        return list(self._messages.items())

    def first_copy(self, duplicate_id: bytes) -> int | None:
        """Return the number of the first message with this id, ``None`` for a new id."""
        return self._messages.get(duplicate_id)

    def add(self, duplicate_id: bytes, message: int) -> bool:
        """Add an id unless it is in the window; return True if it was new."""
        new = duplicate_id not in self._messages
        if new:
            self.remember(duplicate_id, message)
        return new

    def renew(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        """Add ids as the newest ones, even if they are in the window; the last pair of an id counts.

        An id with the number ``NO_MESSAGE`` leaves the window.
        """
        newest: dict[bytes, int] = {}
        for duplicate_id, message in pairs:
            newest.pop(duplicate_id, None)
            newest[duplicate_id] = message
        known = newest.keys() & self._messages.keys()
        if known:
            for duplicate_id in known:
                del self._messages[duplicate_id]
            self._ids = deque(self._messages)
        for duplicate_id, message in newest.items():
            if message != NO_MESSAGE:
                self.remember(duplicate_id, message)

    def discard(self, duplicate_id: bytes, message: int) -> None:
        """Remove an id whose message did not enter the queue; ``message`` is the message's number."""
        if self._messages.get(duplicate_id) == message:
            del self._messages[duplicate_id]
            self._ids = deque(self._messages)

    def clear(self) -> None:
        """Forget every id."""
        self._messages.clear()
        self._ids.clear()

    def remember(self, duplicate_id: bytes, message: int) -> None:
        """Add an id that is not in the window."""
        if self._size <= 0:
            return
        if len(self._ids) >= self._size:
            self._messages.pop(self._ids.popleft(), None)
        self._messages[duplicate_id] = message
        self._ids.append(duplicate_id)
