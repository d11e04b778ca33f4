"""Annotations on many large messages at once do not cost the messages' size, and each is stored."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any, cast

import proton
from proton import Message, symbol

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.durability.restore import restore
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.replication import wire
from broker_stub.replication.apply import Applier
from broker_stub.sites.backup_state import BackupState
from broker_stub.store import open_store
from tests.broker_stub.queueing.takers import Taker

MIB = 1 << 20
MESSAGES, OUTCOMES = 24, 8
SIZE = len(Message(body=bytes(MIB)).encode())


def attempt(number: int) -> bytes:
    data = proton.Data()
    data.put_object({symbol("x-attempt"): number})
    return bytes(data.encode())


async def filled(queue: Queue) -> None:
    """Wait until the messages are in the store."""
    data, complete = bytes(Message(body=bytes(MIB)).encode()), asyncio.Semaphore(0)
    for _ in range(MESSAGES):
        queue.enqueue(data, lambda _: complete.release(), None, inspect(data))
    async with asyncio.timeout(60):
        for _ in range(MESSAGES):
            await complete.acquire()


async def content(directory: Path) -> list[tuple[bytes, int]]:
    """Return the annotations and the size of each message after a restart."""
    store, addresses = await open_store(directory, duplicates=10), Addresses(lambda: 0.0)
    await restore(addresses, Persister(store, Guard()), store, await store.load())
    (queue,) = addresses
    found = [message for number in queue.ids() if (message := queue.message(number)) is not None]
    await store.close()
    return [(message.annotations, len(message.data)) for message in found]


async def test_a_backup_that_gets_many_at_once_copies_no_message(tmp_path: Path) -> None:
    store, addresses = await open_store(tmp_path, duplicates=10), Addresses(lambda: 0.0)
    persister, queue, host = Persister(store, Guard()), addresses.declare("orders"), cast("Any", None)
    persister.queue_added(queue)
    await filled(queue)
    applier = Applier(host, addresses, persister, store, BackupState)
    arguments = {"ids": queue.ids(), "annotations": [attempt(7)] * MESSAGES}
    event = wire.decode(wire.encode_event(wire.key(queue.identity), "annotated", arguments))
    tracemalloc.start()
    try:
        sequence = applier.apply(queue, event)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB
    await store.when_committed(sequence)
    await store.close()
    assert await content(tmp_path) == [(attempt(7), SIZE)] * MESSAGES


async def test_many_outcomes_at_once_copy_no_message(tmp_path: Path) -> None:
    """A message with unchanged annotations is not written at all."""
    store, addresses, guard = await open_store(tmp_path, duplicates=10), Addresses(lambda: 0.0), Guard()
    persister, queue = Persister(store, guard), addresses.declare("orders")
    persister.queue_added(queue)
    guard.begin()
    await filled(queue)
    taker = Taker(queue, MESSAGES)
    assert len(taker.got) == MESSAGES
    tracemalloc.start()
    try:
        for number in range(OUTCOMES):
            held, taker.got = taker.got, []
            for message in held:
                queue.modify(taker.consumer, message, annotations=attempt(number))
            taker.grant(MESSAGES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB
    sequence = store.sequence
    queue.modify(taker.consumer, taker.got[0], annotations=attempt(OUTCOMES - 1))
    assert store.sequence == sequence
    await asyncio.sleep(0)
    await store.close()

    assert await content(tmp_path) == [(attempt(OUTCOMES - 1), SIZE)] * MESSAGES
