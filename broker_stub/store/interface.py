"""The interface of a store, which keeps a member's state across restarts.

Rules
-----
* Everything is called on the loop's thread, and nothing here blocks it.
* An operation is *appended* when it is called, and gets the next *sequence*.  It is *committed*, and durable,
  when the callback of ``on_committed`` gets its sequence or a higher one.
* Operations are committed in the order in which they were appended.  Operations appended without an ``await``
  in between are committed together, or not at all.
* ``write_...`` and ``when_committed`` return a future that is done after the commit.  The call appends the
  operation, not the ``await``.
* The first error of the medium is final: the store fails.  Every waiting and every later operation gets
  ``StoreFailedError``, and no more commits are reported.  A failed operation may still be in the store after
  a restart (a failed fsync proves nothing).
* A queue has a global identity (UUID), and a small integer key within one open store.  A key is never reused
  while the store is open.  Message ids are above 0 and have 63 bits.

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
    """The declaration of a queue.

    :param replicate: ``all``, ``configuration`` or ``none``.
    :param arguments: JSON types.
    """

    identity: uuid.UUID
    name: str
    replicate: str = "all"
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRecord:
    """The declaration of an exchange.

    :param type: ``direct``, ``fanout`` or ``topic``.
    :param arguments: JSON types.
    """

    identity: uuid.UUID
    name: str
    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRecord:
    """A binding, identified by exchange, queue and key together.

    :param exchange: identity of the exchange.
    :param queue: identity of the queue.
    """

    exchange: uuid.UUID
    queue: uuid.UUID
    key: str = ""


class StoredMessage(NamedTuple):
    """A message.  A tuple, for speed: a starting member makes a million of them.

    ``expires_at`` is wall-clock time in milliseconds since the epoch, ``None`` for never.
    """

    id: int
    data: bytes
    delivery_count: int = 0
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A queue in the store.

    :param key: identifies the queue in operations on its messages.
    :param last_id: the highest message id ever put, 0 for none; also of messages removed since.
    :param site_progress: the last value of ``put_site_progress``; empty for none.
    """

    key: int
    record: QueueRecord
    last_id: int
    site_progress: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The content of a store, except messages and duplicate-detection ids.

    :param was_clean: True if the last process ended with ``close(clean=True)``, or the store is new.
    :param generation: this member's generation, ``None`` for erased.
    :param claim: the claim that won the generation.
    :param cluster: the UUID of the cluster that the content belongs to, empty for none.
    :param replicas: the names of the other replicas that were ready under the primary of ``generation``;
        empty unless this member was that primary.
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
        """The identity of this store; a store that replaces a corrupted one has a new identity."""

    @property
    def corruption(self) -> str:
        """A description of the corruption found at opening; empty if there was none."""

    @property
    def sequence(self) -> int:
        """The sequence of the last appended operation."""

    @property
    def committed(self) -> int:
        """The highest committed sequence."""

    # -- reading --------------------------------------------------------------------------------

    async def load(self) -> Snapshot:
        """Return everything but the messages, including all operations appended before."""

    def messages(self, queue: int) -> AsyncIterator[list[StoredMessage]]:
        """Yield the messages of a queue in the order of their ids, in chunks of bounded size.

        Each chunk is read on demand, after all operations appended before.
        """

    async def duplicates(self, queue: int) -> list[tuple[bytes, int]]:
        """Return the duplicate-detection ids, oldest first, each with the first copy's message id."""

    async def confirmed(self, queue: int) -> list[tuple[bytes, int]]:
        """Return the latest entries of ``put_confirmed``, oldest first."""

    def queue_key(self, identity: uuid.UUID) -> int:
        """Return the key of a queue.

        :raises UnknownQueueError: when there is none.
        """

    # -- commits --------------------------------------------------------------------------------

    def on_committed(self, callback: Callable[[int], None]) -> None:
        """Call after each commit with the highest committed sequence."""

    def on_failed(self, callback: Callable[[StoreFailedError], None]) -> None:
        """Call once when the store fails, or soon if it has failed already."""

    def on_disk(self, callback: Callable[[DiskUsage], None]) -> None:
        """Call about once a second with the disk usage, if the store is on disk.

        The first call is soon if there is a measurement already.
        """

    def commit_progress(self) -> int:
        """Return a number that grows between two calls if a long commit makes progress."""

    def when_committed(self, sequence: int) -> asyncio.Future[None]:
        """Return a future: done after the commit of a sequence, or failed with ``StoreFailedError``."""

    # -- generation and cluster -----------------------------------------------------------------

    def write_generation(self, generation: int | None) -> asyncio.Future[None]:
        """Set this member's generation, or erase it with ``None``."""

    def write_pending(self, pending: Pending | None) -> asyncio.Future[None]:
        """Set the generation that is about to be claimed, or clear it."""

    def write_cluster(self, cluster: str, claim: str) -> asyncio.Future[None]:
        """Set the UUID of the cluster, and the claim of this member's generation."""

    def put_replicas(self, names: Iterable[str]) -> int:
        """Set the names of the other ready replicas."""

    # -- wiring ---------------------------------------------------------------------------------

    def put_queue(self, record: QueueRecord) -> int:
        """Make a queue, or change the one with this identity."""

    def delete_queue(self, queue: int) -> int:
        """Delete a queue with its content and the bindings to it."""

    def put_exchange(self, record: ExchangeRecord) -> int:
        """Make an exchange, or change the one with this identity."""

    def delete_exchange(self, identity: uuid.UUID) -> int:
        """Delete an exchange with its bindings."""

    def put_binding(self, record: BindingRecord) -> int:
        """Make a binding, or change the one with this identity."""

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
        """Put a message, or replace the one with this id.

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
        """Put a message again that is in the store, without delaying other operations.

        On a full disk the message stays unchanged.  If many messages are rewritten, some may be written by
        later commits than the one of this sequence.

        :param prefix: bytes to put in front of ``data``; the store joins them when it writes.
        :raises UnknownQueueError: when there is no such queue.
        """

    def remove_messages(self, queue: int, ids: Iterable[int]) -> int:
        """Remove messages.  Unknown ids and queues are ignored."""

    def count_delivery(self, queue: int, ids: Iterable[int]) -> int:
        """Add one to the delivery count of messages.  Unknown ids and queues are ignored."""

    def put_duplicates(self, queue: int, duplicates: Iterable[tuple[bytes, int]]) -> int:
        """Remember duplicate-detection ids; the oldest leave when the window is full."""

    def clear_duplicates(self, queue: int) -> int:
        """Forget the duplicate-detection ids of a queue."""

    def put_confirmed(self, queue: int, confirmed: Iterable[tuple[bytes, int]], *, keep: int) -> int:
        """Remember the owners of accepted messages, for confirmations.

        :param confirmed: pairs of the owner, in a few bytes, and the id of the message.
        :param keep: how many to remember; the oldest leave.
        """

    def clear_confirmed(self, queue: int) -> int:
        """Forget the confirmed messages of a queue."""

    def put_site_progress(self, queue: int, progress: Mapping[str, Any]) -> int:
        """Set the site progress of a queue, in JSON types.

        Only the last value in each commit is written.  It is deleted only with the queue.
        """

    # -- the end --------------------------------------------------------------------------------

    async def close(self, *, clean: bool = True) -> None:
        """Commit the appended operations, and close; only ``clean=True`` marks the store as clean.

        :raises StoreFailedError: when the commit count could not be written.
        """
