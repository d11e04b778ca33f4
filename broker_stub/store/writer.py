"""The one thread that writes: a batch is a transaction.

Theory of operation
-------------------
The loop's thread hands over a batch when the one before is done, so nothing is shared and there is
no lock; later operations are the next batch.  The slower the disk, the larger the batches:
group commit needs no delay.

Rules
-----
* A batch is reported after its COMMIT has returned and the commit count is written, in order.
* A disk that is full refuses a transaction as a whole: it is tried again (``disk_space``).
* Any other first error is final: roll back, close the connection, refuse every later batch.  After a
  failed fsync the kernel may have dropped the pages, and a second try would lie.
* SQLite's module gives up the GIL for each step of a statement, and a loop that is busy may keep it
  for many turns.  What a commit costs then is its number of steps: so many rows go into one
  statement, and ids go as one JSON array.

Sources: Rebello et al., "Can Applications Recover from fsync Failures?" (2020);
docs.python.org/3/library/sqlite3.html.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from broker_stub.store.batch import Batch, Changes, Statement
from broker_stub.store.commit_count import CommitCount
from broker_stub.store.disk_space import DiskSpace, DiskUsage, is_full, truncate_log
from broker_stub.store.errors import StoreFailedError
from broker_stub.store.schema import (
    COMMITS,
    COUNT_DELIVERY,
    PUT_COUNTER,
    PUT_META,
    REMOVE_MESSAGES,
    TRIM_CONFIRMED,
    TRIM_DUPLICATES,
    duplicate_checksum,
    message_checksum,
    progress_name,
    put_rows,
    with_checksum,
)

# Rows in one statement: the widest of these tables then has 24,576 of the 32,766 variables that SQLite
# takes.  A power of two, so that no more than 13 statements for a table have to be kept prepared.
_MOST_ROWS = 4096

# Seconds between two looks at the disk: while much is written, and while nothing is.
_MEASURE_BUSY, _MEASURE_IDLE = 0.05, 1.0
# Seconds until a full disk is tried again.
_RETRY_INTERVAL = 0.5
# Seconds that the write-ahead log keeps what was deleted, where it shall not.
TRUNCATE_INTERVAL = 2.0

T = TypeVar("T")
Done = Callable[[Batch, list[Any], StoreFailedError | None], None]


class _Finish(NamedTuple):
    """The last thing the thread is given."""

    clean: bool
    future: asyncio.Future[None]


class Writer:
    """Owns the connection and the commit count.

    :param commits: how many commits the store has seen.
    :param window: how many duplicate-detection ids a queue keeps.
    :param done: called on the loop after each batch: what its reads gave, or why it failed.
    :param truncates: empty the write-ahead log soon after each commit, for it has what was deleted.
    :param disk: what a full disk refuses is tried again, and how much room there is goes to ``measured``;
        ``None`` makes a full disk an error like any other.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        commit_count: CommitCount,
        commits: int,
        window: int,
        done: Done,
        *,
        truncates: bool = False,
        disk: DiskSpace | None = None,
        measured: Callable[[DiskUsage], None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._commit_count = commit_count
        self._commits = commits
        self._window = window
        self._done = done
        self._truncates = truncates
        self._truncate_at: float | None = None
        """When the log is to be emptied, ``None`` while there is nothing in it."""
        self._disk = disk
        self._measured = measured
        self._measure_at = time.monotonic()
        self._finishing = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._error: StoreFailedError | None = None
        self._inbox: SimpleQueue[Batch | _Finish] = SimpleQueue()
        # A daemon: a member that dies without closing its store must not hang on it.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    # -- on the loop's thread -------------------------------------------------------------------

    def submit(self, batch: Batch) -> None:
        """Have a batch committed."""
        self._inbox.put(batch)

    async def finish(self, *, clean: bool) -> None:
        """Commit what was submitted, flag the store if it is clean, and end the thread.

        :raises StoreFailedError: when the commit count could not be written.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        self._inbox.put(_Finish(clean, future))
        self._finishing.set()
        try:
            await future
        finally:
            await asyncio.to_thread(self._thread.join)

    # -- on the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while not isinstance(item := self._next(), _Finish):
            results = self._attempt(self._execute, item) or []
            self._post(self._done, item, results, self._error)
        before = self._error
        self._attempt(self._end, item)
        self._post(_resolve, item.future, self._error if before is None else None)

    def _next(self) -> Batch | _Finish:
        """What is to be done next; empty the log and measure the disk when it is time."""
        while True:
            now, due = time.monotonic(), self._truncate_at
            if due is not None and now >= due:
                self._truncate_at = due = None
                self._attempt(self._truncate_log, self._connection)
            if self._disk is not None and now >= self._measure_at:
                self._attempt(self._measure, "")
            times = [time for time in (due, self._measure_at if self._disk is not None else None) if time]
            try:
                return self._inbox.get(timeout=max(0.0, min(times) - now) if times else None)
            except Empty:
                continue

    def _measure(self, refused: str) -> None:
        assert self._disk is not None, "without a disk there is nothing to measure"
        self._measure_at = time.monotonic() + _MEASURE_IDLE
        self._post(self._measured, self._disk.measure(self._connection, refused))

    def _truncate_log(self, connection: sqlite3.Connection) -> None:
        try:
            truncate_log(connection)
        except sqlite3.Error as error:
            if self._disk is None or not is_full(error):
                raise
            self._truncate_at = time.monotonic() + TRUNCATE_INTERVAL

    def _commit(self, batch: Batch, commits: int) -> None:
        """Commit a batch, as soon as the disk has room for it.

        :raises sqlite3.Error: for any other error.
        :raises StoreFailedError: when the store is closed meanwhile.
        """
        while True:
            last = self._finishing.is_set()
            error = self._commit_with_less(batch, commits)
            if error is None:
                return
            assert self._disk is not None, "without a disk the error was raised"
            if last:
                raise StoreFailedError(self._disk.describe(error)) from error
            self._measure(self._disk.describe(error))
            self._finishing.wait(_RETRY_INTERVAL)

    def _commit_with_less(self, batch: Batch, commits: int) -> sqlite3.Error | None:
        """Commit a batch; on a full disk, with all that can be given or spared; why it was not enough."""
        error = self._tried(batch, commits)
        if error is None or self._disk is None:
            return error
        disk, connection = self._disk, self._connection

        def truncate() -> bool:
            return disk.truncate_log(connection)

        for gave in (truncate, batch.drop_rewrites, disk.release, truncate):
            if gave():
                error = self._tried(batch, commits)
                if error is None:
                    break
        return error

    def _tried(self, batch: Batch, commits: int) -> sqlite3.Error | None:
        """Commit a batch; what a full disk said."""
        try:
            commit(self._connection, batch, commits, self._window)
        except sqlite3.Error as error:
            if self._disk is None or not is_full(error):
                raise
            if self._connection.in_transaction:
                self._connection.rollback()
            return error
        return None

    def _attempt(self, job: Callable[[T], Any], item: T) -> Any:
        """Do it, unless something failed before; an error becomes the final one."""
        if self._error is not None:
            return None
        try:
            return job(item)
        except Exception as error:  # noqa: BLE001 - the thread must report any error
            self._error = StoreFailedError(f"the store failed: {error}")
            self._error.__cause__ = error
            self._abandon()
            return None

    def _execute(self, batch: Batch) -> list[Any]:
        if batch.sequence:
            commits = self._commits + 1
            self._commit(batch, commits)
            self._commit_count.write(commits)
            self._commits = commits
            if (
                self._disk is not None
                and time.monotonic() >= self._measure_at - _MEASURE_IDLE + _MEASURE_BUSY
            ):
                self._measure("")
            if self._truncates and self._truncate_at is None:
                self._truncate_at = time.monotonic() + TRUNCATE_INTERVAL
        return [read.function(self._connection) for read in batch.reads]

    def _end(self, finish: _Finish) -> None:
        if finish.clean:
            self._connection.execute(PUT_META, with_checksum("clean", json.dumps(obj=True)))
            self._truncate_log(self._connection)
        self._connection.close()
        self._commit_count.close(sync=finish.clean)

    def _abandon(self) -> None:
        """Close without another attempt to commit.

        SQLite moves what the log has committed into the database when it closes, and deletes the log, if the
        disk takes that; else the log is there at the next start.
        """
        for end in (
            self._connection.rollback,
            self._connection.close,
            lambda: self._commit_count.close(sync=False),
        ):
            try:
                end()
            except (sqlite3.Error, OSError):
                continue  # the first error is reported; these are its consequences

    def _post(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return  # the loop is closed: no one to report to


def _resolve(future: asyncio.Future[None], error: StoreFailedError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def commit(connection: sqlite3.Connection, batch: Batch, commits: int, window: int) -> None:
    """One transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for step in batch.steps:
        if isinstance(step, Statement):
            connection.execute(step.sql, step.parameters)
        elif step:
            _apply(connection, step, window)
    rewrites = [
        _message_row(queue, number, *rewrite.row)
        for queue, rewritten in batch.rewrites.items()
        for number, rewrite in rewritten.items()
    ]
    _put(connection, "messages", rewrites)
    connection.execute(PUT_COUNTER, with_checksum(COMMITS, commits))
    connection.execute("COMMIT")


def _apply(connection: sqlite3.Connection, changes: dict[int, Changes], window: int) -> None:
    for queue, change in changes.items():
        for ids in change.counted():
            connection.execute(COUNT_DELIVERY, (queue, json.dumps(ids)))
        if removed := change.removed:
            connection.execute(REMOVE_MESSAGES, (queue, json.dumps(removed)))
    _put(
        connection,
        "messages",
        [
            _message_row(queue, number, *put)
            for queue, change in changes.items()
            for number, put in change.puts.items()
        ],
    )
    _put(
        connection,
        "counters",
        [with_checksum(queue, change.last_id) for queue, change in changes.items() if change.last_id],
    )
    changed = (
        (progress_name(queue), change.site_progress)
        for queue, change in changes.items()
        if change.site_progress
    )
    _put(connection, "meta", [with_checksum(name, json.dumps(progress)) for name, progress in changed])
    for queue, change in changes.items():
        if change.duplicates:
            rows = [
                (queue, position, name, message, duplicate_checksum(queue, position, name, message))
                for position, name, message in change.duplicates
            ]
            _put(connection, "duplicates", rows)
            connection.execute(TRIM_DUPLICATES, (queue, change.duplicates[-1][0] - window))
        if change.confirmed:
            _put(connection, "confirmed", [with_checksum(queue, *entry) for entry in change.confirmed])
            last = change.confirmed[-1][0]
            connection.execute(TRIM_CONFIRMED, (queue, last - change.confirmed_kept))


def _message_row(queue: int, number: int, data: bytes, count: int, expires_at: int | None) -> tuple[Any, ...]:
    return queue, number, data, count, expires_at, message_checksum(queue, number, data, count, expires_at)


def _put(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Put rows with few statements: the number of rows as a sum of powers of two."""
    position = 0
    while left := len(rows) - position:
        count = min(_MOST_ROWS, 1 << (left.bit_length() - 1))
        statement = put_rows(table, len(rows[0]), count)
        connection.execute(statement, tuple(chain.from_iterable(rows[position : position + count])))
        position += count
