"""A store in memory, which ends with the process and follows the same rules.

It commits in the loop's next iteration, so that callers see the same order of events as with a disk.  It
shares the bytes of messages with the queue and does not copy them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker_stub.election.generation_steps import Pending
from broker_stub.store.commits import Commits, Committing
from broker_stub.store.disk_space import DiskUsage
from broker_stub.store.errors import UnknownQueueError
from broker_stub.store.interface import (
    MAX_MESSAGE_ID,
    BindingRecord,
    ExchangeRecord,
    QueueRecord,
    Snapshot,
    StoredMessage,
    StoredQueue,
)
from broker_stub.store.reading import CHUNK_MESSAGES


@dataclass(slots=True)
class _Queue:
    record: QueueRecord
    duplicates: deque[tuple[bytes, int]]
    last_id: int = 0
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    site_progress: Mapping[str, Any] = field(default_factory=dict)
    confirmed: deque[tuple[bytes, int]] = field(default_factory=deque)


class MemoryStore(Committing):
    """``Store`` without a file.

    :param duplicates: how many duplicate-detection ids a queue remembers.
    """

    def __init__(self, *, duplicates: int) -> None:
        self.identity = uuid.uuid4()
        self.corruption = ""
        self._window = duplicates
        self._commits = Commits()
        self._scheduled = False
        self._facts = Snapshot()
        self._last_key = 0
        self._queues: dict[int, _Queue] = {}
        self._keys: dict[uuid.UUID, int] = {}
        self._exchanges: dict[uuid.UUID, ExchangeRecord] = {}
        self._bindings: dict[tuple[uuid.UUID, uuid.UUID, str], BindingRecord] = {}

    def on_disk(self, callback: Callable[[DiskUsage], None]) -> None:
        """Do nothing: there is no disk."""

    def commit_progress(self) -> int:
        """Return 0: each commit takes one iteration of the loop, so none is long."""
        return 0

    # -- reading --------------------------------------------------------------------------------

    async def load(self) -> Snapshot:
        """See ``Store``."""
        self._check()
        return replace(
            self._facts,
            queues=tuple(
                StoredQueue(key, queue.record, queue.last_id, queue.site_progress)
                for key, queue in self._queues.items()
            ),
            exchanges=tuple(
                sorted(self._exchanges.values(), key=lambda item: (item.name, item.identity.bytes))
            ),
            bindings=tuple(binding for _, binding in sorted(self._bindings.items())),
        )

    async def messages(self, queue: int) -> AsyncIterator[list[StoredMessage]]:
        """See ``Store``."""
        after = 0
        while chunk := self._chunk(queue, after):
            after = chunk[-1].id
            yield chunk

    def _chunk(self, key: int, after: int) -> list[StoredMessage]:
        self._check()
        queue = self._queues.get(key)
        if queue is None:
            return []
        ids = sorted(number for number in queue.messages if number > after)
        return [queue.messages[number] for number in ids[:CHUNK_MESSAGES]]

    async def duplicates(self, queue: int) -> list[tuple[bytes, int]]:
        """See ``Store``."""
        self._check()
        return list(self._queues[queue].duplicates) if queue in self._queues else []

    async def confirmed(self, queue: int) -> list[tuple[bytes, int]]:
        """See ``Store``."""
        self._check()
        return list(self._queues[queue].confirmed) if queue in self._queues else []

    def queue_key(self, identity: uuid.UUID) -> int:
        """See ``Store``."""
        key = self._keys.get(identity)
        if key is None:
            raise UnknownQueueError(identity)
        return key

    # -- generation and cluster -----------------------------------------------------------------

    def write_generation(self, generation: int | None) -> asyncio.Future[None]:
        """See ``Store``."""
        self._check()
        self._facts = replace(self._facts, generation=generation)
        return self.when_committed(self._appended())

    def write_pending(self, pending: Pending | None) -> asyncio.Future[None]:
        """See ``Store``."""
        self._check()
        self._facts = replace(self._facts, pending=pending)
        return self.when_committed(self._appended())

    def write_cluster(self, cluster: str, claim: str) -> asyncio.Future[None]:
        """See ``Store``."""
        self._check()
        self._facts = replace(self._facts, cluster=cluster, claim=claim)
        return self.when_committed(self._appended())

    def put_replicas(self, names: Iterable[str]) -> int:
        """See ``Store``."""
        self._check()
        self._facts = replace(self._facts, replicas=tuple(names))
        return self._appended()

    # -- wiring ---------------------------------------------------------------------------------

    def put_queue(self, record: QueueRecord) -> int:
        """See ``Store``."""
        self._check()
        key = self._keys.get(record.identity)
        if key is None:
            self._last_key += 1
            self._keys[record.identity] = self._last_key
            self._queues[self._last_key] = _Queue(record, deque(maxlen=self._window))
        else:
            self._queues[key].record = record
        return self._appended()

    def delete_queue(self, queue: int) -> int:
        """See ``Store``."""
        identity = self._queue(queue).record.identity
        del self._queues[queue], self._keys[identity]
        self._bindings = {key: item for key, item in self._bindings.items() if item.queue != identity}
        return self._appended()

    def put_exchange(self, record: ExchangeRecord) -> int:
        """See ``Store``."""
        self._check()
        self._exchanges[record.identity] = record
        return self._appended()

    def delete_exchange(self, identity: uuid.UUID) -> int:
        """See ``Store``."""
        self._check()
        self._exchanges.pop(identity, None)
        self._bindings = {key: item for key, item in self._bindings.items() if item.exchange != identity}
        return self._appended()

    def put_binding(self, record: BindingRecord) -> int:
        """See ``Store``."""
        self._check()
        self._bindings[record.exchange, record.queue, record.key] = record
        return self._appended()

    def delete_binding(self, record: BindingRecord) -> int:
        """See ``Store``."""
        self._check()
        self._bindings.pop((record.exchange, record.queue, record.key), None)
        return self._appended()

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
        found = self._queue(queue)
        if not 0 < message_id <= MAX_MESSAGE_ID:
            raise ValueError(f"a message id has 63 bits and is above 0, unlike {message_id}")
        found.last_id = max(found.last_id, message_id)
        found.messages[message_id] = StoredMessage(message_id, data, delivery_count, expires_at)
        if duplicate_id is not None:
            found.duplicates.append((duplicate_id, message_id))
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
        messages = self._queue(queue).messages
        messages[message_id] = StoredMessage(message_id, prefix + data, delivery_count, expires_at)
        return self._appended()

    def remove_messages(self, queue: int, ids: Iterable[int]) -> int:
        """See ``Store``."""
        self._check()
        if queue in self._queues:
            messages = self._queues[queue].messages
            for message_id in ids:
                messages.pop(message_id, None)
        return self._appended()

    def count_delivery(self, queue: int, ids: Iterable[int]) -> int:
        """See ``Store``."""
        self._check()
        if queue in self._queues:
            messages = self._queues[queue].messages
            for message_id in ids:
                if (message := messages.get(message_id)) is not None:
                    messages[message_id] = message._replace(delivery_count=message.delivery_count + 1)
        return self._appended()

    def put_duplicates(self, queue: int, duplicates: Iterable[tuple[bytes, int]]) -> int:
        """See ``Store``."""
        self._queue(queue).duplicates.extend(duplicates)
        return self._appended()

    def clear_duplicates(self, queue: int) -> int:
        """See ``Store``."""
        self._queue(queue).duplicates.clear()
        return self._appended()

    def put_confirmed(self, queue: int, confirmed: Iterable[tuple[bytes, int]], *, keep: int) -> int:
        """See ``Store``."""
        window = self._queue(queue).confirmed
        window.extend(confirmed)
        while len(window) > keep:
            window.popleft()
        return self._appended()

    def clear_confirmed(self, queue: int) -> int:
        """See ``Store``."""
        self._queue(queue).confirmed.clear()
        return self._appended()

    def put_site_progress(self, queue: int, progress: Mapping[str, Any]) -> int:
        """See ``Store``."""
        self._queue(queue).site_progress = progress
        return self._appended()

    # -- the end --------------------------------------------------------------------------------

    async def close(self, *, clean: bool = True) -> None:
        """See ``Store``."""
        self._commits.close()
        if self._commits.committed < self._commits.sequence:
            await self.when_committed(self._commits.sequence)

    # -- inside ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._commits.refusal is not None:
            self._commits.refuse()

    def _queue(self, key: int) -> _Queue:
        self._check()
        queue = self._queues.get(key)
        if queue is None:
            raise UnknownQueueError(key)
        return queue

    def _appended(self) -> int:
        self._commits.sequence += 1
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._commit)
        return self._commits.sequence

    def _commit(self) -> None:
        self._scheduled = False
        self._commits.done(self._commits.sequence)
