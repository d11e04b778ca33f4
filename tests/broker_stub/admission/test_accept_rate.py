"""The adaptive accept rate, in virtual time: a member with a fixed capacity of setups a second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.admission.accept_rate import INTERVAL, AutoRate


def test_it_stays_while_nobody_waits() -> None:
    auto = AutoRate(200.0)
    for _ in range(100):
        auto.completed(0.01)
        assert auto.tick(0.0) == 200.0


def test_it_grows_while_somebody_waits_and_nothing_is_late() -> None:
    auto = AutoRate(200.0)
    auto.note_waiting()
    assert auto.tick(0.001) == 210.0
    assert auto.tick(0.001) == 210.0


def test_a_late_loop_makes_it_fall() -> None:
    auto = AutoRate(200.0)
    auto.note_waiting()
    assert auto.tick(0.05) == pytest.approx(140.0)


def test_set_ups_that_are_much_slower_than_the_fastest_make_it_fall() -> None:
    auto = AutoRate(200.0)
    auto.completed(0.05)
    auto.tick(0.0)
    auto.completed(0.19)
    assert auto.tick(0.0) == 200.0
    auto.completed(0.21)
    assert auto.tick(0.0) == pytest.approx(140.0)


def test_clients_that_are_far_away_are_not_slow() -> None:
    auto = AutoRate(200.0)
    for _ in range(10):
        auto.note_waiting()
        auto.completed(2.0)
        auto.tick(0.0)
    assert auto.rate == 300.0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.booleans()), max_size=100))
def test_whatever_happens_it_stays_in_its_bounds(looks: list[tuple[float, float, bool]]) -> None:
    auto = AutoRate(80.0)
    for lag, seconds, wanted in looks:
        auto.completed(seconds)
        if wanted:
            auto.note_waiting()
        assert 10.0 <= auto.tick(lag) <= 320.0


@pytest.mark.parametrize("capacity", [60.0, 150.0, 500.0])
def test_it_settles_near_what_the_member_can_do(capacity: float) -> None:
    """Work that is not done in an interval delays the next one's tick, as in a real loop."""
    auto, backlog, rates = AutoRate(200.0), 0.0, []
    for _ in range(400):
        auto.note_waiting()
        backlog = max(0.0, backlog + (auto.rate - capacity) * INTERVAL)
        rates.append(auto.tick(backlog / capacity))
    settled = sum(rates[200:]) / 200
    assert 0.6 * capacity <= settled <= 1.05 * capacity
