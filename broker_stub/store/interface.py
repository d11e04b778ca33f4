"""What a member keeps from one life to the next, and the interface of a store.

Rules
-----
* Everything is called on the loop's thread, and nothing here blocks it.
* An operation is *appended* when it is called and gets the next *sequence*.  It is *committed*
  when the callback of ``on_committed`` names its sequence or a higher one, and durable then.
* What is appended earlier is never committed later than what is appended after it.  What is
  appended without an ``await`` in between is committed together, or not at all.
* ``write_...`` and ``when_committed`` return a future that is done after the commit.  The
  operation is appended by the call, not by the ``await``.
* The first error of the medium is the last: the store fails.  Every operation that waits, and
  every later one, gets ``StoreFailedError``, and nothing is reported as committed any more.  An
  operation that failed may still be there after a restart (a failed fsync proves nothing).
* A queue has an identity (UUID) for the world and a small integer key within one open store.  A
  key is never given again while the store is open.  Message ids are above 0 and have 63 bits.

Source: docs/replication.md, "Generations", "Message ids" and "The store".
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from broker_stub.election.generation_steps import Pending
from broker_stub.store.disk_space import DiskUsage
from broker_stub.store.errors import StoreFailedError

FIRST_GENERATION = 0
MAX_MESSAGE_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue as it was declared.

    :param replicate: ``all``, ``configuration`` or ``none``.
    :param arguments: what JSON can hold.
    """

    identity: uuid.UUID
    name: str
    replicate: str = "all"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRecord:
    """An exchange as it was declared.

    :param type: ``direct``, ``fanout`` or ``topic``.
    :param arguments: what JSON can hold.
    """

    identity: uuid.UUID
    name: str
    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRecord:
    """A binding; exchange, queue and key together are its identity.

    :param exchange: identity of the exchange.
    :param queue: identity of the queue.
    """

    exchange: uuid.UUID
    queue: uuid.UUID
    key: str = ""


class StoredMessage(NamedTuple):
    """One message.  A tuple, because a million of them are made when a member starts.

    ``expires_at`` is wall-clock time in milliseconds since the epoch, ``None`` for never.
    """

    id: int
    data: bytes
    delivery_count: int = 0
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A queue in the store.

    :param key: names the queue in the operations on its messages.
    :param last_id: the highest message id ever put, 0 for none; also of messages long gone.
    :param site_progress: what ``put_site_progress`` wrote last; empty for nothing.
    """

    key: int
    record: QueueRecord
    last_id: int
    site_progress: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All of a store but the messages and the duplicate-detection ids.

    :param was_clean: the last life ended by ``close(clean=True)``; true for a store just made.
    :param generation: the own one, ``None`` for erased; ``claim`` is what it was won with.
    :param cluster: the UUID of the cluster that the content belongs to, empty for none.
    :param replicas: the names of the other replicas that were ready under the primary of ``generation``;
        none where this member was that primary.
    """

    was_clean: bool = True
    generation: int | None = FIRST_GENERATION
    pending: Pending | None = None
    claim: str = ""
    cluster: str = ""
    replicas: tuple[str, ...] = ()
    queues: tuple[StoredQueue, ...] = ()
    exchanges: tuple[ExchangeRecord, ...] = ()
    bindings: tuple[BindingRecord, ...] = ()


class Store(Protocol):
    """The store of one member: ``open_store()`` or ``MemoryStore()``."""

    @property
    def identity(self) -> uuid.UUID:
        """Which store this is; a store that replaced a corrupted one has another identity."""

    @property
    def corruption(self) -> str:
        """What was wrong with the store that was found, in words; empty when nothing was."""

    @property
    def sequence(self) -> int:
        """The sequence of the last operation that was appended."""

    @property
    def committed(self) -> int:
        """The highest sequence that is committed."""

    # -- reading --------------------------------------------------------------------------------

    async def load(self) -> Snapshot:
        """All but the messages, with everything that was appended before."""

    def messages(self, queue: int) -> AsyncIterator[list[StoredMessage]]:
        """The messages of a queue in the order of their ids, a bounded number at a time.

        Each chunk is read when it is asked for, after what was appended before.
        """

    async def duplicates(self, queue: int) -> list[tuple[bytes, int]]:
        """The remembered duplicate-detection ids, oldest first, with the first copy's message id."""

    async def confirmed(self, queue: int) -> list[tuple[bytes, int]]:
        """What ``put_confirmed`` wrote last, oldest first."""

    def queue_key(self, identity: uuid.UUID) -> int:
        """The key of a queue.

        :raises UnknownQueueError: when there is none.
        """

    # -- commits --------------------------------------------------------------------------------

    def on_committed(self, callback: Callable[[int], None]) -> None:
        """Call once for each commit with the highest committed sequence."""

    def on_failed(self, callback: Callable[[StoreFailedError], None]) -> None:
        """Call once when the store fails; soon, when it has failed already."""

    def on_disk(self, callback: Callable[[DiskUsage], None]) -> None:
        """Call about once a second with how much room there is, where there is a disk to fill.

        The first time soon, if it was measured already.
        """

    def commit_progress(self) -> int:
        """Look at a commit that takes long: a number that has grown since the last look if it goes on."""

    def when_committed(self, sequence: int) -> asyncio.Future[None]:
        """Done after the commit of an operation, or failed with ``StoreFailedError``."""

    # -- generation and cluster -----------------------------------------------------------------

    def write_generation(self, generation: int | None) -> asyncio.Future[None]:
        """Set the own generation, or erase it with ``None``."""

    def write_pending(self, pending: Pending | None) -> asyncio.Future[None]:
        """Set what is about to be claimed, or clear it."""

    def write_cluster(self, cluster: str, claim: str) -> asyncio.Future[None]:
        """Set the UUID of the cluster, and the claim of the own generation."""

    def put_replicas(self, names: Iterable[str]) -> int:
        """Set the other ready replicas."""

    # -- wiring ---------------------------------------------------------------------------------

    def put_queue(self, record: QueueRecord) -> int:
        """Make a queue, or change the one of this identity."""

    def delete_queue(self, queue: int) -> int:
        """Delete a queue with its content and the bindings to it."""

    def put_exchange(self, record: ExchangeRecord) -> int:
        """Make an exchange, or change the one of this identity."""

    def delete_exchange(self, identity: uuid.UUID) -> int:
        """Delete an exchange with its bindings."""

    def put_binding(self, record: BindingRecord) -> int:
        """Make a binding, or change the one of this identity."""

    def delete_binding(self, record: BindingRecord) -> int:
        """Delete the binding with the record's exchange, queue and key."""

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
        """Put a message, in place of the one of this id if there is one.

        :param expires_at: wall-clock time in milliseconds since the epoch.
        :param duplicate_id: remembered with the message.
        :raises UnknownQueueError: when there is no such queue.
        """

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
        """Put a message again that is there, which holds up nothing else.

        On a full disk it stays as it was.  Where many are to be put again, some may follow with later commits
        than that of the sequence.

        :param prefix: what is to stand in front of ``data``; the store joins them when it writes.
        :raises UnknownQueueError: when there is no such queue.
        """

    def remove_messages(self, queue: int, ids: Iterable[int]) -> int:
        """Messages are gone.  Ids and queues that are not there are no error."""

    def count_delivery(self, queue: int, ids: Iterable[int]) -> int:
        """Add one to the delivery count of messages.  What is not there is no error."""

    def put_duplicates(self, queue: int, duplicates: Iterable[tuple[bytes, int]]) -> int:
        """Remember duplicate-detection ids; the oldest leave when the window is full."""

    def clear_duplicates(self, queue: int) -> int:
        """Forget the duplicate-detection ids of a queue."""

    def put_confirmed(self, queue: int, confirmed: Iterable[tuple[bytes, int]], *, keep: int) -> int:
        """Remember who accepted which messages, so that it is confirmed.

        :param confirmed: who, in a few bytes, and the id of the message.
        :param keep: how many to remember; the oldest leave.
        """

    def clear_confirmed(self, queue: int) -> int:
        """Forget what was confirmed of a queue."""

    def put_site_progress(self, queue: int, progress: Mapping[str, Any]) -> int:
        """Set what a queue remembers beside its messages: what JSON can hold.

        Of one commit the last ones are written.  They end with the queue, and with nothing else.
        """

    # -- the end --------------------------------------------------------------------------------

    async def close(self, *, clean: bool = True) -> None:
        """Commit what was appended and end; only ``clean`` leaves the store marked as clean.

        :raises StoreFailedError: when the commit count could not be written.
        """
