"""The ledger: every message that the primary has not settled yet, in order of sending.

Rules
-----
* An entry stays until the primary settles it, the application withdraws it, or (at most once)
  its connection is lost after it was sent.
* After a loss every remaining entry is sent again before anything newer, in its old order and
  whole: the ledger keeps the encoded bytes, never proton's delivery.
* ``window`` bounds the entries, and so the memory: an entry that leaves drops its bytes, and of the
  withdrawn ones few stay in ``unsent``.

Pure: no clock, no socket, no event loop.  Source: docs/guarantees.md; Apache Artemis manual,
"Duplicate Message Detection" (why the same id must go out with the second copy).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from haclient.outcome import Outcome


class Waiter(Protocol):
    """What an entry resolves: an ``asyncio.Future`` or a ``concurrent.futures.Future``."""

    def done(self) -> bool:
        """Whether it has an outcome, an error, or was cancelled."""

    def set_result(self, result: Outcome, /) -> None:
        """Report the outcome of the message."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Report that the message was given up."""


# So many withdrawn entries, without their bytes, are cheaper to keep than to look for.
_SLACK = 16

W = TypeVar("W", bound=Waiter)


class Entry(Generic[W]):
    """One unsettled message.

    :ivar data: the encoded message.
    :ivar waiter: the future of its outcome.
    :ivar delivery: proton's delivery while on the wire of the current connection.
    :ivar sent: whether it was ever handed to a connection; ``was_lost``: to one that was lost since.
    :ivar late_outcome: the outcome, or its error, that arrived when the waiter was cancelled already.
    """

    __slots__ = ("data", "delivery", "late_outcome", "sent", "waiter", "was_lost")

    def __init__(self, data: bytes, waiter: W) -> None:
        self.data = data
        self.waiter = waiter
        self.delivery: Any = None
        self.sent = self.was_lost = False
        self.late_outcome: Outcome | BaseException | None = None


class Ledger(Generic[W]):
    """The entries of one sender."""

    __slots__ = ("_entries", "unsent", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.unsent: deque[Entry[W]] = deque()
        """Entries that are to go out over the current connection, oldest first."""
        # An ordered set: entries are equal only to themselves.
        self._entries: dict[Entry[W], Entry[W]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[W]]:
        """The entries, oldest first."""
        return iter(self._entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries

    @property
    def sent(self) -> int:
        """Entries that have left at least once."""
        return sum(entry.sent for entry in self._entries.values())

    @property
    def full(self) -> bool:
        """Whether the window is used up."""
        return len(self._entries) >= self.window

    def add(self, data: bytes, waiter: W) -> Entry[W]:
        """Take responsibility for a message; the caller sends it or puts it into ``unsent``."""
        entry = Entry(data, waiter)
        self._entries[entry] = entry
        return entry

    def remove(self, entry: Entry[W]) -> bool:
        """Remove an entry that is settled or withdrawn; ``False`` if it was removed before."""
        if self._entries.pop(entry, None) is None:
            return False
        entry.data, entry.delivery = b"", None
        return True

    def withdraw(self, entry: Entry[W]) -> bool:
        """Remove an entry that the application does not want any more; ``False`` if it was removed before."""
        removed, unsent = self.remove(entry), self.unsent
        # Searching for each would take long; so from time to time all that have left are removed at once.
        if len(unsent) > (2 * len(self._entries) + _SLACK if self._entries else 0):
            kept = [each for each in unsent if each in self._entries]
            unsent.clear()
            unsent.extend(kept)
        return removed

    def on_disconnected(self, *, keep_sent: bool) -> list[Entry[W]]:
        """Prepare the entries for the next connection.

        :param keep_sent: send again what was sent (at least once) instead of giving it up.
        :returns: the entries given up, whose delivery nobody can know.
        """
        given_up = [] if keep_sent else [entry for entry in self._entries if entry.sent]
        for entry in given_up:
            self.remove(entry)
        for entry in self._entries:
            entry.delivery, entry.was_lost = None, entry.sent
        self.unsent = deque(entry for entry in self._entries if not entry.waiter.done())
        for entry in [entry for entry in self._entries if entry.waiter.done()]:
            self.remove(entry)
        return given_up

    def clear(self) -> list[Entry[W]]:
        """Give everything up (the sender is closed) and return it."""
        entries = list(self._entries)
        for entry in entries:
            self.remove(entry)
        self.unsent.clear()
        return entries
