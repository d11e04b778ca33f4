"""A primary's browser and a backup's copy, without a connection between them."""

from __future__ import annotations

import asyncio
from typing import Any

import proton

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.election.generation import GenerationState
from broker_stub.queueing.message import Message
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import QueueLimits
from broker_stub.replication import wire
from broker_stub.replication.apply import Applier
from broker_stub.replication.queue_feed import QueueFeed
from broker_stub.replication.replica import Replica
from broker_stub.sites.backup_state import BackupState
from broker_stub.store import MemoryStore
from haclient.outcome import ACCEPTED

LIMITS = QueueLimits(duplicates=2)


class Link:
    """A sender that keeps what it sends."""

    owner: Any = None

    def __init__(self) -> None:
        self.credit = 0
        self.closed = False
        self.sent: list[tuple[bytes, Any]] = []

    def send(self, data: bytes, token: Any) -> None:
        self.credit -= 1
        self.sent.append((data, token))

    def close(self) -> None:
        self.closed = True


class Primary:
    """An outlet and a lead for which nothing ever goes wrong."""

    congested = False

    def sent(self, size: int) -> None: ...

    def acknowledged(self, message: Message) -> None: ...

    def replica_started_waiting(self, replica: Replica) -> None: ...

    def replica_caught_up(self, replica: Replica) -> None: ...


def attached(queue: Queue, *have: tuple[int, int]) -> tuple[Replica, QueueFeed, Link]:
    """A replica that has these messages of the queue, and a link without credit."""
    primary: Any = Primary()
    replica, link = Replica("b", primary, primary, lambda: 0.0), Link()
    replica.add(queue)
    feed = replica.feed(queue.identity)
    assert feed is not None
    feed.begin(link, have)  # type: ignore[arg-type]
    return replica, feed, link


def encoded(duplicate_id: str) -> bytes:
    return bytes(proton.Message(properties={"_AMQ_DUPL_ID": duplicate_id}).encode())


def put(queue: Queue, *duplicate_ids: str) -> None:
    for each in duplicate_ids:
        data = encoded(each)
        queue.enqueue(data, _reported, None, inspect(data))


def _reported(_token: object) -> None: ...


def make() -> Queue:
    return Queue("q", lambda: 0.0, limits=LIMITS)


class BackupHost:
    state = GenerationState()


async def replicated(link: Link) -> tuple[Queue, list[tuple[bytes, int]]]:
    """What a backup makes of all that was sent: its queue, and the ids in its store."""
    store = MemoryStore(duplicates=LIMITS.duplicates)
    persister = Persister(store, Guard())
    addresses = Addresses(lambda: 0.0, limits=LIMITS)
    addresses.watcher = persister
    queue = addresses.declare("q")
    host: Any = BackupHost()
    applier = Applier(host, addresses, persister, store, BackupState)
    applier.begin_queue(queue)
    for data, _ in link.sent:
        await applier.committed(applier.apply(queue, wire.decode(data)))
    [stored] = (await store.load()).queues
    return queue, await store.duplicates(stored.key)


def known(queue: Queue) -> list[str]:
    """The duplicate-detection ids of a queue, in an order of their own."""
    names = {inspect(encoded(name)).duplicate_id: name for name in "abcd"}
    return sorted(names[duplicate_id] for duplicate_id, _ in queue.duplicates.pairs())


async def test_of_a_message_that_left_before_it_was_sent_the_replica_gets_the_duplicate_id() -> None:
    queue = make()
    replica, feed, link = attached(queue)
    put(queue, "a")
    [number] = queue.ids()
    queue.discard([number])
    await asyncio.sleep(0)
    assert feed.unacknowledged == {number}
    link.credit = 10
    feed.credit_given(link)  # type: ignore[arg-type]
    backup, stored = await replicated(link)
    assert backup.ids() == []
    assert known(backup) == ["a"]
    assert stored == queue.duplicates.pairs()
    assert feed.unacknowledged == {number}
    feed.settled(link, number, ACCEPTED)  # type: ignore[arg-type]
    assert replica.lag == 0


async def test_a_replica_remembers_what_its_primary_does_and_each_id_once() -> None:
    queue = make()
    put(queue, "a", "b", "c", "d")
    queue.discard(queue.ids()[3:])
    _, feed, link = attached(queue)
    link.credit = 10
    feed.credit_given(link)  # type: ignore[arg-type]
    backup, stored = await replicated(link)
    assert backup.ids() == queue.ids()
    assert known(backup) == known(queue) == ["c", "d"]
    assert sorted(stored) == sorted(queue.duplicates.pairs())


async def test_a_queue_that_is_deleted_reports_to_its_feed_no_more() -> None:
    queue = make()
    replica, feed, link = attached(queue)
    replica.remove(queue)
    put(queue, "a")
    assert (feed.unacknowledged, link.sent) == (set(), [])


def grant(feed: QueueFeed, link: Link, credit: int) -> None:
    link.credit = credit
    feed.credit_given(link)  # type: ignore[arg-type]


async def test_what_was_there_is_sent_by_credit_and_then_the_replica_has_caught_up() -> None:
    queue = make()
    put(queue, "a", "b", "c")
    _, feed, link = attached(queue)
    assert (link.sent, feed.caught_up) == ([], False)
    grant(feed, link, 2)
    assert (len(link.sent), feed.caught_up) == (2, False)
    grant(feed, link, 2)
    assert [token for _, token in link.sent] == [1, 2, 3, -1]  # the last one is the window of duplicates
    assert feed.caught_up


async def test_a_new_message_is_sent_at_once_where_there_is_credit_and_waits_where_there_is_none() -> None:
    queue = make()
    _, feed, link = attached(queue)
    assert feed.caught_up
    link.credit = 1
    put(queue, "a", "b", "c")
    assert [token for _, token in link.sent] == [1]
    grant(feed, link, 2)
    assert [token for _, token in link.sent] == [1, 2, 3]


async def test_a_replica_that_comes_back_learns_what_was_delivered_and_what_it_must_discard() -> None:
    queue = make()
    put(queue, "a", "b", "c", "d")
    for number in (1, 3):
        message = queue.message(number)
        assert message is not None
        message.set_count(number)
    queue.discard([2])
    _, feed, link = attached(queue, (1, 3), (7, 7))
    grant(feed, link, 10)
    discard, counts, *_ = (wire.decode(data) for data, _ in link.sent)
    assert discard == wire.Event("discard", (2, 7))
    assert counts == wire.Event("counts", arguments={"ids": [1, 3], "counts": [1, 3], "first": 1, "last": 3})
    assert [token for _, token in link.sent if token is not None and token > 0] == [4]


async def test_the_link_of_a_queue_that_is_gone_is_closed_when_the_replica_knows() -> None:
    queue = make()
    replica, feed, link = attached(queue)
    replica.remove(queue)
    assert not link.closed
    feed.close()
    assert link.closed
