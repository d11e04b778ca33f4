"""Progress of reading a store at start: counted by the reader, polled by the supervisor and others."""

from __future__ import annotations

import sqlite3

# Instructions of SQLite's virtual machine, or steps of its integrity check: some milliseconds.
_STEPS = 100_000


class StartProgress:
    """Counters that only grow.  One thread writes each of them, and any thread may read them.

    :ivar steps: steps of SQLite.
    :ivar checked: messages whose checksum was compared.
    :ivar read: messages read into memory.
    """

    __slots__ = ("checked", "read", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.checked = 0
        self.read = 0

    def follow(self, connection: sqlite3.Connection) -> None:
        """Count the steps of a connection."""
        connection.set_progress_handler(self._step, _STEPS)

    def _step(self) -> int:
        self.steps += 1
        return 0  # SQLite continues

    @property
    def numbers(self) -> tuple[int, int, int]:
        """All counters; they differ from an earlier value exactly when there was progress."""
        return self.steps, self.checked, self.read
