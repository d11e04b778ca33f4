"""The store in a directory: the part on the loop's thread.

Theory of operation
-------------------
Each operation changes the current batch, which belongs to the loop.  When the writer is idle, the batch is
handed over at the end of the loop's iteration.  So the operations of one iteration are one transaction.
While the writer is busy, the batch grows.  After a commit, the loop hands over the next batch first and then
runs the callbacks, so that the disk works meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from broker_stub.election.generation_steps import Pending
from broker_stub.store import files, reading, schema
from broker_stub.store.batch import Batch, Read, Rewrite
from broker_stub.store.commits import Commits, Committing, again
from broker_stub.store.disk_space import DiskSpace, DiskUsage
from broker_stub.store.errors import StoreFailedError, UnknownQueueError
from broker_stub.store.interface import (
    MAX_MESSAGE_ID,
    BindingRecord,
    ExchangeRecord,
    QueueRecord,
    Snapshot,
    StoredMessage,
)
from broker_stub.store.opening import Opened, QueueState, open_files
from broker_stub.store.start_progress import StartProgress
from broker_stub.store.writer import Writer

T = TypeVar("T")

# Unused columns and fields of the format: every store has these values in them.
_DURABLE, _NO_ARGUMENTS, _NO_ADDRESS = 1, "{}", ""


async def open_store(
    directory: Path | str,
    *,
    duplicates: int,
    delay: float = 0.0,
    expected_identity: uuid.UUID | None = None,
    clock: Callable[[], float] = time.time,
    secure_delete: bool = False,
    progress: StartProgress | None = None,
    reserve: int | None = None,
) -> SqliteStore:
    """Open the store of a directory, or make one; ``corruption`` is set if it replaces a corrupted one.

    :param duplicates: how many duplicate-detection ids a queue remembers.
    :param delay: seconds between the first operation of a batch and its commit, to collect more.
    :param expected_identity: the identity of the store that should be there, if known.
    :param clock: seconds since the epoch, for the names of corrupted stores.
    :param secure_delete: overwrite deleted data, and soon also its copies in the write-ahead log.
    :param progress: counts the progress of reading, now and later.
    :param reserve: bytes to reserve for emptying the store on a full disk.  Transactions that a full disk
        refuses are then retried; with ``None`` the store fails.
    :raises StoreLockedError: when another process has it open.
    :raises StoreFailedError: when the directory cannot be used.
    """
    disk = None if reserve is None else DiskSpace(Path(directory), reserve)
    opening = asyncio.ensure_future(
        asyncio.to_thread(
            open_files,
            Path(directory),
            expected_identity=expected_identity,
            clock=clock,
            secure_delete=secure_delete,
            progress=progress,
            disk=disk,
        )
    )
    try:
        opened = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_drop)
        raise
    store = SqliteStore(opened, duplicates=duplicates, delay=delay, secure_delete=secure_delete, disk=disk)
    store.progress = progress or store.progress
    return store


def _drop(opening: asyncio.Future[Opened]) -> None:
    """Close the files after the opener was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        opened = opening.result()
        opened.connection.close()
        opened.commit_count.close(sync=False)
        opened.commit_progress.close()
        files.unlock(opened.lock)


class SqliteStore(Committing):
    """``Store`` in a directory; made by ``open_store``."""

    def __init__(
        self,
        opened: Opened,
        *,
        duplicates: int,
        delay: float,
        secure_delete: bool = False,
        disk: DiskSpace | None = None,
    ) -> None:
        self.identity = opened.identity
        self.corruption = opened.corruption
        self.progress = StartProgress()
        self._was_clean = opened.was_clean
        self._lock = opened.lock
        self._identities = opened.queues
        self._queues = {state.key: state for state in opened.queues.values()}
        self._last_key = max(self._queues, default=schema.COMMITS)
        self._window = duplicates
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._commits = Commits()
        self._batch = Batch()
        self._busy = False
        self._scheduled = False
        self._closing: asyncio.Task[None] | None = None
        self._on_disk: Callable[[DiskUsage], None] | None = None
        self._usage: DiskUsage | None = None
        self._commit_progress = opened.commit_progress
        self._writer = Writer(
            opened.connection,
            opened.commit_count,
            opened.commits,
            duplicates,
            self._done,
            progress=opened.commit_progress,
            truncates=secure_delete,
            disk=disk,
            measured=self._measured,
        )

    def on_disk(self, callback: Callable[[DiskUsage], None]) -> None:
        """See ``Store``."""
        self._on_disk = callback
        if self._usage is not None:
            asyncio.get_running_loop().call_soon(callback, self._usage)

    def commit_progress(self) -> int:
        """See ``Store``."""
        return self._commit_progress.tick()

    def _measured(self, usage: DiskUsage) -> None:
        self._usage = usage
        if self._on_disk is not None:
            self._on_disk(usage)

    # -- reading --------------------------------------------------------------------------------

    async def load(self) -> Snapshot:
        """See ``Store``."""
        snapshot = await self._read(lambda connection: reading.snapshot(connection, was_clean=True))
        return replace(snapshot, was_clean=self._was_clean)

    async def messages(self, queue: int) -> AsyncIterator[list[StoredMessage]]:
        """See ``Store``."""
        after, more = 0, True
        while more:
            chunk, more = await self._read(
                lambda connection, after=after: reading.chunk(connection, queue, after)  # type: ignore[misc]
            )
            if chunk:
                after = chunk[-1].id
                self.progress.read += len(chunk)
                yield chunk

    async def duplicates(self, queue: int) -> list[tuple[bytes, int]]:
        """See ``Store``."""
        self._check()
        state = self._queues.get(queue)
        if state is not None and not state.position:
            return []  # faster: a starting member reads all its queues, and most have no ids
        found = await self._read(lambda connection: reading.window(connection, "duplicates", queue))
        return found[-self._window :]

    async def confirmed(self, queue: int) -> list[tuple[bytes, int]]:
        """See ``Store``."""
        self._check()
        state = self._queues.get(queue)
        if state is not None and not state.confirmed:
            return []
        return await self._read(lambda connection: reading.window(connection, "confirmed", queue))

    def queue_key(self, identity: uuid.UUID) -> int:
        """See ``Store``."""
        state = self._identities.get(identity)
        if state is None:
            raise UnknownQueueError(identity)
        return state.key

    # -- generation and cluster -----------------------------------------------------------------

    def write_generation(self, generation: int | None) -> asyncio.Future[None]:
        """See ``Store``."""
        return self.when_committed(self._put_meta("number", generation))

    def write_pending(self, pending: Pending | None) -> asyncio.Future[None]:
        """See ``Store``."""
        value = None if pending is None else [pending.generation, pending.claim]
        return self.when_committed(self._put_meta("pending", value))

    def write_cluster(self, cluster: str, claim: str) -> asyncio.Future[None]:
        """See ``Store``."""
        self._put_meta("claim", claim)
        return self.when_committed(self._put_meta("cluster", cluster))

    def put_replicas(self, names: Iterable[str]) -> int:
        """See ``Store``."""
        return self._put_meta("replicas", [[name, _NO_ADDRESS] for name in names])

    def _put_meta(self, name: str, value: Any) -> int:
        return self._append(schema.PUT_META, *schema.with_checksum(name, json.dumps(value)))

    # -- wiring ---------------------------------------------------------------------------------

    def put_queue(self, record: QueueRecord) -> int:
        """See ``Store``."""
        arguments = json.dumps(dict(record.arguments))
        self._check()
        state = self._identities.get(record.identity)
        if state is None:
            self._last_key += 1
            state = QueueState(self._last_key, record.identity)
            self._identities[record.identity] = self._queues[state.key] = state
        facts = (record.identity.bytes, record.name, record.replicate, _DURABLE, arguments)
        return self._append(schema.PUT_QUEUE, *schema.with_checksum(state.key, *facts))

    def delete_queue(self, queue: int) -> int:
        """See ``Store``."""
        identity = self._state(queue).identity
        del self._queues[queue], self._identities[identity]
        self._batch.forget_rewrites(queue)
        for table in ("queues", "messages", "duplicates", "confirmed", "counters"):
            self._batch.add(f"DELETE FROM {table} WHERE queue = ?", queue)  # noqa: S608 - our own words
        self._batch.add("DELETE FROM meta WHERE name = ?", schema.progress_name(queue))
        return self._append("DELETE FROM bindings WHERE queue = ?", identity.bytes)

    def put_exchange(self, record: ExchangeRecord) -> int:
        """See ``Store``."""
        facts = (record.identity.bytes, record.name, record.type, json.dumps(dict(record.arguments)))
        return self._append(schema.PUT_EXCHANGE, *schema.with_checksum(*facts))

    def delete_exchange(self, identity: uuid.UUID) -> int:
        """See ``Store``."""
        self._append("DELETE FROM exchanges WHERE identity = ?", identity.bytes)
        return self._append("DELETE FROM bindings WHERE exchange = ?", identity.bytes)

    def put_binding(self, record: BindingRecord) -> int:
        """See ``Store``."""
        identity = (record.exchange.bytes, record.queue.bytes, record.key)
        return self._append(schema.PUT_BINDING, *schema.with_checksum(*identity, _NO_ARGUMENTS))

    def delete_binding(self, record: BindingRecord) -> int:
        """See ``Store``."""
        identity = (record.exchange.bytes, record.queue.bytes, record.key)
        return self._append("DELETE FROM bindings WHERE exchange = ? AND queue = ? AND key = ?", *identity)

    # -- messages -------------------------------------------------------------------------------

    def put_message(
        self,
        queue: int,
        message_id: int,
        data: bytes,
        *,
        delivery_count: int = 0,
        expires_at: int | None = None,
        duplicate_id: bytes | None = None,
    ) -> int:
        """See ``Store``."""
        state = self._state(queue)
        if not 0 < message_id <= MAX_MESSAGE_ID:
            raise ValueError(f"a message id has 63 bits and is above 0, unlike {message_id}")
        if message_id > state.last_id:  # noqa: PLR1730  (no call: faster)
            state.last_id = message_id
        changes = self._batch.of(queue)
        changes.put(message_id, (data, delivery_count, expires_at))
        changes.last_id = state.last_id
        if duplicate_id is not None:
            state.position += 1
            changes.duplicates.append((state.position, duplicate_id, message_id))
        return self._appended()

    def rewrite_message(
        self,
        queue: int,
        message_id: int,
        data: bytes,
        *,
        prefix: bytes = b"",
        delivery_count: int,
        expires_at: int | None,
    ) -> int:
        """See ``Store``."""
        self._state(queue)
        self._batch.rewrite(queue, message_id, Rewrite(prefix, data, delivery_count, expires_at))
        return self._appended()

    def remove_messages(self, queue: int, ids: Iterable[int]) -> int:
        """See ``Store``."""
        self._check()
        if queue in self._queues:
            remove = self._batch.of(queue).remove
            for message_id in ids:
                remove(message_id)
        return self._appended()

    def count_delivery(self, queue: int, ids: Iterable[int]) -> int:
        """See ``Store``."""
        self._check()
        if queue in self._queues:
            count = self._batch.of(queue).count
            for message_id in ids:
                count(message_id)
        return self._appended()

    def put_duplicates(self, queue: int, duplicates: Iterable[tuple[bytes, int]]) -> int:
        """See ``Store``."""
        state = self._state(queue)
        remembered = self._batch.of(queue).duplicates
        for duplicate_id, message_id in duplicates:
            state.position += 1
            remembered.append((state.position, duplicate_id, message_id))
        return self._appended()

    def clear_duplicates(self, queue: int) -> int:
        """See ``Store``."""
        self._state(queue)
        return self._append("DELETE FROM duplicates WHERE queue = ?", queue)

    def put_confirmed(self, queue: int, confirmed: Iterable[tuple[bytes, int]], *, keep: int) -> int:
        """See ``Store``."""
        state, changes = self._state(queue), self._batch.of(queue)
        for owner, message_id in confirmed:
            state.confirmed += 1
            changes.confirmed.append((state.confirmed, owner, message_id))
        changes.confirmed_kept = keep
        return self._appended()

    def clear_confirmed(self, queue: int) -> int:
        """See ``Store``."""
        self._state(queue)
        return self._append("DELETE FROM confirmed WHERE queue = ?", queue)

    def put_site_progress(self, queue: int, progress: Mapping[str, Any]) -> int:
        """See ``Store``."""
        self._state(queue)
        self._batch.of(queue).site_progress = progress
        return self._appended()

    # -- the end --------------------------------------------------------------------------------

    async def close(self, *, clean: bool = True) -> None:
        """See ``Store``."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(clean=clean))
        await asyncio.shield(self._closing)

    async def _close(self, *, clean: bool) -> None:
        self._commits.close()
        while not self._batch.empty:
            self._hand_over()
        try:
            await self._writer.finish(clean=clean)
        finally:
            files.unlock(self._lock)

    # -- inside ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._commits.refusal is not None:
            self._commits.refuse()

    def _state(self, queue: int) -> QueueState:
        if self._commits.refusal is not None:
            self._commits.refuse()
        state = self._queues.get(queue)
        if state is None:
            raise UnknownQueueError(queue)
        return state

    def _append(self, sql: str, *parameters: Any) -> int:
        self._check()
        self._batch.add(sql, *parameters)
        return self._appended()

    def _appended(self) -> int:
        self._commits.sequence = self._batch.sequence = sequence = self._commits.sequence + 1
        if not self._busy and not self._scheduled:
            self._schedule()
        return sequence

    async def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        self._check()
        future: asyncio.Future[T] = self._loop.create_future()
        self._batch.reads.append(Read(function, future))
        if not self._busy and not self._scheduled:
            self._schedule()
        return await future

    def _schedule(self) -> None:
        self._scheduled = True
        if self._delay:
            self._loop.call_later(self._delay, self._run_once)
        else:
            self._loop.call_soon(self._run_once)

    def _run_once(self) -> None:
        self._scheduled = False
        if not self._busy and not self._batch.empty:
            self._hand_over()

    def _hand_over(self) -> None:
        batch = self._batch
        self._batch = batch.split()
        self._busy = True
        self._writer.submit(batch)

    def _done(self, batch: Batch, results: list[Any], error: StoreFailedError | None) -> None:
        """Handle the end of a batch, on the loop."""
        self._busy = False
        if error is not None:
            self._fail(batch, error)
            return
        if not self._batch.empty and not self._scheduled:
            self._schedule() if self._delay else self._hand_over()
        for read, result in zip(batch.reads, results, strict=True):
            if not read.future.done():
                read.future.set_result(result)
        if batch.sequence:
            self._commits.done(batch.sequence)

    def _fail(self, batch: Batch, error: StoreFailedError) -> None:
        waiting, self._batch = (*batch.reads, *self._batch.reads), Batch()
        for read in waiting:
            if not read.future.done():
                read.future.set_exception(again(error))
        self._commits.fail(error)
