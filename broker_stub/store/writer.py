"""The only thread that writes: each batch is one transaction.

Theory of operation
-------------------
The loop hands over a batch when the batch before it is done.  So the threads share nothing and need no lock.
Later operations form the next batch.  The slower the disk, the larger the batches: group commit needs no
delay.

Rules
-----
* A batch is reported after its COMMIT has returned and the commit count is written, in order.
* If a full disk refuses a transaction as a whole, it is retried (``disk_space``).
* ``commit_progress`` detects whether a long commit makes progress or hangs.
* Any other error is final: roll back, close the connection, refuse every later batch.  After a failed fsync
  the kernel may have dropped the pages, so a retry could succeed without writing them.
* SQLite's module releases the GIL for each step of a statement, and a busy loop may delay its return each
  time.  So a commit costs in proportion to its steps: a statement puts many rows, and ids are passed as one
  JSON array.

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
from broker_stub.store.commit_progress import CommitProgress
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

# Rows in one statement: for the widest table 24,576 of the 32,766 variables that SQLite allows.  A power of
# two, so that at most 13 prepared statements are kept for a table.
_MOST_ROWS = 4096

# Seconds between two measurements of the disk: while batches are written, and while idle.
_MEASURE_BUSY, _MEASURE_IDLE = 0.05, 1.0
# Seconds between two attempts on a full disk.
_RETRY_INTERVAL = 0.5
# Seconds that the write-ahead log may keep deleted data, if it must not keep them for good.
TRUNCATE_INTERVAL = 2.0

T = TypeVar("T")
Done = Callable[[Batch, list[Any], StoreFailedError | None], None]


class _Finish(NamedTuple):
    """The last item for the thread."""

    clean: bool
    future: asyncio.Future[None]


class Writer:
    """Owns the connection and the commit count.

    :param commits: the number of commits of the store so far.
    :param window: how many duplicate-detection ids a queue keeps.
    :param done: called on the loop after each batch with the results of its reads, or its error.
    :param progress: counts the progress of a long commit.
    :param truncates: truncate the write-ahead log soon after each commit, because it contains deleted data.
    :param disk: retry transactions that a full disk refuses; ``None`` makes a full disk an error like any
        other.
    :param measured: called on the loop with the disk usage.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        commit_count: CommitCount,
        commits: int,
        window: int,
        done: Done,
        *,
        progress: CommitProgress,
        truncates: bool = False,
        disk: DiskSpace | None = None,
        measured: Callable[[DiskUsage], None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._commit_count = commit_count
        self._progress = progress
        self._commits = commits
        self._window = window
        self._done = done
        self._truncates = truncates
        self._truncate_at: float | None = None
        """The time at which to truncate the log; ``None`` while it is empty."""
        self._disk = disk
        self._measured = measured
        self._measure_at = time.monotonic()
        self._finishing = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._error: StoreFailedError | None = None
        self._inbox: SimpleQueue[Batch | _Finish] = SimpleQueue()
        # A daemon thread: a member that exits without closing its store must not wait for it.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    # -- on the loop's thread -------------------------------------------------------------------

    def submit(self, batch: Batch) -> None:
        """Queue a batch for its commit."""
        self._inbox.put(batch)

    async def finish(self, *, clean: bool) -> None:
        """Commit the submitted batches, mark the store as clean if ``clean``, and end the thread.

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
        self._progress.started()
        while not isinstance(item := self._next(), _Finish):
            results = self._attempt(self._execute, item) or []
            self._post(self._done, item, results, self._error)
        before = self._error
        self._attempt(self._end, item)
        self._post(_resolve, item.future, self._error if before is None else None)

    def _next(self) -> Batch | _Finish:
        """Return the next batch; meanwhile truncate the log and measure the disk when due."""
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
        """Commit a batch as soon as the disk has space for it.

        :raises sqlite3.Error: for any other error.
        :raises StoreFailedError: when the store is closed meanwhile.
        """
        while True:
            last = self._finishing.is_set()
            error = self._commit_freeing_space(batch, commits)
            if error is None:
                return
            assert self._disk is not None, "without a disk the error was raised"
            if last:
                raise StoreFailedError(self._disk.describe(error)) from error
            self._progress.stuck = True
            self._measure(self._disk.describe(error))
            self._finishing.wait(_RETRY_INTERVAL)

    def _commit_freeing_space(self, batch: Batch, commits: int) -> sqlite3.Error | None:
        """Commit a batch, freeing all possible space on a full disk; return the error if that fails."""
        error = self._try_commit(batch, commits)
        if error is None or self._disk is None:
            return error
        disk, connection = self._disk, self._connection

        def truncate() -> bool:
            return disk.truncate_log(connection)

        for gave in (truncate, batch.drop_rewrites, disk.release, truncate):
            if gave():
                error = self._try_commit(batch, commits)
                if error is None:
                    break
        return error

    def _try_commit(self, batch: Batch, commits: int) -> sqlite3.Error | None:
        """Commit a batch; return the error if the disk is full."""
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
        """Run a job, unless an error occurred before; an error becomes the final one."""
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
            self._progress.stuck = False
            self._commit(batch, commits)
            self._progress.check()
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
        self._progress.close()
        self._commit_count.close(sync=finish.clean)

    def _abandon(self) -> None:
        """Close without another attempt to commit.

        On closing, SQLite moves committed transactions from the log into the database and deletes the log.
        If the disk refuses this, the log remains for the next start.
        """
        for end in (
            self._connection.rollback,
            self._connection.close,
            self._progress.close,
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
            return  # the loop is closed


def _resolve(future: asyncio.Future[None], error: StoreFailedError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def commit(connection: sqlite3.Connection, batch: Batch, commits: int, window: int) -> None:
    """Commit a batch as one transaction."""
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
    """Put rows with few statements: the number of rows is split into powers of two."""
    position = 0
    while left := len(rows) - position:
        count = min(_MOST_ROWS, 1 << (left.bit_length() - 1))
        statement = put_rows(table, len(rows[0]), count)
        connection.execute(statement, tuple(chain.from_iterable(rows[position : position + count])))
        position += count
