"""A member's persistent state: generation, wiring, messages.  ``Store`` is its interface."""

from __future__ import annotations

from broker_stub.store.disk_space import DiskUsage
from broker_stub.store.errors import StoreFailedError, StoreLockedError, UnknownQueueError
from broker_stub.store.interface import (
    BindingRecord,
    ExchangeRecord,
    QueueRecord,
    Snapshot,
    Store,
    StoredMessage,
    StoredQueue,
)
from broker_stub.store.memory import MemoryStore
from broker_stub.store.sqlite import SqliteStore, open_store
from broker_stub.store.start_progress import StartProgress

__all__ = [
    "BindingRecord",
    "DiskUsage",
    "ExchangeRecord",
    "MemoryStore",
    "QueueRecord",
    "Snapshot",
    "SqliteStore",
    "StartProgress",
    "Store",
    "StoreFailedError",
    "StoreLockedError",
    "StoredMessage",
    "StoredQueue",
    "UnknownQueueError",
    "open_store",
]
