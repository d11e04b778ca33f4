"""Collects and combines the operations of one transaction.  No I/O.

Rules
-----
* A batch belongs to the loop's thread until it is handed to the writer; then it belongs to the writer.
* Operations on different messages commute, so they are gathered by kind.  A message that is put and removed
  within a batch is never written.  Any other statement keeps its position and ends the gathering before it.
* Gathered changes are applied in the order counted, removed, put.  This is right for any original order:
  counting or removing a message that was put in the batch changes the put itself.
* Rewritten messages are written last, whatever the statements between; deleting a queue drops its rewrites.
  A batch has at most ``MOST_REWRITTEN`` bytes of rewrites and leaves the others to the next batch, so that no
  commit takes long.  Their prefix and data are joined only on the writer's thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

MOST_REWRITTEN: Final = 4 << 20
"""Bytes of rewritten messages in one transaction; a disk writes them in tens of milliseconds."""


class Statement(NamedTuple):
    """An SQL statement."""

    sql: str
    parameters: tuple[Any, ...]


class Read(NamedTuple):
    """A function that reads after the commit, and the future for its result."""

    function: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class Rewrite(NamedTuple):
    """A message in the database that is to be written again.

    :param prefix: the bytes in front of ``data`` in the database.
    """

    prefix: bytes
    data: bytes
    delivery_count: int
    expires_at: int | None

    @property
    def row(self) -> tuple[bytes, int, int | None]:
        """The values to put."""
        return self.prefix + self.data, self.delivery_count, self.expires_at


class Changes:
    """The changes to the content of one queue.

    :ivar rewrites: the queue's rewrites in the batch.
    """

    __slots__ = (
        "_counted",
        "_removed",
        "confirmed",
        "confirmed_kept",
        "duplicates",
        "last_id",
        "puts",
        "rewrites",
        "site_progress",
    )

    def __init__(self, rewrites: dict[int, Rewrite]) -> None:
        self.rewrites = rewrites
        self.puts: dict[int, tuple[bytes, int, int | None]] = {}
        self.duplicates: list[tuple[int, bytes, int]] = []
        self.confirmed: list[tuple[int, bytes, int]] = []
        self.confirmed_kept = 0
        self.last_id = 0
        self.site_progress: Mapping[str, Any] | None = None
        self._removed: dict[int, None] = {}
        self._counted: dict[int, int] = {}

    def put(self, message_id: int, row: tuple[bytes, int, int | None]) -> None:
        """Write a message."""
        self.puts[message_id] = row
        if self.rewrites:
            self.rewrites.pop(message_id, None)

    def remove(self, message_id: int) -> None:
        """Remove a message from the database or from this batch."""
        self.puts.pop(message_id, None)
        if self.rewrites:
            self.rewrites.pop(message_id, None)
        self._removed[message_id] = None

    def count(self, message_id: int) -> None:
        """Count one more delivery of a message."""
        put = self.puts.get(message_id)
        if self.rewrites and (rewrite := self.rewrites.get(message_id)) is not None:
            self.rewrites[message_id] = rewrite._replace(delivery_count=rewrite.delivery_count + 1)
        elif put is not None:
            data, delivery_count, expires_at = put
            self.puts[message_id] = (data, delivery_count + 1, expires_at)
        elif message_id not in self._removed:
            self._counted[message_id] = self._counted.get(message_id, 0) + 1

    def drop_counts(self) -> bool:
        """Discard the counted deliveries; return True if there were any."""
        had = bool(self._counted)
        self._counted.clear()
        return had

    @property
    def removed(self) -> list[int]:
        """The ids to remove."""
        return list(self._removed)

    def counted(self) -> Iterable[list[int]]:
        """Yield groups of ids, each of which gets one more delivery."""
        most = max(self._counted.values(), default=0)
        for times in range(1, most + 1):
            yield [message_id for message_id, count in self._counted.items() if count >= times]


class Batch:
    """The operations of one transaction, and the reads after it.

    :param sequence: the sequence of the last operation, 0 if there is none.
    :ivar rewrites: by queue, and by message id.
    """

    __slots__ = ("_changes", "reads", "rewrites", "sequence", "steps")

    def __init__(self) -> None:
        self.sequence = 0
        self.reads: list[Read] = []
        self.rewrites: dict[int, dict[int, Rewrite]] = {}
        self._changes: dict[int, Changes] = {}
        self.steps: list[Statement | dict[int, Changes]] = [self._changes]

    @property
    def empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.sequence and not self.reads

    def drop_rewrites(self) -> bool:
        """Discard counted deliveries and rewritten messages; return True if there were any.

        Each would write a whole message again, for which a full disk has no space.  After a crash this store
        lacks these messages' delivery counts and the annotations that consumers added.
        """
        gathered = [change for step in self.steps if isinstance(step, dict) for change in step.values()]
        had = bool(self.rewrites)
        self.rewrites = {}
        return sum(change.drop_counts() for change in gathered) > 0 or had  # a sum, so that all are called

    def of(self, queue: int) -> Changes:
        """Return the gathered changes of a queue."""
        changes = self._changes.get(queue)
        if changes is None:
            changes = self._changes[queue] = Changes(self.rewrites.get(queue, {}))
        return changes

    def rewrite(self, queue: int, message_id: int, rewrite: Rewrite) -> None:
        """Write a message of the database or of this batch again."""
        changes = self.of(queue)
        if message_id in changes.puts:
            changes.put(message_id, rewrite.row)
            return
        changes.rewrites = self.rewrites.setdefault(queue, {})
        changes.rewrites[message_id] = rewrite

    def forget_rewrites(self, queue: int) -> None:
        """Discard the rewrites of a deleted queue."""
        self.rewrites.pop(queue, {}).clear()

    def split(self) -> Batch:
        """Return the next batch, with the rewrites that exceed the limit of this one.

        A batch with reads keeps all its rewrites.
        """
        rest = Batch()
        if self.reads or not self.rewrites:
            return rest
        allowed, pending, self.rewrites = MOST_REWRITTEN, self.rewrites, {}
        for queue, rewrites in pending.items():
            taken = self.rewrites[queue] = {}
            for message_id, rewrite in rewrites.items():
                if allowed <= 0:
                    break
                taken[message_id] = rewrite
                allowed -= len(rewrite.prefix) + len(rewrite.data)
            for message_id in taken:
                del rewrites[message_id]
        left = [queue for queue, rewrites in pending.items() if rewrites]
        if left:
            # Queues without a rewrite in this batch come first in the next.
            left.sort(key=lambda queue: bool(self.rewrites[queue]))
            rest.rewrites = {queue: pending[queue] for queue in left}
            rest.sequence = self.sequence
        return rest

    def add(self, sql: str, *parameters: Any) -> None:
        """Add a statement behind everything added before."""
        self._changes = {}
        self.steps += (Statement(sql, parameters), self._changes)
