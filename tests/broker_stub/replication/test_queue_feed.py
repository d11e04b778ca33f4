"""A primary's feed of a queue and a backup's copy, without a connection between them."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from types import SimpleNamespace
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.amqp.message_format import inspect
from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.election.generation import GenerationState
from broker_stub.queueing.annotations import MOST_BYTES, checked
from broker_stub.queueing.message import Message
from broker_stub.queueing.nodes import Addresses
from broker_stub.queueing.queue import Queue
from broker_stub.queueing.queue_limits import QueueLimits
from broker_stub.replication import apply, wire
from broker_stub.replication.apply import Applier
from broker_stub.replication.queue_feed import QueueFeed
from broker_stub.replication.replica import Replica
from broker_stub.sites.backup_state import BackupState
from broker_stub.store import MemoryStore
from haclient.outcome import ACCEPTED

LIMITS = QueueLimits(duplicates=2)


class Link:
    """A sender that keeps its messages."""

    owner: Any = None

    def __init__(self) -> None:
        self.endpoint = SimpleNamespace(remote_max_message_size=0)
        self.credit = 0
        self.tokens: list[Any] = []
        self.sent: list[tuple[bytes, Any]] = []

    def send(self, data: bytes, token: Any) -> None:
        self.credit -= 1
        self.tokens.append(token)
        self.sent.append((data, token[1]))

    def settle_all(self) -> None:
        """Let the replica settle everything sent to it."""
        tokens, self.tokens = self.tokens, []
        for token in tokens:
            self.owner.settled(self, token, ACCEPTED)


class Primary:
    """An outgoing connection and a replica owner without any failure."""

    congested = False

    def sent(self, size: int) -> None: ...

    def leaving(self) -> int | None: ...

    def acknowledged(self, message: Message) -> None: ...

    def replica_started_waiting(self, replica: Replica) -> None: ...

    def replica_caught_up(self, replica: Replica) -> None: ...

    def close(self, why: str) -> None: ...


KEY = bytes(range(16))


def replica_with(*queues: Queue) -> tuple[Replica, Link]:
    """Make a replica that should have these queues, and its data link without credit."""
    primary: Any = Primary()
    replica, link = Replica("b", primary, primary), Link()
    replica.data.attach(link)  # type: ignore[arg-type]
    for queue in queues:
        replica.add(queue)
    return replica, link


def attached(queue: Queue, *have: tuple[int, int]) -> tuple[Replica, QueueFeed, Link]:
    """Make a replica that has these messages of the queue, and a link without credit."""
    replica, link = replica_with(queue)
    [feed] = replica._feeds.values()
    replica.begin_queue(feed.key, have)
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
    """Return the queue of a backup that applied everything sent, and the ids in its store."""
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
    """Return the duplicate-detection ids of a queue, sorted."""
    names = {inspect(encoded(name)).duplicate_id: name for name in "abcd"}
    return sorted(names[duplicate_id] for duplicate_id, _ in queue.duplicates.pairs())


async def test_of_a_message_that_left_before_it_was_sent_the_replica_gets_the_duplicate_id() -> None:
    queue = make()
    replica, feed, link = attached(queue)
    put(queue, "a")
    [number] = queue.ids()
    queue.discard([number])
    await asyncio.sleep(0)
    assert feed.unacknowledged == {number, -1}
    grant(link, 10)
    backup, stored = await replicated(link)
    assert backup.ids() == []
    assert known(backup) == ["a"]
    assert stored == queue.duplicates.pairs()
    assert feed.unacknowledged == {number, -1}
    link.settle_all()
    assert replica.lag == 0


async def test_a_replica_remembers_what_its_primary_does_and_each_id_once() -> None:
    queue = make()
    put(queue, "a", "b", "c", "d")
    queue.discard(queue.ids()[3:])
    _, _, link = attached(queue)
    grant(link, 10)
    backup, stored = await replicated(link)
    assert backup.ids() == queue.ids()
    assert known(backup) == known(queue) == ["c", "d"]
    assert sorted(stored) == sorted(queue.duplicates.pairs())


async def test_after_catch_up_the_oldest_id_leaves_first() -> None:
    """Ids that a backup lacked are the newest ones, though they precede the window of its primary."""
    queue = make()
    put(queue, "a", "b")
    queue.discard(queue.ids()[:1])
    _, _, link = attached(queue)
    grant(link, 10)
    put(queue, "c")
    await asyncio.sleep(0)
    backup, stored = await replicated(link)
    assert known(backup) == known(queue) == ["b", "c"]
    assert stored == backup.duplicates.pairs() == queue.duplicates.pairs()


async def test_a_replica_gets_what_consumers_add_before_and_after_its_messages_are_sent() -> None:
    queue = make()
    put(queue, "a", "b", "c")
    one, two, three = queue.ids()
    _, feed, link = attached(queue, (one, one))
    annotated(queue, feed, one, two)
    grant(link, 100)
    await asyncio.sleep(0)
    annotated(queue, feed, three)
    await asyncio.sleep(0)
    backup = await replicated_into(link, queue, (one,))
    messages = map(backup.message, queue.ids())
    assert [each.annotations for each in messages if each is not None] == [ADDED] * 3


async def test_what_consumers_have_added_to_many_messages_comes_in_pieces() -> None:
    queue = make()
    put(queue, *map(str, range(600)))
    _, feed, link = attached(queue)
    grant(link, 1000)
    annotated(queue, feed, *queue.ids())
    link.sent.clear()
    await asyncio.sleep(0)
    assert len(link.sent) == 3
    assert max(len(data) for data, _ in link.sent) < 1.1 * 2**20


ADDED = bytes.fromhex("d100000ffb00000002a303782d61b100000fed") + b"x" * 4077
assert len(ADDED) == MOST_BYTES


def annotated(queue: Queue, feed: QueueFeed, *numbers: int) -> None:
    """Make messages with the most annotations that consumers may add."""
    for number in numbers:
        message = queue.annotate(number, checked(ADDED))
        assert message is not None
        feed.annotated(queue, message)


async def replicated_into(link: Link, primary: Queue, have: tuple[int, ...]) -> Queue:
    """Return the result of a backup with those messages that applied everything sent."""
    store = MemoryStore(duplicates=LIMITS.duplicates)
    persister = Persister(store, Guard())
    addresses = Addresses(lambda: 0.0, limits=LIMITS)
    addresses.watcher = persister
    queue = addresses.declare("q")
    host: Any = BackupHost()
    applier = Applier(host, addresses, persister, store, BackupState)
    for number in have:
        message = primary.message(number)
        assert message is not None
        applier.apply(queue, wire.ReplicatedMessage(number, 0, 0, message.data))
    applier.begin_queue(queue)
    for data, _ in link.sent:
        await applier.committed(applier.apply(queue, wire.decode(data)))
    return queue


async def test_a_queue_that_is_deleted_reports_to_its_feed_no_more() -> None:
    queue = make()
    replica, feed, link = attached(queue)
    replica.remove(queue)
    put(queue, "a")
    assert (feed.unacknowledged, link.sent) == (set(), [])


def grant(link: Link, credit: int) -> None:
    link.credit = credit
    link.owner.credit_given(link)


async def test_what_was_there_is_sent_by_credit_and_then_the_replica_has_caught_up() -> None:
    queue = make()
    put(queue, "a", "b", "c")
    replica, _, link = attached(queue)
    assert (link.sent, bool(replica._lacking)) == ([], True)
    grant(link, 2)
    assert (len(link.sent), bool(replica._lacking)) == (2, True)
    grant(link, 2)
    assert [token for _, token in link.sent] == [1, 2, 3, -1]  # the last one is the window of duplicates
    assert not replica._lacking


async def test_a_new_message_is_sent_at_once_where_there_is_credit_and_waits_where_there_is_none() -> None:
    queue = make()
    replica, _, link = attached(queue)
    assert not replica._lacking
    link.credit = 1
    put(queue, "a", "b", "c")
    assert [token for _, token in link.sent] == [1]
    grant(link, 2)
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
    grant(link, 10)
    discard, counts, *_ = (wire.decode(data) for data, _ in link.sent)
    assert discard == wire.Event("discard", (2, 7), queue=feed.key)
    arguments = {"ids": [1, 3], "counts": [1, 3], "first": 1, "last": 3}
    assert counts == wire.Event("counts", arguments=arguments, queue=feed.key)
    assert [token for _, token in link.sent if token is not None and token > 0] == [4]


async def test_what_a_replica_keeps_is_looked_at_once_and_in_flight_alone_is_acknowledged() -> None:
    """A returning member with a million messages must not stop its primary for seconds."""
    queue = make()
    for _ in range(1000):
        queue.enqueue(b"x", _reported, None)
    replica, link = replica_with(queue)
    [feed] = replica._feeds.values()
    for _ in range(3):
        queue.enqueue(b"x", _reported, None)
    acknowledged: list[int] = []
    replica.acknowledged = lambda _feed, number, _message: acknowledged.append(number)  # type: ignore[method-assign]
    replica.begin_queue(feed.key, [(1, 1002)])
    assert sorted(acknowledged) == [1001, 1002]
    grant(link, 100)
    assert [token for _, token in link.sent if token is not None and token > 0] == [1003]


@given(st.sets(st.integers(1, 60)), st.dictionaries(st.integers(1, 60), st.integers(1, 9)), st.data())
def test_counts_of_a_span_are_set_in_that_span_alone(
    ids: set[int], counts: dict[int, int], data: st.DataObject
) -> None:
    queue = make()
    for number in sorted(ids):
        queue.insert(number, encoded(""), inspect(encoded("")), 1, None)
    first = data.draw(st.integers(1, 60))
    last = data.draw(st.integers(first, 100))
    changed = apply.set_counts(queue, counts, first=first, last=last)
    wanted = {number: counts.get(number, 0) if first <= number <= last else 1 for number in ids}
    have = {number: message.failover_delivery_count for number in ids if (message := queue.message(number))}
    assert have == wanted
    assert {each.number for each in changed} == {number for number in ids if wanted[number] != 1}


def test_counts_of_a_span_cost_the_span_and_not_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many arrive as the queue has messages: a backup with a million never became ready."""
    queue = make()
    for number in range(1, 1001):
        queue.insert(number, encoded(""), inspect(encoded("")), 1, None)
    monkeypatch.setattr(Queue, "ids", lambda _queue: pytest.fail("the whole queue"))
    assert len(apply.set_counts(queue, {5: 1}, first=1, last=100)) == 99


async def test_the_last_event_of_a_queue_that_is_gone_says_so() -> None:
    queue = make()
    put(queue, "a", "b")
    replica, feed, link = attached(queue)
    grant(link, 1)
    replica.remove(queue)
    grant(link, 10)
    message, ended = (wire.decode(data) for data, _ in link.sent)
    assert isinstance(message, wire.ReplicatedMessage)
    assert ended == wire.Event("ended", queue=feed.key)
    link.settle_all()
    assert replica.lag == 0


async def test_a_report_of_a_queue_that_is_gone_is_answered_by_its_end() -> None:
    replica, link = replica_with()
    link.credit = 10
    replica.begin_queue(KEY, ())
    assert [wire.decode(data) for data, _ in link.sent] == [wire.Event("ended", queue=KEY)]


async def test_a_queue_that_is_gone_before_its_report_is_not_waited_for() -> None:
    queue = make()
    replica, _ = replica_with(queue)
    assert replica._lacking
    replica.remove(queue)
    assert not replica._lacking


# -- many queues over one link ----------------------------------------------------------------------


def many(count: int) -> list[Queue]:
    return [Queue(f"q{number}", lambda: 0.0, limits=LIMITS) for number in range(count)]


async def test_queues_with_a_backlog_take_turns_and_each_keeps_its_order() -> None:
    long, short = many(2)
    for _ in range(1000):
        long.enqueue(b"x", _reported, None)
    short.enqueue(b"x", _reported, None)
    replica, link = replica_with(long, short)
    for feed in replica._feeds.values():
        replica.begin_queue(feed.key, ())
    grant(link, 200)
    sent = [wire.decode(data) for data, _ in link.sent]
    key_of_long, key_of_short = (feed.key for feed in replica._feeds.values())
    assert [event.queue for event in sent].count(key_of_short) == 1
    ids = [
        event.id for event in sent if isinstance(event, wire.ReplicatedMessage) and event.queue == key_of_long
    ]
    assert ids == list(range(1, 200))


async def test_a_new_message_does_not_pass_those_that_wait_for_their_turn() -> None:
    first, second = many(2)
    replica, link = replica_with(first, second)
    for feed in replica._feeds.values():
        replica.begin_queue(feed.key, ())
    first.enqueue(b"first", _reported, None)
    link.credit = 1
    second.enqueue(b"second", _reported, None)
    assert link.sent == []
    grant(link, 2)
    assert [data[-6:].lstrip(b"\0") for data, _ in link.sent] == [b"first", b"second"]


async def test_what_is_on_its_way_is_bounded_by_its_size_and_one_large_message_goes_nevertheless() -> None:
    queue = make()
    large = bytes(20 * 1024 * 1024)
    for _ in range(3):
        queue.enqueue(large, _reported, None)
    replica, _, link = attached(queue)
    grant(link, 100)
    assert len(link.sent) == 1
    for sent in (2, 3):
        link.settle_all()
        assert len(link.sent) == sent
    link.settle_all()
    assert replica.lag == 0


class Counting(dict[bytes, Any]):
    """A table that counts iterations over it."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()

    def values(self) -> Any:
        self.walks += 1
        return super().values()

    def items(self) -> Any:
        self.walks += 1
        return super().items()


async def calls_for_one_message(count: int) -> tuple[int, int]:
    """Count the Python calls for one message, one deletion and one status with this many queues; and the
    iterations.
    """
    queues = many(count)
    replica, link = replica_with(*queues)
    for feed in tuple(replica._feeds.values()):
        replica.begin_queue(feed.key, ())
    link.credit = 10
    replica._feeds = table = Counting(replica._feeds)
    calls = 0

    def count_call(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    gc.disable()  # its callbacks, and destructors of collected objects, are calls too
    sys.setprofile(count_call)
    try:
        queues[count // 2].enqueue(b"x", _reported, None)
        link.settle_all()
        link.owner.credit_given(link)
        replica.pump()
        replica.remove(queues[0])
        assert replica.lag == 0
        replica.tick()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls, table.walks


async def test_one_more_message_costs_the_same_with_a_hundred_times_the_queues() -> None:
    assert await calls_for_one_message(2000) == await calls_for_one_message(20)
    assert (await calls_for_one_message(20))[1] == 0


async def test_a_backup_that_says_it_has_millions_costs_no_memory_until_they_are_sent() -> None:
    addresses = Addresses(lambda: 0.0)
    queue = addresses.declare("q")
    replica, _ = replica_with(queue)
    tracemalloc.start()
    try:
        replica.begin_queue(wire.key(queue.identity), [(1, 2**24)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


async def test_a_confirmed_dequeue_is_one_event_that_its_consumer_waits_for() -> None:
    queue, guard = make(), Guard()
    queue.guard = guard
    put(queue, "a", "b")
    replica, feed, link = attached(queue, (1, 2))
    replica.waiting = True
    sink: Any = SimpleNamespace(capacity=lambda: 2, deliver=lambda _: None)
    consumer = queue.subscribe(sink)
    queue.ready(consumer)
    messages = [message for number in (1, 2) if (message := queue.message(number)) is not None]
    owner, done = bytes(range(16)), list[str]()
    queue.confirmations.accept(consumer, messages, owner, done.append, "both")
    link.credit = 100
    replica.data.pump()
    events = [wire.decode(data) for data, _ in link.sent]
    operations = [event.operation for event in events if isinstance(event, wire.Event)]
    assert operations.count("confirmed") == 1
    assert "dequeued" not in operations
    [confirmed] = [each for each in events if isinstance(each, wire.Event) and each.operation == "confirmed"]
    assert wire.decode_confirmed(confirmed) == [(owner, 1), (owner, 2)]
    assert done == []
    assert len(feed.waited_for) == 1
    [completion] = feed.drop()
    guard.acknowledged(completion)
    assert done == ["both"]
