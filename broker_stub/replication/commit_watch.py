"""Detects a store that no longer commits, by counting timer ticks without progress.

A paused process has a clock that runs and an event loop that does not. When it wakes, the expected result may
already have arrived unread. So progress is measured in ticks of the loop's timer and never by the clock, here
as for a replica (``replica``).

A commit of a large message may take longer than a timeout. While it makes progress
(``Store.commit_progress``), the store does not hang.
"""

from __future__ import annotations

from typing import Protocol

TICKS = 10
"""Consecutive ticks without progress after which a store or replica counts as hung; divides a timeout."""


class Commits(Protocol):
    """The part of a store that is watched."""

    @property
    def sequence(self) -> int:
        """The sequence number of the last operation given to the store."""

    @property
    def committed(self) -> int:
        """The sequence number of the last durable operation."""

    def commit_progress(self) -> int:
        """Return a number that grows while the running commit makes progress."""


class CommitWatch:
    """Watches one store, from the construction on."""

    def __init__(self, store: Commits) -> None:
        self.commit_goes_on = False
        """True if the last tick found a long commit that makes progress."""
        self._store = store
        self._committed = store.committed
        self._progress = 0
        self._idle = 0

    def tick(self) -> bool:
        """Check the store, once for each tick of a timer; return whether it hangs.

        The store hangs after ``TICKS`` consecutive ticks without progress, until a tick finds progress.
        A store that has committed all its operations does not hang.
        """
        store = self._store
        moved = store.committed == store.sequence or store.committed != self._committed
        self.commit_goes_on = not moved and self._commit_progressed()
        if moved or self.commit_goes_on:
            self._idle = 0
        self._idle += 1
        self._committed = store.committed
        return self._idle > TICKS

    def _commit_progressed(self) -> bool:
        before, self._progress = self._progress, self._store.commit_progress()
        return self._progress > before
