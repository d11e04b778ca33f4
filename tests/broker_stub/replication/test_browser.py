"""A primary's browser and a backup's copy, without a connection between them."""

from __future__ import annotations

import asyncio
from typing import Any

import proton

from broker_stub.addresses import Addresses
from broker_stub.generation import GenerationState
from broker_stub.keeper import Keeper
from broker_stub.messages import Message, QueueLimits
from broker_stub.queues import Queue
from broker_stub.replication import wire
from broker_stub.replication.browser import Browser
from broker_stub.replication.copy import LocalCopy
from broker_stub.replication.guard import Guard
from broker_stub.replication.replica import Replica
from broker_stub.sections import inspect
from broker_stub.store import MemoryStore
from haclient.outcome import ACCEPTED

LIMITS = QueueLimits(duplicates=2)


class Link:
    """A sender that keeps what it sends."""

    owner: Any = None

    def __init__(self) -> None:
        self.credit = 0
        self.sent: list[tuple[bytes, Any]] = []

    def send(self, data: bytes, token: Any) -> None:
        self.credit -= 1
        self.sent.append((data, token))


class Primary:
    """An outlet and a lead for which nothing ever goes wrong."""

    congested = False

    def sent(self, size: int) -> None: ...

    def has(self, message: Message) -> None: ...

    def replica_started_waiting(self, replica: Replica) -> None: ...

    def replica_caught_up(self, replica: Replica) -> None: ...


def attached(queue: Queue) -> tuple[Replica, Browser, Link]:
    """A replica that has nothing of the queue yet, and a link without credit."""
    primary: Any = Primary()
    replica, link = Replica("b", primary, primary, lambda: 0.0), Link()
    replica.add(queue)
    browser = replica.browser(queue.identity)
    assert browser is not None
    browser.begin(link, [])  # type: ignore[arg-type]
    return replica, browser, link


def encoded(duplicate_id: str) -> bytes:
    return bytes(proton.Message(properties={"_AMQ_DUPL_ID": duplicate_id}).encode())


def put(queue: Queue, *duplicate_ids: str) -> None:
    for each in duplicate_ids:
        data = encoded(each)
        queue.enqueue(data, _told, None, inspect(data))


def _told(_token: object) -> None: ...


def make() -> Queue:
    return Queue("q", lambda: 0.0, limits=LIMITS)


class Follower:
    state = GenerationState()


async def copied(link: Link) -> tuple[Queue, list[tuple[bytes, int]]]:
    """What a backup makes of all that was sent: its queue, and the ids in its store."""
    store = MemoryStore(duplicates=LIMITS.duplicates)
    keeper = Keeper(store, Guard())
    addresses = Addresses(lambda: 0.0, limits=LIMITS)
    addresses.watcher = keeper
    queue = addresses.declare("q")
    follower: Any = Follower()
    copy = LocalCopy(follower, addresses, keeper, store)
    copy.begin_queue(queue)
    for data, _ in link.sent:
        await copy.committed(copy.apply(queue, wire.decode(data)))
    [stored] = (await store.load()).queues
    return queue, await store.duplicates(stored.key)


def known(queue: Queue) -> list[str]:
    """The duplicate-detection ids of a queue, in an order of their own."""
    names = {inspect(encoded(name)).duplicate_id: name for name in "abcd"}
    return sorted(names[duplicate_id] for duplicate_id, _ in queue.duplicates.pairs())


async def test_of_a_message_that_left_before_it_was_sent_the_replica_gets_the_duplicate_id() -> None:
    queue = make()
    replica, browser, link = attached(queue)
    put(queue, "a")
    [number] = queue.ids()
    queue.forget([number])
    await asyncio.sleep(0)
    assert browser.unacknowledged == {number}
    link.credit = 10
    browser.credit_given(link)  # type: ignore[arg-type]
    backup, stored = await copied(link)
    assert backup.ids() == []
    assert known(backup) == ["a"]
    assert stored == queue.duplicates.pairs()
    assert browser.unacknowledged == {number}
    browser.settled(link, number, ACCEPTED)  # type: ignore[arg-type]
    assert replica.lag == 0


async def test_a_replica_remembers_what_its_primary_does_and_each_id_once() -> None:
    queue = make()
    put(queue, "a", "b", "c", "d")
    queue.forget(queue.ids()[3:])
    _, browser, link = attached(queue)
    link.credit = 10
    browser.credit_given(link)  # type: ignore[arg-type]
    backup, stored = await copied(link)
    assert backup.ids() == queue.ids()
    assert known(backup) == known(queue) == ["c", "d"]
    assert sorted(stored) == sorted(queue.duplicates.pairs())


async def test_a_queue_that_is_deleted_tells_its_browser_no_more() -> None:
    queue = make()
    replica, browser, link = attached(queue)
    replica.remove(queue)
    put(queue, "a")
    assert (browser.unacknowledged, link.sent) == (set(), [])
