"""Restores a member's queues, exchanges and bindings from its store at start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.persister import Persister
from broker_stub.queueing.annotations import restored
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.message import Replicate
from broker_stub.queueing.nodes import REPLICATE_PROPERTY, Addresses
from broker_stub.queueing.options import QueueOptions
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import SITE_PROPERTY, SiteMode, SiteProgress
from broker_stub.store import Snapshot, Store, StoredQueue

# Queues that are read concurrently; each read takes at most 4 MiB, or one larger message.
_CONCURRENT_QUEUES = 16


async def restore(addresses: Addresses, persister: Persister, store: Store, snapshot: Snapshot) -> None:
    """Restore everything in a snapshot of the store; the persister observes it from then on."""
    for group in _groups(snapshot.queues):
        # Concurrently, so that the store reads them in one batch: single reads would mostly wait.
        found = await asyncio.gather(
            *(_restore_queue(addresses, persister, store, stored) for stored in group), return_exceptions=True
        )
        for error in found:
            if error is not None:
                raise error
    _restore_exchanges(addresses, snapshot)


def _groups(queues: tuple[StoredQueue, ...]) -> Iterator[tuple[StoredQueue, ...]]:
    return (queues[start : start + _CONCURRENT_QUEUES] for start in range(0, len(queues), _CONCURRENT_QUEUES))


async def _restore_queue(
    addresses: Addresses, persister: Persister, store: Store, stored: StoredQueue
) -> None:
    record = stored.record
    mode = Replicate(record.replicate)
    site = SiteMode(str(record.arguments.get(SITE_PROPERTY, SiteMode.NONE)))
    queue = addresses.declare(
        record.name,
        replicate=mode,
        site=site,
        options=QueueOptions.of(record.arguments, bounded=False),
        identity=str(record.identity),
    )
    if stored.site_progress:
        queue.site_progress = SiteProgress.of(stored.site_progress)
    await _restore_content(queue, store, stored.key)
    persister.follow(queue)


async def _restore_content(queue: Queue, store: Store, key: int) -> None:
    async for chunk in store.messages(key):
        for message in chunk:
            data, annotations = restored(message.data)
            queue.insert(message.id, data, inspect(data), message.delivery_count, message.expires_at or 0)
            if annotations:
                queue.annotate(message.id, annotations)
    # The store has the ids in order of arrival, including ids of messages that have left.  If it has an id
    # twice, the last position counts.
    queue.duplicates.clear()
    queue.duplicates.renew(await store.duplicates(key))
    for owner, number in await store.confirmed(key):
        queue.confirmations.add(owner, number)


def _restore_exchanges(addresses: Addresses, snapshot: Snapshot) -> None:
    exchanges = {}
    for record in snapshot.exchanges:
        options = dict(record.arguments)
        mode = Replicate(str(options.pop(REPLICATE_PROPERTY)))
        exchanges[record.identity] = addresses.declare_exchange(
            record.name,
            ExchangeType(record.type),
            replicate=mode,
            identity=str(record.identity),
            options=options,
        )
    for binding in snapshot.bindings:
        queue = addresses.by_identity(str(binding.queue))
        assert queue is not None, "a binding ends with its queue"
        addresses.bind(exchanges[binding.exchange], queue, binding.key)
