"""The ledger: every message that the primary has not settled yet, in sending order.

Rules
-----
* An entry stays until the primary settles it, the application withdraws it, or (with at-most-once) its
  connection is lost after it was sent.
* After a loss every remaining entry is sent again before anything newer, in the old order and complete: the
  ledger keeps the encoded bytes, never proton's delivery.
* ``window`` bounds the entries, and so the memory.  A removed entry drops its bytes, and only a few withdrawn
  entries stay in ``unsent``.

Pure: no clock, no socket, no event loop.  Source: docs/guarantees.md; Apache Artemis manual, "Duplicate
Message Detection" (why the second copy must carry the same id).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from haclient.outcome import Outcome


class Waiter(Protocol):
    """The future of a message's outcome: an ``asyncio.Future`` or a ``concurrent.futures.Future``."""

    def done(self) -> bool:
        """Return whether the future has a result, an error, or was cancelled."""

    def set_result(self, result: Outcome, /) -> None:
        """Report the outcome of the message."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Report the error that ended the sending of the message."""


# Withdrawn entries tolerated in ``unsent``: keeping them, without bytes, is cheaper than searching.
_SLACK = 16

W = TypeVar("W", bound=Waiter)


class Entry(Generic[W]):
    """One unsettled message.

    :ivar data: the encoded message.
    :ivar waiter: the future of its outcome.
    :ivar delivery: proton's delivery, if it was sent over the current connection.
    :ivar sent: whether any connection was given it; ``was_lost``: whether such a connection was lost.
    :ivar late_outcome: the outcome or error that arrived after the waiter was cancelled.
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
        """Entries to send over the current connection, oldest first."""
        # An ordered set: entries are equal only to themselves.
        self._entries: dict[Entry[W], Entry[W]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[W]]:
        """Iterate over the entries, oldest first."""
        return iter(self._entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries

    @property
    def sent(self) -> int:
        """Number of entries that were sent at least once."""
        return sum(entry.sent for entry in self._entries.values())

    @property
    def full(self) -> bool:
        """Return whether the window is used up."""
        return len(self._entries) >= self.window

    def add(self, data: bytes, waiter: W) -> Entry[W]:
        """Add a message, even if the ledger is ``full``.

        The caller checks ``full`` before, and afterwards sends the entry or puts it into ``unsent``.
        """
        entry = Entry(data, waiter)
        self._entries[entry] = entry
        return entry

    def remove(self, entry: Entry[W]) -> bool:
        """Remove a settled or withdrawn entry, not from ``unsent``; return ``False`` if removed before."""
        if self._entries.pop(entry, None) is None:
            return False
        entry.data, entry.delivery = b"", None
        return True

    def withdraw(self, entry: Entry[W]) -> bool:
        """Remove an entry that the application withdraws, sent or not; return ``False`` if removed before.

        Unlike ``remove``, this clears ``unsent`` of withdrawn entries when they are many.
        """
        removed, unsent = self.remove(entry), self.unsent
        # Searching ``unsent`` for each entry would be slow: remove all withdrawn entries at once, now and
        # then.
        if len(unsent) > (2 * len(self._entries) + _SLACK if self._entries else 0):
            kept = [each for each in unsent if each in self._entries]
            unsent.clear()
            unsent.extend(kept)
        return removed

    def on_disconnected(self, *, keep_sent: bool) -> list[Entry[W]]:
        """Prepare the entries for the next connection: put all that will be sent into ``unsent``, in order.

        An entry whose waiter is done, such as one that the application cancelled, is removed instead.

        :param keep_sent: send again the entries that were sent (at-least-once), instead of giving them up.
        :returns: the entries given up; whether they were delivered is unknown.
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
        """Remove and return all entries, when the sender is closed."""
        entries = list(self._entries)
        for entry in entries:
            self.remove(entry)
        self.unsent.clear()
        return entries
