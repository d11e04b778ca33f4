"""What one transaction will do, folded while it is collected.  No I/O.

Rules
-----
* A batch belongs to the loop's thread until it is given to the writer, and to the writer then.
* Operations on messages of different ids commute, so they are gathered by kind: a message that is
  put and removed within a batch is never written.  A statement about anything else stays where it
  is in the order, and closes what was gathered before it.
* Gathered changes are applied in the order counted, removed, put.  That is right for any order in
  which they came: counting or removing a message that is put in the batch changes the put itself.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


class Statement(NamedTuple):
    """One SQL statement."""

    sql: str
    parameters: tuple[Any, ...]


class Read(NamedTuple):
    """Something to be read after the commit, and who waits for it."""

    function: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class Changes:
    """What happens to the content of one queue."""

    __slots__ = (
        "_counted",
        "_removed",
        "_rewritten",
        "confirmed",
        "confirmed_kept",
        "duplicates",
        "last_id",
        "puts",
        "site_progress",
    )

    def __init__(self) -> None:
        self.puts: dict[int, tuple[bytes, int, int | None]] = {}
        self.duplicates: list[tuple[int, bytes, int]] = []
        self.confirmed: list[tuple[int, bytes, int]] = []
        self.confirmed_kept = 0
        self.last_id = 0
        self.site_progress: Mapping[str, Any] | None = None
        self._removed: dict[int, None] = {}
        self._counted: dict[int, int] = {}
        self._rewritten: set[int] = set()

    def put(self, message_id: int, row: tuple[bytes, int, int | None]) -> None:
        """Write the message."""
        self.puts[message_id] = row
        if self._rewritten:
            self._rewritten.discard(message_id)

    def rewrite(self, message_id: int, row: tuple[bytes, int, int | None]) -> None:
        """Write a message again that is in the database or in this batch."""
        if message_id not in self.puts:
            self._rewritten.add(message_id)
        self.puts[message_id] = row

    def remove(self, message_id: int) -> None:
        """The message is gone, be it in the database or in this batch."""
        self.puts.pop(message_id, None)
        self._rewritten.discard(message_id)
        self._removed[message_id] = None

    def count(self, message_id: int) -> None:
        """One more delivery of the message."""
        put = self.puts.get(message_id)
        if put is not None:
            data, delivery_count, expires_at = put
            self.puts[message_id] = (data, delivery_count + 1, expires_at)
        elif message_id not in self._removed:
            self._counted[message_id] = self._counted.get(message_id, 0) + 1

    def drop_rewrites(self) -> bool:
        """Leave messages that are in the database as they are; whether one was to be written again."""
        had = bool(self._counted or self._rewritten)
        self._counted.clear()
        for message_id in self._rewritten:
            del self.puts[message_id]
        self._rewritten.clear()
        return had

    @property
    def removed(self) -> list[int]:
        """The ids to remove."""
        return list(self._removed)

    def counted(self) -> Iterable[list[int]]:
        """Groups of ids, each of which gets one delivery more."""
        most = max(self._counted.values(), default=0)
        for times in range(1, most + 1):
            yield [message_id for message_id, count in self._counted.items() if count >= times]


class Batch:
    """The operations of one transaction, and what is read after it.

    :param sequence: of the last operation, 0 while there is none.
    """

    __slots__ = ("_changes", "reads", "sequence", "steps")

    def __init__(self) -> None:
        self.sequence = 0
        self.reads: list[Read] = []
        self._changes: dict[int, Changes] = {}
        self.steps: list[Statement | dict[int, Changes]] = [self._changes]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.sequence and not self.reads

    def drop_rewrites(self) -> bool:
        """Leave deliveries uncounted, and rewritten messages as they were; whether there were any.

        Each writes the whole message again, which a full disk has no room for.  After a crash this store
        has neither how often these messages were given to a consumer, nor what consumers added to them.
        """
        gathered = [change for step in self.steps if isinstance(step, dict) for change in step.values()]
        return sum(change.drop_rewrites() for change in gathered) > 0  # of each of them

    def of(self, queue: int) -> Changes:
        """What is gathered for a queue."""
        changes = self._changes.get(queue)
        if changes is None:
            changes = self._changes[queue] = Changes()
        return changes

    def add(self, sql: str, *parameters: Any) -> None:
        """A statement, after all that was added before."""
        self._changes = {}
        self.steps += (Statement(sql, parameters), self._changes)
