"""Messages that some consumers refuse: they wait for a consumer that takes them, and cost nothing
meanwhile.
"""

from __future__ import annotations

import pytest

from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Consumer, Message
from broker_stub.queueing.queue import Queue
from tests.broker_stub.queueing.takers import Taker


class Multiples(Taker):
    """A consumer of messages whose number is a multiple; it counts how often it was asked."""

    def __init__(self, queue: Queue, credit: int, multiple: int) -> None:
        self.asked = 0
        self.multiple = multiple
        super().__init__(queue, credit, selects=self.takes)

    def takes(self, message: Message) -> bool:
        self.asked += 1
        return message.number % self.multiple == 0


def put(queue: Queue, count: int) -> None:
    for _ in range(count):
        queue.enqueue(b"", lambda _: None, None)


def test_each_gets_what_it_selects_in_order_whoever_has_credit_first() -> None:
    queue = Queue("q", lambda: 0.0)
    evens = Multiples(queue, 3, 2)
    put(queue, 8)
    every = Taker(queue, 10)
    assert evens.numbers == [2, 4, 6]
    assert every.numbers == [1, 3, 5, 7, 8]


def test_what_was_deferred_goes_to_a_new_consumer_that_takes_it() -> None:
    queue = Queue("q", lambda: 0.0)
    Multiples(queue, 9, 7)
    put(queue, 6)
    assert Multiples(queue, 9, 3).numbers == [3, 6]
    assert Taker(queue, 9).numbers == [1, 2, 4, 5]


def test_a_message_that_two_wait_for_goes_to_the_first_that_is_ready_and_comes_back_to_both() -> None:
    queue = Queue("q", lambda: 0.0)
    Multiples(queue, 9, 7)
    one, other = (Multiples(queue, 0, 2) for _ in range(2))
    put(queue, 2)
    one.credit = 1
    queue.ready(one.consumer)
    [message] = one.got
    for each in (other, one) * 3:
        holder = one if message in one.consumer.held else other
        queue.release(holder.consumer, message)
        each.credit = 1
        queue.ready(each.consumer)
        assert message in each.consumer.held
    queue.accept(one.consumer, message)
    other.credit = 5
    queue.ready(other.consumer)
    assert queue.depth == 1


class CountedRefusals(set[Consumer]):
    """The consumers that refused a message, with a count of its lookups."""

    asked = 0

    def __contains__(self, consumer: object) -> bool:
        CountedRefusals.asked += 1
        return super().__contains__(consumer)


@pytest.mark.parametrize("credit", [1, 10])
def test_what_one_consumer_refused_is_compared_a_few_times_with_each(credit: int) -> None:
    """A credit of the other consumer must not restart the comparison of all messages."""
    CountedRefusals.asked = 0
    queue = Queue("q", lambda: 0.0)
    refuser, slow = Taker(queue, 2000), Taker(queue, 0)
    put(queue, 2000)
    for message in tuple(refuser.got):
        message.refused_by = CountedRefusals({refuser.consumer})
        queue.release(refuser.consumer, message)
    refuser.credit = 1
    queue.ready(refuser.consumer)
    while queue.depth:
        slow.credit = credit
        queue.ready(slow.consumer)
        for message in tuple(slow.consumer.held):
            queue.accept(slow.consumer, message)
    assert slow.numbers == list(range(1, 2001))
    assert CountedRefusals.asked <= 10 * 2000


def test_a_message_that_is_passed_back_and_forth_is_remembered_once() -> None:
    queue = Queue("q", lambda: 0.0)
    refuser, idle, busy = Taker(queue, 1), Taker(queue, 0), Taker(queue, 0)
    put(queue, 1)
    queue.modify(refuser.consumer, refuser.got[0], undeliverable_here=True)
    refuser.credit = 1
    queue.ready(refuser.consumer)
    for _ in range(3 * SLACK):
        busy.credit = 1
        queue.ready(busy.consumer)
        queue.release(busy.consumer, busy.got.pop())
    assert len(idle.consumer.candidates) <= SLACK + 4
