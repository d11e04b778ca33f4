"""Whether a store goes on committing, counted in looks.

A process that was paused has a clock that runs and an event loop that does not: after it wakes, what it waits
for may be there already, and nobody has looked.  So progress is measured in looks of the loop's timer, and
never by the clock, here as for a replica (``replica``).

A commit of a large message takes longer than a time-out.  While it goes on (``Store.commit_progress``), the
store does not hang.
"""

from __future__ import annotations

from typing import Protocol

TICKS = 10
"""Looks in a row without progress after which there is none; a time-out is divided by it."""


class Commits(Protocol):
    """A store, as far as it is watched."""

    @property
    def sequence(self) -> int:
        """The last operation that it was given."""

    @property
    def committed(self) -> int:
        """The last one that is durable."""

    def commit_progress(self) -> int:
        """Look at a commit that has not ended: a number that has grown if it goes on."""


class CommitWatch:
    """Watches one store from now on."""

    def __init__(self, store: Commits) -> None:
        self.commit_goes_on = False
        """True if the last look found a commit that takes long, and that it goes on."""
        self._store = store
        self._committed = store.committed
        self._progress = 0
        self._idle = 0

    def tick(self) -> bool:
        """One more look; whether the store hangs."""
        store = self._store
        moved = store.committed == store.sequence or store.committed != self._committed
        self.commit_goes_on = not moved and self._looks_further()
        if moved or self.commit_goes_on:
            self._idle = 0
        self._idle += 1
        self._committed = store.committed
        return self._idle > TICKS

    def _looks_further(self) -> bool:
        before, self._progress = self._progress, self._store.commit_progress()
        return self._progress > before
