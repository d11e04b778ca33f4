"""The state that a queue keeps for another site: in the stores, and when a new primary completes it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import proton

from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.member.wiring import Wiring
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.queueing.message import Message, MessageState
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode, SiteProgress
from broker_stub.sites.event import Op, decode
from broker_stub.sites.outbound import Outbound
from broker_stub.sites.reconcile import reconcile
from broker_stub.store import MemoryStore, QueueRecord, Store, open_store

STREAM = "5f0c5d0e-0000-4000-8000-000000000001"


def test_the_progress_only_grows() -> None:
    progress = SiteProgress.of({"issued": 5, "evented": 7, "applied": {STREAM: 3}})
    progress.merge({"issued": 4, "evented": 9, "applied": {STREAM: 2, "other": 1}})
    assert progress.plain() == {"issued": 5, "evented": 9, "applied": {STREAM: 3, "other": 1}}


async def progress_of(store: Store) -> list[dict[str, object]]:
    return [dict(queue.site_progress) for queue in (await store.load()).queues]


async def test_a_store_keeps_the_last_progress_of_each_queue(tmp_path: Path) -> None:
    for store in (
        MemoryStore(duplicates=DEFAULT_WINDOW),
        await open_store(tmp_path, duplicates=DEFAULT_WINDOW),
    ):
        first, second = uuid.uuid4(), uuid.uuid4()
        for identity, name in ((first, "a"), (second, "b")):
            store.put_queue(QueueRecord(identity=identity, name=name))
        key = store.queue_key(first)
        assert await progress_of(store) == [{}, {}]
        store.put_message(key, 1, b"x")
        store.put_site_progress(key, {"issued": 1})
        store.put_site_progress(key, {"issued": 2, "applied": {STREAM: 9}})
        store.remove_messages(key, (1,))
        assert await progress_of(store) == [{"issued": 2, "applied": {STREAM: 9}}, {}]
        await store.close()


async def test_they_are_there_after_a_restart_and_end_with_the_queue(tmp_path: Path) -> None:
    identity = uuid.uuid4()
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    store.put_queue(QueueRecord(identity=identity, name="a"))
    store.put_site_progress(store.queue_key(identity), {"issued": 2})
    await store.close(clean=False)
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert not store.corruption
    assert await progress_of(store) == [{"issued": 2}]
    store.delete_queue(store.queue_key(identity))
    store.put_queue(QueueRecord(identity=uuid.uuid4(), name="b"))
    await store.close()
    store = await open_store(tmp_path, duplicates=DEFAULT_WINDOW)
    assert await progress_of(store) == [{}]
    await store.close()


# -- a new primary ----------------------------------------------------------------------------------


class Cell:
    """The queues of one serving member, with a store."""

    def __init__(self, mode: SiteMode) -> None:
        self.store, self.guard = MemoryStore(duplicates=DEFAULT_WINDOW), Guard()
        self.persister = Persister(self.store, self.guard)
        self.addresses = Addresses(lambda: 0.0)
        self.addresses.watcher = Wiring(self.persister, lambda: None)
        self.queue = self.addresses.declare("orders", site=mode)
        self.source = Outbound(self.addresses, lambda: 0, self.persister.put_site_progress)

    @property
    def log(self) -> Queue:
        return self.addresses.queue(REPLICATION_QUEUE)

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.queue.enqueue(bytes(proton.Message(body=body).encode()), lambda _: None, None)

    def reported(self) -> list[tuple[Op, int, int]]:
        events = [decode(found.data) for found in map(self.log.message, self.log.ids()) if found is not None]
        return [(event.op, event.sequence, event.position) for event in events]


async def test_messages_without_an_event_get_one() -> None:
    cell = Cell(SiteMode.ENQUEUES)
    cell.source.begin(cell.queue)
    cell.send("a")
    cell.source.end(cell.queue)
    cell.send("b", "c")
    assert reconcile(cell.addresses, cell.persister) == 0
    cell.source.begin(cell.queue)
    assert cell.reported() == [(Op.ENQUEUE, 1, 1), (Op.ENQUEUE, 2, 2), (Op.ENQUEUE, 3, 3)]


async def test_a_message_that_is_only_in_its_event_is_put_back_in_mode_all() -> None:
    for mode, back in ((SiteMode.ALL, [1, 2, 3]), (SiteMode.ENQUEUES, [1, 2])):
        cell = Cell(mode)
        cell.source.begin(cell.queue)
        cell.send("a", "b", "c")
        cell.source.end(cell.queue)
        cell.queue.discard((3,))
        assert reconcile(cell.addresses, cell.persister) == len(back) - 2
        assert cell.queue.ids() == back
        cell.source.begin(cell.queue)
        assert len(cell.reported()) == 3


async def test_a_message_that_has_left_stays_away() -> None:
    for gone, stays in ((1, 2), (2, 1)):
        cell = Cell(SiteMode.ALL)
        cell.source.begin(cell.queue)
        cell.send("a", "b")
        message = cell.queue.message(gone)
        assert isinstance(message, Message)
        cell.queue.remove(message)
        cell.source.end(cell.queue)
        assert reconcile(cell.addresses, cell.persister) == 0
        assert cell.queue.ids() == [stays]
        assert cell.reported()[-1] == (Op.DEQUEUE, 3, gone)


async def test_the_progress_is_corrected_from_the_events() -> None:
    cell = Cell(SiteMode.ENQUEUES)
    cell.source.begin(cell.queue)
    cell.send("a")
    cell.source.end(cell.queue)
    cell.queue.site_progress = None
    reconcile(cell.addresses, cell.persister)
    cell.source.begin(cell.queue)
    assert cell.reported() == [(Op.ENQUEUE, 1, 1)]


# -- dependencies between steps -----------------------------------------------------------------


class Replica:
    """A replica of one queue; it has nothing until it acknowledges."""

    def __init__(self, cell: Cell, queue: Queue) -> None:
        self._guard = cell.guard
        self._waiting: list[Message] = []
        queue.observe(self)

    def enqueued(self, queue: Queue, message: Message) -> None:
        message.pending_acks += 1
        self._waiting.append(message)

    def dequeued(self, queue: Queue, message: Message) -> None: ...

    def acquired(self, queue: Queue, message: Message) -> None: ...

    def confirmed(self, queue: Queue, numbers: Any, owner: bytes, completion: Message) -> None: ...

    def annotated(self, queue: Queue, message: Message) -> None: ...

    def progress_changed(self, queue: Queue, completion: Message) -> None: ...

    def has(self, place: int) -> None:
        self._guard.acknowledged(self._waiting[place])

    @property
    def handed_out(self) -> list[bool]:
        return [message.state is MessageState.AVAILABLE for message in self._waiting]


async def test_a_producer_waits_for_the_event_and_an_event_for_its_message_and_all_events_before_it() -> None:
    cell = Cell(SiteMode.ENQUEUES)
    cell.source.begin(cell.queue)
    messages, events = Replica(cell, cell.queue), Replica(cell, cell.log)
    reported: list[str] = []
    for body in ("a", "b"):
        cell.queue.enqueue(bytes(proton.Message(body=body).encode()), reported.append, body)
    await cell.store.when_committed(cell.store.sequence)
    events.has(0)
    assert (reported, events.handed_out) == ([], [False, False]), "the message is not on the replica"
    messages.has(1)
    assert reported == [], "its event is not on the replica"
    events.has(1)
    assert (reported, events.handed_out) == (["b"], [False, False]), "the first event is not complete"
    messages.has(0)
    assert (reported, events.handed_out) == (["b", "a"], [True, True])
