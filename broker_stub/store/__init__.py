"""What a member keeps: generation, wiring, messages.  ``Store`` is the interface; two implementations.

* ``interface``  the rules of a store, its operations and what it holds
* ``sqlite``, ``batch``, ``writer``  the durable one: the loop's side, one transaction, the thread
* ``schema``, ``reading``  the tables and the checksums of their rows
* ``opening``, ``files``, ``commit_count``  fresh, wiped or corrupted; the directory; lost commits
* ``memory``  the one without a file
* ``commits``, ``errors``  shared by both
"""

from __future__ import annotations

from broker_stub.store.errors import StoreFailedError, StoreLockedError, UnknownQueueError
from broker_stub.store.interface import (
    BindingRecord,
    ExchangeRecord,
    Pending,
    QueueRecord,
    Replica,
    Snapshot,
    Store,
    StoredMessage,
    StoredQueue,
)
from broker_stub.store.memory import MemoryStore
from broker_stub.store.sqlite import SqliteStore, open_store

__all__ = [
    "BindingRecord",
    "ExchangeRecord",
    "MemoryStore",
    "Pending",
    "QueueRecord",
    "Replica",
    "Snapshot",
    "SqliteStore",
    "Store",
    "StoreFailedError",
    "StoreLockedError",
    "StoredMessage",
    "StoredQueue",
    "UnknownQueueError",
    "open_store",
]
