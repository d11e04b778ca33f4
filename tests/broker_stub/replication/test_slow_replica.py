"""A replica without progress, and one with too little: without a connection, tick by tick."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.amqp.message_format import inspect
from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue
from broker_stub.replication import backlog, wire
from broker_stub.replication.commit_watch import TICKS, CommitWatch
from broker_stub.replication.replica import Phase, Replica
from haclient.outcome import ACCEPTED
from tests.broker_stub.replication.test_queue_feed import Link, encoded


class Primary:
    """A replica's owner and its connection."""

    congested = False

    def __init__(self) -> None:
        self.left: int | None = None
        self.failed = ""
        self.caught_up = False
        self.set_aside: list[tuple[str, bool]] = []

    def sent(self, size: int) -> None: ...

    def leaving(self) -> int | None:
        return self.left

    def close(self, why: str) -> None: ...

    def acknowledged(self, message: Message) -> None:
        message.pending_acks -= 1

    def replica_started_waiting(self, replica: Replica) -> None: ...

    def replica_caught_up(self, replica: Replica) -> None:
        self.caught_up = True

    def queue_set_aside(self, replica: Replica, queue: Queue, *, copied: bool) -> None:
        self.set_aside.append((queue.name, copied))

    def replica_failed(self, replica: Replica, reason: str) -> None:
        self.failed = reason


class Control:
    """A control link."""

    credit = 100

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def send(self, data: bytes, token: Any) -> None:
        self.commands.append(data)


class Pair:
    """A queue, and a replica of it whose links a test moves."""

    def __init__(self, messages: int = 0) -> None:
        self.queue = Queue("q", lambda: 0.0)
        self.put(messages)
        self.primary = Primary()
        owner: Any = self.primary
        self.replica, self.control, self.data = Replica("b", owner, owner), Control(), Link()
        control: Any = self.control
        self.replica.begin(control, iter([{"queues": []}]), [self.queue])
        data: Any = self.data
        self.replica.data.attach(data)

    def put(self, count: int, **properties: str) -> None:
        for _ in range(count):
            data = encoded(properties.get("duplicate_id", "")) if properties else b"\x00\x53\x77\x40"
            self.queue.enqueue(data, lambda _: None, None, inspect(data))

    def ticks(self) -> int:
        """Run the ticks of one time-out, and one more; return the longest run of ticks without progress."""
        return [self.replica.tick() for _ in range(TICKS + 1)][-1]

    async def execute(self) -> None:
        """Let the replica execute its commands."""
        control: Any = self.control
        for _ in self.control.commands:
            self.replica.settled(control, None, ACCEPTED)
        self.control.commands.clear()
        await asyncio.sleep(0)

    def report(self) -> None:
        self.replica.begin_queue(wire.key(self.queue.identity), [])

    async def ready(self) -> None:
        await self.execute()
        await self.execute()
        self.report()
        self.data.credit = 1000
        self.replica.pump()
        self.data.settle_all()
        assert self.primary.caught_up
        self.replica.phase = Phase.READY


async def test_a_replica_that_executes_nothing_is_seen_in_as_many_looks() -> None:
    assert Pair().ticks() > TICKS


async def test_a_replica_that_says_nothing_of_its_queues_is_seen() -> None:
    pair = Pair()
    await pair.execute()
    await pair.execute()
    assert pair.replica.tick() == 0
    assert pair.ticks() > TICKS


async def catching_up() -> Pair:
    """Make a replica that was sent everything it lacks, and acknowledges nothing."""
    pair = Pair(messages=10)
    await pair.execute()
    await pair.execute()
    pair.report()
    pair.data.credit = 1000
    pair.replica.pump()
    return pair


async def test_a_replica_whose_store_hangs_while_it_catches_up_is_seen() -> None:
    pair = await catching_up()
    assert len(pair.data.sent) == 10
    assert pair.replica.tick() == 0
    assert pair.ticks() > TICKS


async def test_in_the_final_catch_up_as_well() -> None:
    pair = await catching_up()
    assert pair.replica.phase is Phase.FINAL_CATCH_UP
    pair.replica.tick()
    assert pair.ticks() > TICKS
    pair.data.settle_all()
    assert pair.replica.tick() == 0


async def test_each_acknowledgement_is_progress_however_slow() -> None:
    pair = Pair(messages=100)
    await pair.execute()
    await pair.execute()
    pair.report()
    for _ in range(100):
        assert max(pair.replica.tick() for _ in range(TICKS)) <= TICKS
        pair.data.credit = 1
        pair.data.owner.credit_given(pair.data)
        pair.data.settle_all()
    assert pair.primary.caught_up


async def test_a_ready_replica_that_owes_nothing_may_be_silent_for_ever() -> None:
    pair = Pair(messages=3)
    await pair.ready()
    pair.replica.tick()
    assert pair.ticks() == 0


async def test_a_ready_replica_that_owes_something_is_seen_and_so_is_the_hand_over() -> None:
    pair = Pair()
    await pair.ready()
    pair.replica.tick()
    pair.put(1)
    assert pair.ticks() > TICKS
    pair.data.settle_all()
    assert pair.replica.tick() == 0
    assert pair.ticks() == 0
    pair.replica.command("number", {"number": 1, "ready": []})
    assert pair.ticks() > TICKS
    await pair.execute()
    assert pair.replica.tick() == 0


async def test_a_commit_that_goes_on_at_the_replica_is_progress_and_so_is_what_leaves_for_it() -> None:
    pair = Pair()
    await pair.ready()
    pair.put(1)
    for _ in range(3 * TICKS):
        pair.replica.commit_goes_on()
        assert pair.replica.tick() == 0
    assert pair.ticks() > TICKS
    pair.data.settle_all()
    pair.put(1)
    for left in range(3 * TICKS):
        pair.primary.left = left
        assert pair.replica.tick() <= 1
    assert pair.ticks() > TICKS


async def test_bytes_that_the_connection_took_all_at_once_are_no_progress() -> None:
    """The kernel of a paused replica also takes some bytes."""
    pair = Pair()
    await pair.ready()
    pair.replica.tick()
    pair.put(1)
    for looks in range(1, TICKS + 2):
        pair.primary.left = None if looks % 2 else looks
        idle = pair.replica.tick()
    assert idle > TICKS


@pytest.mark.parametrize("lie", ["its commit goes on", "it reads bytes"])
async def test_a_replica_that_promises_an_acknowledgement_for_ever_is_seen(lie: str) -> None:
    pair = Pair()
    await pair.ready()
    pair.replica.tick()
    for _ in range(2):  # an acknowledgement renews the promise
        pair.put(1)
        idle = looks = 0
        while idle <= TICKS:
            looks += 1
            if lie == "it reads bytes":
                pair.primary.left = looks
            else:
                pair.replica.commit_goes_on()
            idle = pair.replica.tick()
        assert 10 * TICKS < looks < 100 * TICKS
        pair.data.settle_all()
        assert pair.replica.tick() == 0


async def test_a_replica_that_owes_nothing_may_report_commits_for_ever() -> None:
    pair = Pair()
    await pair.ready()
    for _ in range(100 * TICKS):
        pair.replica.commit_goes_on()
        assert pair.replica.tick() == 0
    pair.put(1)
    pair.replica.commit_goes_on()
    assert pair.replica.tick() == 0


# -- how far behind ---------------------------------------------------------------------------------


async def test_a_replica_falls_behind_in_events_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The initial backlog does not count, and neither do sent events."""
    monkeypatch.setattr(backlog, "_MOST_EVENTS", 10)
    pair = Pair(messages=100)
    await pair.execute()
    await pair.execute()
    pair.report()
    assert (pair.replica.backlog.events, pair.replica.backlog.full) == (0, False)
    pair.put(10)
    assert not pair.replica.backlog.full
    pair.put(1)
    assert pair.replica.backlog.full
    pair.data.credit = 200
    pair.replica.pump()
    assert (pair.replica.backlog.events, pair.replica.backlog.size, len(pair.data.sent)) == (0, 0, 111)


async def test_what_comes_and_goes_unsent_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "_MOST_BYTES", 5000)
    pair = Pair()
    await pair.execute()
    await pair.execute()
    pair.report()
    for number in range(200):
        pair.put(1, duplicate_id=f"{number:0>50}")
        pair.queue.discard(pair.queue.ids())
        await asyncio.sleep(0)
    assert pair.replica.backlog.full
    assert pair.replica.backlog.size > 200 * 50
    pair.data.credit = 1000
    pair.replica.pump()
    assert (pair.replica.backlog.events, pair.replica.backlog.size) == (0, 0)


async def test_a_deleted_queue_is_no_backlog_any_more() -> None:
    pair = Pair(messages=3)
    await pair.execute()
    await pair.execute()
    pair.report()
    pair.put(5, duplicate_id="x")
    pair.queue.discard(pair.queue.ids()[-1:])
    await asyncio.sleep(0)
    assert pair.replica.backlog.events > 0
    pair.replica.remove(pair.queue)
    assert (pair.replica.backlog.events, pair.replica.backlog.size) == (0, 0)


async def test_messages_that_clients_wait_for_are_no_backlog() -> None:
    """Their number is bounded by the clients' credit: dropping a good replica for a burst would help no
    client.
    """
    pair = Pair()
    await pair.ready()
    pair.data.credit = 0
    pair.put(50)
    assert pair.replica.backlog.events == 0
    pair.data.credit = 100
    pair.replica.pump()
    assert (pair.replica.backlog.events, len(pair.data.sent)) == (0, 50)


# -- the own store ----------------------------------------------------------------------------------


class Store:
    sequence = committed = 0

    def commit_progress(self) -> int:
        return 0


def test_a_store_hangs_that_commits_nothing_of_what_it_has() -> None:
    store = Store()
    watch = CommitWatch(store)
    assert not any(watch.tick() for _ in range(100))
    store.sequence = 5
    assert [watch.tick() for _ in range(TICKS + 1)] == [False] * (TICKS - 1) + [True] * 2
    store.committed = 3
    assert not any(watch.tick() for _ in range(TICKS))
    assert watch.tick()


class LongCommit:
    """A store with one commit that does not end, and whose progress a test controls."""

    sequence, committed = 2, 1

    def __init__(self) -> None:
        self.pieces = 0

    def commit_progress(self) -> int:
        return self.pieces


@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_commit_hangs_if_and_only_if_so_many_looks_in_a_row_find_no_piece_of_it(pieces: list[int]) -> None:
    store = LongCommit()
    watch = CommitWatch(store)
    idle = 0
    for count in (1, *pieces):
        store.pieces += count
        idle = 0 if count else idle + 1
        assert watch.tick() is (idle >= TICKS)
        assert watch.commit_goes_on is (count > 0)


# -- large ids of a former version --------------------------------------------------------------------


async def test_duplicate_detection_ids_of_any_length_fit_into_events() -> None:
    pair = Pair()
    ids = {bytes([number]) * 200_000: number for number in range(1, 30)}
    for key, number in ids.items():
        pair.queue.duplicates.remember(key, number)
    await pair.execute()
    await pair.execute()
    pair.data.credit = 100
    pair.report()
    events = [wire.decode(data) for data, _ in pair.data.sent]
    assert max(len(data) for data, _ in pair.data.sent) < 1_100_000
    found = [
        pair
        for event in events
        if isinstance(event, wire.Event)
        for pair in zip(event.arguments["ids"], event.arguments["of"], strict=True)
    ]
    assert found == list(ids.items())
