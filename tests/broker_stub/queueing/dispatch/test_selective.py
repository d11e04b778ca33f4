"""Consumers that take some messages only: a model, and the cost of messages that no consumer takes."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_stub.amqp.message_format import Envelope
from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.dispatch.selection_time import SelectionTime
from broker_stub.queueing.message import Consumer, Message
from broker_stub.queueing.queue import Queue


class Taker:
    """A consumer of messages whose first byte is one of ``wanted``, ``None`` for all."""

    def __init__(
        self, queue: Queue, wanted: bytes | None, credit: int = 0, *, browsing: bool = False
    ) -> None:
        self.queue, self.wanted, self.credit = queue, wanted, credit
        self.held: list[Message] = []
        self.asked = self.idled = 0
        self.consumer: Consumer = queue.subscribe(
            self, browsing=browsing, selects=None if wanted is None else self.selects
        )
        queue.ready(self.consumer)

    def selects(self, message: Message) -> bool:
        self.asked += 1
        return self.takes(message)

    def takes(self, message: Message) -> bool:
        return self.wanted is None or message.data[0] in self.wanted

    def capacity(self) -> int:
        return self.credit

    def deliver(self, message: Message) -> None:
        assert self.credit > 0
        assert self.takes(message)
        self.credit -= 1
        self.held.append(message)

    def queue_deleted(self) -> None: ...

    def idle(self) -> None:
        self.idled += 1
        self.queue.ready(self.consumer)


class SelectiveMachine(RuleBasedStateMachine):
    """No consumer with room lacks a waiting message that it takes; none is lost or duplicated; order is
    kept.
    """

    @initialize()
    def start(self) -> None:
        self.queue = Queue("q", lambda: 0.0)
        self.there: list[Message] = []
        self.takers = [Taker(self.queue, wanted) for wanted in (b"a", b"ab", b"c", None)]

    @rule(data=st.sampled_from([b"a", b"b", b"c", b"d"]))
    def put(self, data: bytes) -> None:
        message = self.queue.enqueue(data, lambda _: None, None)
        assert message is not None
        self.there.append(message)

    @rule(number=st.integers(0, 3), credit=st.integers(1, 3))
    def give_credit(self, number: int, credit: int) -> None:
        taker = self.takers[number]
        available = [each for each in self.waiting() if taker.takes(each) and not self.refused(taker, each)]
        before = len(taker.held)
        taker.credit += credit
        self.queue.ready(taker.consumer)
        assert taker.held[before:] == available[: len(taker.held) - before], "in order of position"

    @precondition(lambda self: any(taker.held for taker in self.takers))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from([each for each in self.takers if each.held]))
        message = taker.held.pop(data.draw(st.integers(0, len(taker.held) - 1)))
        how = data.draw(st.sampled_from(["accept", "release", "refuse"]))
        if how == "accept":
            self.there.remove(message)
            self.queue.accept(taker.consumer, message)
        elif how == "release":
            self.queue.release(taker.consumer, message)
        else:
            self.queue.modify(taker.consumer, message, undeliverable_here=True)

    @rule(number=st.integers(0, 3))
    def leave_and_come_again(self, number: int) -> None:
        taker = self.takers[number]
        self.queue.unsubscribe(taker.consumer)
        self.takers[number] = Taker(self.queue, taker.wanted)

    @staticmethod
    def refused(taker: Taker, message: Message) -> bool:
        return taker.consumer in (message.refused_by or set())

    def waiting(self) -> list[Message]:
        held = {id(each) for taker in self.takers for each in taker.held}
        return [each for each in self.there if id(each) not in held]

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        assert self.queue.depth == len(self.there)
        held = [each.number for taker in self.takers for each in taker.held]
        assert len(held) == len(set(held)), "given twice"
        for message in self.waiting():
            free = [each for each in self.takers if each.credit and not self.refused(each, message)]
            assert not [each for each in free if each.takes(message)], f"{message.data!r} waits"


SelectiveMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_selective_consumers_and_others_get_what_they_take = SelectiveMachine.TestCase


async def test_a_consumer_is_asked_about_each_message_once_however_often_it_gives_credit() -> None:
    queue = Queue("q", lambda: 0.0, selection_time=SelectionTime(lambda: 0.0))
    taker = Taker(queue, b"x", credit=1)
    for _ in range(2000):
        queue.enqueue(b"other", lambda _: None, None)
    for _ in range(2000):
        queue.ready(taker.consumer)
    assert taker.asked == 2000


async def test_the_loop_goes_on_while_a_queue_is_searched() -> None:
    queue = Queue("q", lambda: 0.0)
    for _ in range(5000):
        queue.enqueue(b"other", lambda _: None, None)
    queue.enqueue(b"x", lambda _: None, None)
    for browsing in (False, True):
        taker = Taker(queue, b"x", credit=2, browsing=browsing)
        turns = 0
        while not taker.held:
            assert taker.asked < 5001
            await asyncio.sleep(0)
            turns += 1
        assert turns > 5
        queue.unsubscribe(taker.consumer)


async def test_a_drain_of_a_long_queue_is_answered_when_all_of_it_was_looked_at() -> None:
    queue = Queue("q", lambda: 0.0)
    for _ in range(2000):
        queue.enqueue(b"other", lambda _: None, None)
    taker = Taker(queue, b"x", credit=1)
    assert not queue.idle_for(taker.consumer)
    while not taker.idled:  # noqa: ASYNC110 - each turn is a piece of the search
        await asyncio.sleep(0)
    assert queue.idle_for(taker.consumer)
    assert taker.asked == 2000


async def test_what_selective_consumers_took_is_not_kept() -> None:
    queue = Queue("q", lambda: 0.0, selection_time=SelectionTime(lambda: 0.0))
    taker = Taker(queue, b"x", credit=10**9)
    for number in range(5 * SLACK):
        queue.enqueue(b"x", lambda _: None, None)
        message = taker.held.pop()
        if number % 2:
            queue.release(taker.consumer, message)
            message = taker.held.pop()
        queue.accept(taker.consumer, message)
    assert (
        len(queue._dispatcher.ready_list._fresh) + len(queue._dispatcher.ready_list._returned)
        <= 2 * SLACK + 4
    )
    assert not taker.consumer.returned


class SlowTaker(Taker):
    """A consumer whose selector takes 20 ms of a simulated clock."""

    now = 0.0

    def selects(self, message: Message) -> bool:
        SlowTaker.now += 0.02
        return super().selects(message)


def slow_queues(count: int) -> list[Queue]:
    """Return queues of one member, which share the time limit of conditions."""
    time = SelectionTime(lambda: SlowTaker.now)
    return [Queue(f"q{number}", lambda: 0.0, selection_time=time) for number in range(count)]


@pytest.mark.parametrize("browsing", [False, True])
async def test_a_slow_selector_is_asked_a_few_times_in_one_iteration_of_the_loop(browsing: bool) -> None:
    [queue] = slow_queues(1)
    taker = SlowTaker(queue, b"x", credit=10, browsing=browsing)
    for each in (b"other",) * 20 + (b"x",):  # each new message starts a search for consumers
        queue.enqueue(each, lambda _: None, None)
    asked = [taker.asked]
    while not taker.held:
        await asyncio.sleep(0)
        asked.append(taker.asked)
    assert taker.asked == 21
    assert max(after - before for before, after in itertools.pairwise([0, *asked])) <= 4


async def test_the_time_for_looks_is_that_of_all_queues() -> None:
    queues = slow_queues(5)
    takers = [SlowTaker(queue, b"x", credit=10) for queue in queues]
    for queue in queues:
        for each in (b"other",) * 9 + (b"x",):
            queue.enqueue(each, lambda _: None, None)
    most = 0
    while not all(taker.held for taker in takers):
        before = sum(taker.asked for taker in takers)
        await asyncio.sleep(0)
        most = max(most, sum(taker.asked for taker in takers) - before)
    assert sum(taker.asked for taker in takers) == 50
    assert most <= 3 + len(queues)  # each goes on by one in any case


@pytest.mark.parametrize("priority", [4, 7])
async def test_what_comes_back_when_the_time_is_over_is_found_again(priority: int) -> None:
    [queue] = slow_queues(1)
    takers = [SlowTaker(queue, b"x", credit=1) for _ in range(10)]
    for number in range(4):
        queue.enqueue(b"x%d" % number, lambda _: None, None, Envelope(priority=priority))
    while sum(len(taker.held) for taker in takers) < 4:  # noqa: ASYNC110 - each turn is a piece
        await asyncio.sleep(0)
    holders = [taker for taker in takers if taker.held]
    for taker in holders:
        [message] = taker.held
        taker.held.clear()
        queue.release(taker.consumer, message)
    while sum(len(taker.held) for taker in takers) < 4:  # noqa: ASYNC110 - each turn is a piece
        await asyncio.sleep(0)
    assert sorted(each.data for taker in takers for each in taker.held) == [b"x0", b"x1", b"x2", b"x3"]
