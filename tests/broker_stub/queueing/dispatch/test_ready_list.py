"""What is available comes out by number, whichever way it came in."""

from __future__ import annotations

import pytest

from broker_stub.amqp.message_format import PLAIN
from broker_stub.queueing.dispatch.ready_list import SLACK, ReadyList
from broker_stub.queueing.message import NO_SINK, Consumer, Message, MessageState


def message(number: int, *, refused_by: Consumer | None = None) -> Message:
    made = Message(number, b"", PLAIN)
    made.refused_by = None if refused_by is None else {refused_by}
    return made


def make(*numbers: int) -> ReadyList:
    order = ReadyList(lambda _: False)
    for number in numbers:
        order.append(message(number))
    return order


def taken(order: ReadyList) -> list[int]:
    """The numbers of all that is available, as they come."""
    found = []
    while (each := order.take()) is not None:
        found.append(each.number)
    return found


def test_a_message_that_is_added_late_comes_at_its_place() -> None:
    order = make(1, 2, 5)
    for number in (3, 7, 4, 6):
        order.add(message(number))
    assert taken(order) == [1, 2, 3, 4, 5, 6, 7]


def test_the_first_message_may_be_added_and_may_come_back() -> None:
    order = make()
    order.add(message(2))
    order.requeue(message(1))
    assert taken(order) == [1, 2]


def test_what_is_parked_comes_back_for_whoever_has_not_refused_it() -> None:
    one, other = (Consumer(NO_SINK, browsing=False, settles=False) for _ in range(2))
    order = make(3)
    order.defer(message(1, refused_by=one))
    order.defer(message(2, refused_by=other))
    order.restore_deferred(one)
    assert taken(order) == [2, 3]
    order.restore_deferred(other)
    assert taken(order) == [1]
    order.defer(message(4))
    order.restore_deferred(one)
    assert taken(order) == [4]


@pytest.mark.parametrize(("more", "left"), [(0, 20 + SLACK), (1, 10)])
def test_what_has_left_is_swept_up_when_it_is_most(more: int, left: int) -> None:
    order = ReadyList(lambda _: False)
    messages = [message(number) for number in range(20 + SLACK + more)]
    for each in messages:
        order.append(each)
        each.state = MessageState.AVAILABLE if each.number < 10 else MessageState.REMOVED
    order.compact(10)
    for each in messages:
        each.state = MessageState.AVAILABLE
    assert taken(order) == list(range(left))
