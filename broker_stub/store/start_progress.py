"""How far a store has been read at a start: counted where it is read, looked at by whoever waits."""

from __future__ import annotations

import sqlite3

# Instructions of SQLite's machine, or steps of its own check: some milliseconds.
_STEPS = 100_000


class StartProgress:
    """Numbers that only grow; one thread writes each of them, and any may read them.

    :ivar steps: of SQLite; ``checked``: messages whose checksum was compared; ``read``: those in memory.
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
        return 0  # go on

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Differs from a former one exactly when there was progress."""
        return self.steps, self.checked, self.read
