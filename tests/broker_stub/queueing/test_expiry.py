"""The two times of a message, and the expired messages of a queue, soonest first."""

from __future__ import annotations

import pytest

from broker_stub.amqp.message_format import PLAIN
from broker_stub.queueing.dispatch.expiry import Expiry
from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.message import Message

NOW_MS = 1_700_000_000_000


class Clock:
    """A clock that advances when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def expiry(clock: Clock) -> Expiry:
    return Expiry(clock, lambda: NOW_MS)


def message(number: int) -> Message:
    return Message(number, b"", PLAIN)


def test_a_lifetime_counts_from_now_by_both_clocks(expiry: Expiry, clock: Clock) -> None:
    short = message(1)
    expiry.within(short, 1.5)
    assert short.expires_at_ms == NOW_MS + 1500
    assert expiry.remaining(short) == 1.5
    clock.now += 1.4
    assert not expiry.is_expired(short)
    clock.now += 0.1
    assert expiry.is_expired(short)
    clock.now += 10
    assert expiry.remaining(short) == 0.0


@pytest.mark.parametrize(("ahead_ms", "remaining"), [(2500, 2.5), (0, 0.0), (-2500, 0.0)])
def test_a_time_of_the_wall_clock_is_as_far_ahead_by_the_own_clock(
    expiry: Expiry, ahead_ms: int, remaining: float
) -> None:
    replicated = message(1)
    expiry.at(replicated, NOW_MS + ahead_ms)
    assert replicated.expires_at_ms == NOW_MS + ahead_ms
    assert expiry.remaining(replicated) == remaining
    assert expiry.is_expired(replicated) == (remaining == 0)


def test_a_message_without_a_lifetime_is_never_over(expiry: Expiry, clock: Clock) -> None:
    clock.now += 1e9
    assert expiry.remaining(message(1)) is None
    assert not expiry.is_expired(message(1))


def test_what_has_expired_is_reported_once_and_the_soonest_first(expiry: Expiry, clock: Clock) -> None:
    assert list(expiry.overdue()) == []
    for number, lifetime in enumerate((3.0, 1.0, 2.0), start=1):
        expiry.within(message(number), lifetime)
    clock.now += 2
    assert list(expiry.overdue()) == [2, 3]
    clock.now += 2
    assert list(expiry.overdue()) == [1]
    assert list(expiry.overdue()) == []


@pytest.mark.parametrize(("more", "reported"), [(0, 20 + SLACK), (1, 10)])
def test_those_that_left_are_swept_up_when_they_are_most(
    expiry: Expiry, clock: Clock, more: int, reported: int
) -> None:
    count = 20 + SLACK + more
    for number in range(count):
        expiry.within(message(number), count - number)
    expiry.compact(range(10))
    clock.now += count
    assert list(expiry.overdue()) == list(reversed(range(reported)))
