"""Delayed messages under a clock set by the test: none is early, and all are delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.amqp.message_format import inspect, inspect_new
from broker_stub.queueing.dispatch.delayed import with_delivery_time
from broker_stub.queueing.dispatch.ready_list import SLACK
from broker_stub.queueing.queue import Queue
from tests.broker_stub.queueing.takers import Taker, decoded

DAY_MS = 86_400_000
SYMBOLS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=300)
YEAR_2024 = 1_704_067_200_000


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """A monotonic clock from 100, a wall clock, and timers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wall_ms = YEAR_2024
        self.timers: list[Timer] = []

    def __call__(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at, call))
        return self.timers[-1]

    def go_on(self, seconds: float) -> None:
        """Advance the time; timers fire at their time, and not before."""
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.at <= end and not timer.cancelled]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = max(self.now, first.at)
            first.call()
        self.now = end
        self.wall_ms += int(seconds * 1000)


def make(clock: Clock) -> Queue:
    return Queue("q", clock, now_ms=lambda: clock.wall_ms, call_at=clock.call_at)


def put(queue: Queue, body: Any, *, time: Any = None, delay: Any = None, ttl: float | None = None) -> None:
    annotations = {"x-opt-delivery-time": time, "x-opt-delivery-delay": delay, "x-mine": body}
    given_ones = {proton.symbol(name): value for name, value in annotations.items() if value is not None}
    message = proton.Message(body=body, annotations=given_ones)
    if ttl is not None:
        message.ttl = ttl
    data = bytes(message.encode())
    queue.enqueue(data, lambda _: None, None, inspect_new(data))


@pytest.mark.parametrize(
    "when",
    [
        {"delay": 5000},
        {"delay": proton.uint(5000)},
        {"delay": proton.ulong(5000)},
        {"time": YEAR_2024 + 5000},
        {"time": proton.timestamp(YEAR_2024 + 5000)},
        {"time": YEAR_2024 + 5000, "delay": DAY_MS},
    ],
)
def test_a_message_is_given_when_it_is_due_and_not_before(when: dict[str, Any]) -> None:
    clock = Clock()
    queue = make(clock)
    taker = Taker(queue)
    put(queue, "late", **when)
    put(queue, "now")
    assert (taker.bodies, queue.depth) == (["now"], 2)
    clock.go_on(4.5)
    assert taker.bodies == ["now"]
    clock.go_on(0.5)
    assert taker.bodies == ["now", "late"]
    assert decoded(taker.got[1].data).annotations[proton.symbol("x-mine")] == "late"


@pytest.mark.parametrize(
    "when",
    [{"delay": 0}, {"delay": -5}, {"time": 0}, {"time": -(2**62)}, {"delay": "soon"}, {"time": YEAR_2024}],
)
def test_what_is_due_already_or_says_nothing_that_counts_is_given_at_once(when: dict[str, Any]) -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, "x", **when)
    assert Taker(queue).bodies == ["x"]
    assert not clock.timers


@pytest.mark.parametrize(
    "when", [{"delay": 2**63 - 1}, {"time": 2**63 - 1}, {"delay": proton.ulong(2**64 - 1)}]
)
def test_the_largest_delay_is_no_error(when: dict[str, Any]) -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, "x", **when)
    clock.go_on(10 * 86400)
    assert Taker(queue).bodies == []


def test_what_becomes_due_has_the_place_of_its_arrival() -> None:
    clock = Clock()
    queue = make(clock)
    for number, delay in enumerate((3000, 1000, 2000)):
        put(queue, number, delay=delay)
    put(queue, 3)
    clock.go_on(5)
    assert Taker(queue).bodies == [0, 1, 2, 3]


def test_a_message_may_expire_before_it_is_due() -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, "x", delay=5000, ttl=2.0)
    clock.go_on(3)
    queue.expire()
    assert (queue.depth, queue.counters.expired) == (0, 1)
    clock.go_on(3)
    assert Taker(queue).bodies == []


def test_a_selective_consumer_gets_what_has_become_due_behind_its_cursor() -> None:
    clock = Clock()
    queue = make(clock)
    taker = Taker(queue, selects=lambda _: True)
    put(queue, "late", delay=1000)
    put(queue, "now")
    clock.go_on(1)
    assert taker.bodies == ["now", "late"]


def test_a_delay_is_in_the_bytes_as_a_time_of_this_member() -> None:
    """So a store needs no other column, and a restart continues with the remaining delay."""
    clock = Clock()
    queue = make(clock)
    put(queue, "x", delay=5000)
    [message] = [queue.message(number) for number in queue.ids()]
    assert message is not None
    clock.go_on(2)
    again = make(clock)
    again.insert(1, message.data, inspect(message.data), 0, 0)
    taker = Taker(again)
    clock.go_on(2.5)
    assert taker.bodies == []
    clock.go_on(0.5)
    assert taker.bodies == ["x"]


@pytest.mark.parametrize("ahead", [-3 * 3_600_000, 3 * 3_600_000])
def test_a_correction_moves_a_message_to_what_the_primary_has_left(ahead: int) -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, "x", delay=5000)
    clock.wall_ms += ahead
    [number] = queue.ids()
    size = queue.size
    assert [message.number for message in queue.delays.correct([(number, 60_000)])] == [number]
    assert queue.size == size == len(queue.message(number).data)  # type: ignore[union-attr]
    assert queue.delays.correct([(number, 59_500), (99, 1)]) == []
    taker = Taker(queue)
    clock.go_on(59.5)
    assert taker.bodies == []
    clock.go_on(0.5)
    assert taker.bodies == ["x"]
    assert queue.delays.correct([(number, 0)]) == []


def test_what_was_removed_while_it_was_delayed_is_not_kept() -> None:
    clock = Clock()
    queue = make(clock)
    for _ in range(4 * SLACK):
        put(queue, "x", delay=DAY_MS)
        queue.discard(queue.ids())
    assert len(queue.delays._soonest) <= SLACK + 2
    assert len([timer for timer in clock.timers if not timer.cancelled]) <= 1


def test_a_deleted_queue_has_no_timer() -> None:
    clock = Clock()
    queue = make(clock)
    put(queue, "x", delay=1000)
    queue.close()
    assert all(timer.cancelled for timer in clock.timers)


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["put", "wait"])), max_size=30))
def test_at_every_moment_exactly_what_is_due_has_been_given(steps: list[tuple[int, str]]) -> None:
    clock = Clock()
    queue = make(clock)
    taker = Taker(queue)
    due: dict[int, float] = {}
    for number, (amount, step) in enumerate(steps):
        if step == "put":
            put(queue, number, delay=amount * 1000)
            due[number] = clock.now + amount
        else:
            clock.go_on(amount)
        assert sorted(taker.bodies) == sorted(each for each, at in due.items() if at <= clock.now)


@given(st.dictionaries(SYMBOLS, st.integers(0, 2**31 - 1), max_size=5), st.binary())
def test_the_time_is_written_beside_other_annotations(others: dict[str, int], body: bytes) -> None:
    message = proton.Message(body=body, properties={"a": "b"}, subject="s")
    message.annotations = {proton.symbol(name): value for name, value in others.items()}
    message.instructions = {proton.symbol("x-opt-hop"): 1}
    data = with_delivery_time(bytes(message.encode()), 12345)
    again = decoded(data)
    found = {str(name): value for name, value in again.annotations.items()}
    assert found == {**others, "x-opt-delivery-time": 12345}
    assert (again.body, again.properties, again.subject) == (body, {"a": "b"}, "s")
    assert again.instructions == message.instructions
    assert inspect(data).deliver_at_ms == 12345
