"""Available messages leave by number, in whatever order they arrived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.amqp.message_format import PLAIN, Envelope
from broker_stub.queueing.dispatch.ready_list import SLACK, PriorityReadyList, ReadyList
from broker_stub.queueing.message import Message, MessageState


def message(number: int) -> Message:
    return Message(number, b"", PLAIN)


def make(*numbers: int) -> ReadyList:
    order = ReadyList(lambda _: False)
    for number in numbers:
        order.append(message(number))
    return order


def taken(order: ReadyList | PriorityReadyList) -> list[int]:
    """Take all available messages; return their numbers in order."""
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


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.booleans(), min_size=30))
def test_the_highest_priority_comes_first_and_the_first_of_equal_ones(
    priorities: list[int], again: list[bool]
) -> None:
    order = PriorityReadyList(lambda _: False, ReadyList(lambda _: False))
    messages = [
        Message(number, b"", Envelope(priority=priority)) for number, priority in enumerate(priorities)
    ]
    for each in messages:
        order.append(each)
    for returned in again[: len(messages)]:
        if returned:
            first = order.take()
            assert first is not None
            order.requeue(first)
    expected = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
    assert taken(order) == expected


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
