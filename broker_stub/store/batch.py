"""What one transaction will do, folded while it is collected.  No I/O.

Rules
-----
* A batch belongs to the loop's thread until it is given to the writer, and to the writer then.
* Operations on messages of different ids commute, so they are gathered by kind: a message that is
  put and removed within a batch is never written.  A statement about anything else stays where it
  is in the order, and closes what was gathered before it.
* Gathered changes are applied in the order counted, removed, put.  That is right for any order in
  which they came: counting or removing a message that is put in the batch changes the put itself.
* Messages that are written again come last, whatever the statements between; the end of a queue ends them.
  A batch has so many of them as make ``MOST_REWRITTEN`` bytes and leaves the others to the next one:
  whoever waits for a commit waits for no more than that.  They are joined on the writer's thread only.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

MOST_REWRITTEN: Final = 4 << 20
"""Bytes of rewritten messages in one transaction: a disk takes them in tens of milliseconds."""


class Statement(NamedTuple):
    """One SQL statement."""

    sql: str
    parameters: tuple[Any, ...]


class Read(NamedTuple):
    """Something to be read after the commit, and who waits for it."""

    function: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class Rewrite(NamedTuple):
    """A message that is in the database, as it is to be written again.

    :param prefix: what stands in front of ``data`` there.
    """

    prefix: bytes
    data: bytes
    delivery_count: int
    expires_at: int | None

    @property
    def row(self) -> tuple[bytes, int, int | None]:
        """As one that is put."""
        return self.prefix + self.data, self.delivery_count, self.expires_at


class Changes:
    """What happens to the content of one queue.

    :ivar rewrites: those of the queue in the batch.
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
        """Write the message."""
        self.puts[message_id] = row
        if self.rewrites:
            self.rewrites.pop(message_id, None)

    def remove(self, message_id: int) -> None:
        """The message is gone, be it in the database or in this batch."""
        self.puts.pop(message_id, None)
        if self.rewrites:
            self.rewrites.pop(message_id, None)
        self._removed[message_id] = None

    def count(self, message_id: int) -> None:
        """One more delivery of the message."""
        put = self.puts.get(message_id)
        if self.rewrites and (rewrite := self.rewrites.get(message_id)) is not None:
            self.rewrites[message_id] = rewrite._replace(delivery_count=rewrite.delivery_count + 1)
        elif put is not None:
            data, delivery_count, expires_at = put
            self.puts[message_id] = (data, delivery_count + 1, expires_at)
        elif message_id not in self._removed:
            self._counted[message_id] = self._counted.get(message_id, 0) + 1

    def drop_counts(self) -> bool:
        """Leave deliveries uncounted; whether there were any."""
        had = bool(self._counted)
        self._counted.clear()
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
    :ivar rewrites: by queue, and by the id of the message.
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
        """Whether there is nothing to do."""
        return not self.sequence and not self.reads

    def drop_rewrites(self) -> bool:
        """Leave deliveries uncounted, and rewritten messages as they were; whether there were any.

        Each writes the whole message again, which a full disk has no room for.  After a crash this store
        has neither how often these messages were given to a consumer, nor what consumers added to them.
        """
        gathered = [change for step in self.steps if isinstance(step, dict) for change in step.values()]
        had = bool(self.rewrites)
        self.rewrites = {}
        return sum(change.drop_counts() for change in gathered) > 0 or had  # of each of them

    def of(self, queue: int) -> Changes:
        """What is gathered for a queue."""
        changes = self._changes.get(queue)
        if changes is None:
            changes = self._changes[queue] = Changes(self.rewrites.get(queue, {}))
        return changes

    def rewrite(self, queue: int, message_id: int, rewrite: Rewrite) -> None:
        """Write a message again that is in the database or in this batch."""
        changes = self.of(queue)
        if message_id in changes.puts:
            changes.put(message_id, rewrite.row)
            return
        changes.rewrites = self.rewrites.setdefault(queue, {})
        changes.rewrites[message_id] = rewrite

    def forget_rewrites(self, queue: int) -> None:
        """A queue is deleted."""
        self.rewrites.pop(queue, {}).clear()

    def split(self) -> Batch:
        """The next batch: a new one, with the rewrites that are too many for this one.

        A batch that is read from afterwards keeps them all.
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
            # First those that had no turn.
            left.sort(key=lambda queue: bool(self.rewrites[queue]))
            rest.rewrites = {queue: pending[queue] for queue in left}
            rest.sequence = self.sequence
        return rest

    def add(self, sql: str, *parameters: Any) -> None:
        """A statement, after all that was added before."""
        self._changes = {}
        self.steps += (Statement(sql, parameters), self._changes)
