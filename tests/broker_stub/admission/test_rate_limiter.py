"""The time of each admission, in virtual time."""

from __future__ import annotations

import heapq
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.admission.rate_limiter import RateLimiter


def drained(**options: float) -> RateLimiter:
    """An admission of 10 a second whose burst is used up at time 0."""
    admission = RateLimiter(10.0, burst=1, **options)
    assert admission.reserve("first", 0.0) == 0.0
    return admission


def test_a_burst_is_admitted_and_the_kth_refused_gets_the_kth_slot() -> None:
    admission = RateLimiter(10.0, burst=4)
    waits = [admission.reserve(number, 100.0) for number in range(7)]
    assert waits == pytest.approx([0, 0, 0, 0, 0.1, 0.2, 0.3])


def test_a_client_that_comes_in_its_time_is_admitted_however_many_came_meanwhile() -> None:
    admission = drained()
    wait = admission.reserve("me", 0.0)
    for number in range(1000):
        assert admission.reserve(number, 0.01) > 0
    assert admission.reserve("me", wait) == 0.0


def test_coming_early_gains_nothing_and_loses_nothing() -> None:
    admission = drained()
    admission.reserve("other", 0.0)
    assert admission.reserve("me", 0.0) == pytest.approx(0.2)
    assert admission.reserve("me", 0.05) == pytest.approx(0.15)
    assert admission.reserve("next", 0.05) == pytest.approx(0.25)


def test_less_than_one_slot_early_is_in_time() -> None:
    admission = drained()
    assert admission.reserve("me", 0.0) == pytest.approx(0.1)
    assert admission.reserve("me", 0.02) == 0.0


def test_a_slot_is_kept_for_the_grace_and_is_used_once() -> None:
    admission = drained(grace=2.0)
    admission.reserve("me", 0.0)
    for number in range(100):
        admission.reserve(number, 0.0)
    assert admission.reserve("me", 2.1) == 0.0
    assert admission.reserve("me", 2.1) > 0


def test_a_slot_that_nobody_comes_for_goes_to_the_next_newcomer() -> None:
    admission = drained(grace=0.5)
    admission.reserve("lost", 0.0)
    for number in range(20):
        admission.reserve(number, 0.0)
    assert admission.reserve("late", 0.61) == 0.0
    assert admission.reserve("later", 0.61) > 0


def test_what_nobody_used_cannot_be_saved_up_beyond_the_burst() -> None:
    admission = RateLimiter(10.0, burst=3, grace=0.5)
    for number in range(100):
        admission.reserve(number, 0.0)
    # 90 slots are lost; 3 are credits, and 3 more come from the idle time since then.
    admitted = sum(admission.reserve(f"new {number}", 1000.0) == 0 for number in range(100))
    assert admitted == 6
    assert admission.waiting == 94


def test_slots_of_clients_that_are_sent_on_are_no_credits() -> None:
    admission = RateLimiter(10.0, burst=1, grace=0.5, reuse=False)
    for number in range(21):
        admission.reserve(number, 0.0)
    assert admission.reserve("late", 1.0) == pytest.approx(1.1)
    assert admission.waiting == 17


def test_a_new_rate_moves_no_slot_that_was_promised() -> None:
    admission = drained()
    admission.reserve("me", 0.0)
    admission.rate = 1.0
    assert admission.rate == 1.0
    assert admission.reserve("next", 0.0) == pytest.approx(0.2)
    assert admission.reserve("after it", 0.0) == pytest.approx(1.2)
    admission.rate = 100.0
    assert admission.reserve("after that", 0.0) == pytest.approx(2.2)
    assert admission.reserve("last", 0.0) == pytest.approx(2.21)


def test_without_a_limit_everybody_is_admitted() -> None:
    admission = RateLimiter(math.inf)
    assert [admission.reserve(number, 5.0) for number in range(1000)] == [0.0] * 1000


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate above 0"):
        RateLimiter(rate)


@pytest.mark.parametrize(("burst", "grace"), [(0.5, 1.0), (1.0, -1.0), (math.nan, 1.0)])
def test_a_burst_and_a_grace_that_make_no_sense_are_refused(burst: float, grace: float) -> None:
    with pytest.raises(ValueError, match="burst of at least 1"):
        RateLimiter(1.0, burst=burst, grace=grace)


@given(
    st.floats(0.5, 500),
    st.integers(1, 16),
    st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1)), max_size=300),
)
def test_over_any_time_no_more_are_admitted_than_rate_burst_and_grace_allow(
    rate: float, burst: int, asks: list[tuple[int, float]]
) -> None:
    grace = 0.5
    admission = RateLimiter(rate, burst=burst, grace=grace)
    now, times = 0.0, []
    for client, pause in asks:
        now += pause
        if admission.reserve(client, now) == 0:
            times.append(now)
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            span = times[last] - start
            assert last - first + 1 <= rate * (span + grace) + 2 * burst + 2


@given(st.floats(1, 500), st.integers(1, 16), st.integers(1, 300), st.floats(0, 0.9), st.randoms())
def test_clients_that_honor_retry_after_are_all_in_after_two_attempts(
    rate: float, burst: int, clients: int, jitter: float, random: object
) -> None:
    admission = RateLimiter(rate, burst=burst, grace=1.0)
    arrivals = [(0.0, number) for number in range(clients)]
    attempts, last = 0, 0.0
    while arrivals:
        now, client = heapq.heappop(arrivals)
        attempts += 1
        wait = admission.reserve(client, now)
        if wait:
            heapq.heappush(arrivals, (now + wait + jitter * random.random(), client))
        else:
            last = now
    assert attempts <= 2 * clients
    assert last <= clients / rate + jitter
    assert admission.waiting == 0


def test_it_can_be_had_without_proton() -> None:
    """The simulator imports it; a million virtual clients need no AMQP."""
    code = "import sys, broker_stub.admission.rate_limiter; sys.exit('proton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
