"""The fleet size that a primary announces, and the times at which its clients dial."""

from __future__ import annotations

import math
import random
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.retry.fleet import (
    CONNECTIONS,
    NO_FLEET,
    SETUP_RATE,
    FleetSize,
    Slots,
    announced_fleet,
    updated,
)

LONGEST = 120.0


def announced(connections: Any, rate: Any) -> FleetSize:
    return announced_fleet({CONNECTIONS: connections, SETUP_RATE: rate})


class TestAnnounced:
    def test_both_numbers_make_a_fleet(self) -> None:
        assert announced(proton.ulong(2000), 200.0) == FleetSize(2000, 200.0)
        assert announced(2000, 200) == FleetSize(2000, 200.0)

    @pytest.mark.parametrize("connections", [None, 0, -1, True, 20.0, math.nan, "20", [20], {}, b"20"])
    def test_a_count_that_is_none_is_ignored(self, connections: Any) -> None:
        assert announced(connections, 200.0) == NO_FLEET

    @pytest.mark.parametrize(
        "rate", [None, 0, 0.0, -0.0, -200.0, True, math.nan, math.inf, -math.inf, "200", []]
    )
    def test_a_rate_that_is_none_is_ignored(self, rate: Any) -> None:
        assert announced(2000, rate) == NO_FLEET

    def test_an_older_broker_announces_nothing(self) -> None:
        assert announced_fleet({"product": "some"}) == NO_FLEET


class TestPeriod:
    @pytest.mark.parametrize(
        ("connections", "part"), [(300, 0.942), (2000, 0.978), (4700, 1.0), (20_000, 1.021), (10**6, 1.027)]
    )
    def test_it_is_about_the_time_that_the_primary_needs_for_all(self, connections: int, part: float) -> None:
        """By hand from rule 2: a small fleet needs less, since a backlog of 128 holds early arrivals."""
        best = connections / 200.0
        assert FleetSize(connections, 200.0).period(1e6) == pytest.approx(part * best, rel=2e-3)

    @pytest.mark.parametrize("connections", [300, 700, 2000, 20_000])
    def test_a_backlog_of_128_holds_what_arrives_too_early(self, connections: int) -> None:
        """Clients arrive at random times of a period, and the primary serves one after the other."""
        rng, full = random.Random(1), 0
        period = FleetSize(connections, 200.0).period(1e6)
        for _ in range(40 if connections < 20_000 else 8):
            busy = 0.0
            for time in sorted(rng.uniform(0, period) for _ in range(connections)):
                full += busy - time > 128 / 200.0
                busy = max(busy, time) + 1 / 200.0
            assert busy <= 1.06 * connections / 200.0
        assert full == 0

    @pytest.mark.parametrize(
        "fleet", [announced(2**64 - 1, 200.0), announced(2, 5e-324), announced(2**63, 1e-300)]
    )
    def test_it_is_never_longer_than_the_client_allows(self, fleet: FleetSize) -> None:
        assert fleet.period(LONGEST) == LONGEST

    @pytest.mark.parametrize("fleet", [NO_FLEET, announced(1, 5e-324), announced(1, 200.0)])
    def test_one_client_needs_none(self, fleet: FleetSize) -> None:
        assert fleet.period(LONGEST) == 0.0


class TestUpdated:
    def test_a_primary_that_was_just_promoted_does_not_make_the_fleet_small(self) -> None:
        known = updated(FleetSize(20_000, 200.0), FleetSize(3, 300.0), same_primary=False)
        assert known == FleetSize(10_000, 300.0)

    def test_the_other_connections_of_an_application_do_not_make_it_smaller(self) -> None:
        known = FleetSize(10_000, 300.0)
        assert updated(known, FleetSize(5, 300.0), same_primary=True) == known

    @pytest.mark.parametrize("same_primary", [True, False])
    def test_a_fleet_that_grew_is_known_at_once(self, *, same_primary: bool) -> None:
        grown = FleetSize(3000, 200.0)
        assert updated(FleetSize(20, 200.0), grown, same_primary=same_primary) == grown

    def test_a_fleet_that_shrank_is_known_after_some_losses(self) -> None:
        known = FleetSize(2**63, 200.0)
        for _ in range(64):
            known = updated(known, FleetSize(5, 200.0), same_primary=False)
        assert known == FleetSize(5, 200.0)

    @pytest.mark.parametrize("same_primary", [True, False])
    def test_a_primary_that_announces_nothing_ends_the_spread(self, *, same_primary: bool) -> None:
        assert updated(FleetSize(20_000, 200.0), NO_FLEET, same_primary=same_primary) == NO_FLEET


class TestSlots:
    @given(
        began=st.floats(0, 1e9),
        period=st.floats(1e-3, 1e4),
        steps=st.lists(st.floats(0, 1e5), max_size=20),
        seed=st.integers(0, 2**32),
    )
    def test_every_period_has_one(self, began: float, period: float, steps: list[float], seed: int) -> None:
        """The next time is later than now, by at most one period."""
        slots, now = Slots(began, period, random.Random(seed)), began
        for step in steps:
            now += step
            later = slots.after(now)
            assert now < later <= now + period * (1 + 1e-6) + 1e-6
            now = later

    def test_a_client_that_is_late_keeps_its_moment(self) -> None:
        slots = Slots(100.0, 10.0, random.Random(1))
        first = slots.after(100.0)
        assert slots.after(first) == pytest.approx(first + 10)
        assert slots.after(first + 57) == pytest.approx(first + 60)

    def test_the_clients_of_a_fleet_fill_the_period_evenly(self) -> None:
        rng = random.Random(1)
        first = [Slots(0.0, 10.0, rng).after(0.0) for _ in range(10_000)]
        for tenth in range(10):
            assert sum(tenth <= time < tenth + 1 for time in first) == pytest.approx(1000, rel=0.15)
