"""Messages consumed while a backup caught up are not redelivered by that backup."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_stub.replication import backlog, wire
from broker_stub.replication.replica import Phase
from haclient.outcome import ACCEPTED
from tests.broker_stub.queueing.takers import Taker
from tests.broker_stub.replication.test_queue_feed import replicated
from tests.broker_stub.replication.test_slow_replica import Pair


def accept(taker: Taker, *numbers: int) -> None:
    for message in [message for message in taker.got if message.number in numbers]:
        taker.queue.accept(taker.consumer, message)


async def sent_all(messages: int) -> Pair:
    """Make a replica that was sent everything it lacks, and has acknowledged nothing."""
    pair = Pair(messages=messages)
    await pair.execute()
    await pair.execute()
    pair.report()
    pair.data.credit = 1000
    pair.replica.pump()
    assert pair.replica.phase is Phase.FINAL_CATCH_UP
    return pair


async def failed_over(pair: Pair, acknowledged: list[tuple[bytes, Any]]) -> list[int]:
    """Promote a backup that has only acknowledged events; return its queue."""
    pair.data.sent = acknowledged
    queue, _ = await replicated(pair.data)
    return queue.ids()


async def test_a_replica_is_ready_only_when_it_has_the_dequeues_from_its_catch_up() -> None:
    """The replica's link is full for a while. Acknowledgements alone must not make it ready."""
    pair = await sent_all(3)
    taker = Taker(pair.queue)
    pair.data.credit = 0
    accept(taker, 2)
    await asyncio.sleep(0)
    acknowledged = list(pair.data.sent)
    pair.data.settle_all()
    assert not pair.primary.caught_up
    assert pair.replica.lag > 0
    assert await failed_over(pair, acknowledged) == [1, 2, 3], "it would deliver a second time what was taken"
    pair.data.sent = acknowledged
    pair.data.credit = 10
    pair.replica.pump()
    assert not pair.primary.caught_up
    pair.data.settle_all()
    assert pair.primary.caught_up
    assert await failed_over(pair, pair.data.sent) == [1, 3]


async def test_also_when_the_dequeue_is_of_the_turn_in_which_the_last_acknowledgement_arrives() -> None:
    pair = await sent_all(3)
    taker = Taker(pair.queue)
    await asyncio.sleep(0)
    accept(taker, 1)
    pair.data.settle_all()
    assert pair.replica.phase is Phase.WAITING
    assert not pair.primary.caught_up
    await asyncio.sleep(0)
    pair.data.settle_all()
    assert pair.primary.caught_up
    assert await failed_over(pair, pair.data.sent) == [2, 3]


async def test_a_dequeue_before_the_report_is_part_of_the_difference() -> None:
    pair = Pair(messages=3)
    taker = Taker(pair.queue)
    await pair.execute()
    await pair.execute()
    accept(taker, 1, 2)
    pair.replica.begin_queue(wire.key(pair.queue.identity), [(1, 3)])
    pair.data.credit = 10
    pair.replica.pump()
    assert not pair.primary.caught_up
    pair.data.settle_all()
    assert pair.primary.caught_up
    assert wire.Event("discard", (1, 2), queue=wire.key(pair.queue.identity)) in [
        wire.decode(data) for data, _ in pair.data.sent
    ]


async def test_deliveries_count_as_well_and_from_waiting_on_neither_does() -> None:
    """No replica becomes ready later than necessary: endless dequeues would keep it out for ever."""
    pair = await sent_all(3)
    Taker(pair.queue)
    await asyncio.sleep(0)
    pair.data.settle_all()
    assert (pair.replica.phase, pair.primary.caught_up) == (Phase.WAITING, True)
    [acquired] = [wire.decode(data) for data, token in pair.data.sent if token is not None and token < 0]
    assert isinstance(acquired, wire.Event)
    assert (acquired.operation, acquired.ids) == ("acquired", (1, 2, 3))
    pair.put(1)
    await asyncio.sleep(0)
    assert [token for _, token in pair.data.sent][-2:] == [4, None]
    assert pair.replica.lag == 1


async def test_a_replica_that_waits_becomes_ready_although_consumers_go_on() -> None:
    pair = await sent_all(50)
    taker = Taker(pair.queue)
    accept(taker, 1)
    await asyncio.sleep(0)
    for number in range(2, 50):
        accept(taker, number)
        await asyncio.sleep(0)
        tokens, pair.data.tokens = pair.data.tokens[:-1], pair.data.tokens[-1:]
        for token in tokens:
            pair.data.owner.settled(pair.data, token, ACCEPTED)
        if pair.primary.caught_up:
            break
    assert pair.primary.caught_up


async def test_dequeues_without_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "_MOST_EVENTS", 5)
    pair = await sent_all(20)
    taker = Taker(pair.queue)
    await asyncio.sleep(0)
    pair.data.credit = 0
    for number in range(1, 7):
        assert not pair.replica.backlog.full
        accept(taker, number)
        await asyncio.sleep(0)
    assert pair.replica.backlog.full
    pair.data.credit = 1000
    pair.replica.pump()
    assert (pair.replica.backlog.events, pair.replica.backlog.size) == (0, 0)


async def test_of_a_queue_that_is_deleted_or_set_aside_no_dequeue_is_waited_for() -> None:
    for end in ("deleted", "set aside"):
        pair = await sent_all(3)
        taker = Taker(pair.queue)
        pair.data.credit = 0
        accept(taker, 1)
        await asyncio.sleep(0)
        if end == "deleted":
            pair.replica.remove(pair.queue)
        else:
            [feed] = pair.replica._feeds.values()
            pair.replica.feed_failed(feed, "a test wants it so")
        assert (pair.replica.lag, pair.replica.backlog.events) == (0, 0)
        assert pair.primary.caught_up == (end == "deleted")
