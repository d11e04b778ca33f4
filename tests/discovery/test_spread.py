"""Clients spread their dials if their primary announced its fleet before it was lost."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from haclient.discovery.evidence import Claimed, PrimaryLost
from haclient.discovery.polling.by_answer import Polling
from haclient.discovery.polling.dial_times import DialTimes
from haclient.discovery.topology import Topology, update
from haclient.retry.backoff import Backoff
from haclient.retry.fleet import NO_FLEET, FleetSize
from haclient.retry.policy import Policy

from .virtual import BlackHole, E, Factory, Fails, Parks, Serves, World, closes, reservation

FLEET = FleetSize(4000, 200.0)
POLICY = Policy(startup_deadline=None)
PERIOD = FLEET.period(POLICY.max_spread)
FORCED = closes("amqp:connection:forced")
SEEDS = range(200)


def lost(
    world: World,
    members: int = 1,
    *,
    until: float = 1000.0,
    seed: int = 0,
    policy: Policy = POLICY,
    fleet: FleetSize = FLEET,
    generation: int | None = None,
) -> Factory:
    """Run one connection that lost the first member at time 0."""
    factory = Factory(world, E[:members], policy=policy, seed=seed)
    factory.topology = update(factory.topology, Claimed(E[0], generation, None, 0, fleet=fleet))
    factory.topology = update(factory.topology, PrimaryLost(E[0], 0))
    factory.connect(first=False)
    factory.run(until)
    return factory


def moments(factory: Factory) -> list[float]:
    return [when for when, _ in factory.dials()]


def gaps(times: list[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(times)]


class TestOneBrokenConnection:
    """The primary is alive."""

    @pytest.mark.parametrize("members", [1, 3])
    def test_it_does_not_wait_for_the_fleet(self, members: int) -> None:
        back = [lost({E[0]: Serves()}, members, seed=seed).now for seed in SEEDS]
        assert max(back) <= 0.5 + 0.01
        assert sum(time <= 0.1 + 0.01 for time in back) >= 0.95 * len(back)

    def test_no_other_member_is_dialled_for_it(self) -> None:
        """Otherwise the whole fleet of a dead primary would dial there at once, mostly in vain."""
        world: World = {E[0]: Fails(), E[1]: FORCED, E[2]: FORCED}
        for seed in SEEDS:
            factory = lost(world, 3, until=0.5, seed=seed)
            dials = factory.dials()
            assert [where for when, where in dials if when <= 0.1][:1] == E[:1]


class TestOutage:
    """Each client dials at a time of its own."""

    @pytest.mark.parametrize("answer", [Fails(), BlackHole()])
    def test_a_period_lies_between_two_dials(self, answer: Fails | BlackHole) -> None:
        for seed in range(20):
            dials = moments(lost({E[0]: answer}, until=10 * PERIOD, seed=seed))
            assert 9 <= len(dials) <= 12
            assert all(gap == pytest.approx(PERIOD) for gap in gaps(dials)[1:])

    def test_the_moments_of_a_fleet_fill_the_period_evenly(self) -> None:
        found = [moments(lost({E[0]: Fails()}, until=2 * PERIOD, seed=seed))[1] for seed in range(1000)]
        for quarter in range(4):
            share = [
                (quarter - 0.01) / 4 * PERIOD <= time % PERIOD < (quarter + 1) / 4 * PERIOD for time in found
            ]
            assert sum(share) == pytest.approx(250, rel=0.2)

    @pytest.mark.parametrize("outage", [0.3, 3.0, 30.0])
    def test_the_client_is_back_within_a_period(self, outage: float) -> None:
        for seed in SEEDS:
            world: World = {
                E[0]: Fails(),
                E[1]: lambda now: Serves() if now >= outage else FORCED,
                E[2]: FORCED,
            }
            factory = lost(world, 3, seed=seed)
            assert outage <= factory.now <= outage + PERIOD + 0.5
            assert sum(when >= outage for when in moments(factory)) <= 2

    def test_a_suspect_is_dialled_sooner_and_ever_more_rarely(self) -> None:
        """The second of three members was passive and now refuses, so its backlog is full."""
        world: World = {E[0]: Fails(), E[1]: lambda now: FORCED if now < 25 else Fails(), E[2]: FORCED}
        factory = lost(world, 3, until=25 + PERIOD)
        there = [when for when, where in factory.dials() if where == E[1] and when >= 25]
        waits = gaps(there)
        assert waits[0] <= 1.15 + 0.3
        assert 4 <= len(there) <= 9

    def test_a_syn_is_closed_before_its_kernel_repeats_it(self) -> None:
        """Most SYNs are; a few are kept for slow networks."""
        kept = []
        for seed in SEEDS:
            backoff = Backoff(POLICY, random.Random(seed))
            polling = Polling(POLICY, backoff, DialTimes(), first=False, at=0.0)
            topology = update(Topology(seeds=(E[0],)), Claimed(E[0], None, None, 0, fleet=FLEET))
            polling.order(update(topology, PrimaryLost(E[0], 0)), (E[0],), 2)
            kept += [polling.keep(E[0], 2) for _ in range(5)]
        assert set(kept) == {0.85, 3.9}
        assert 20 <= kept.count(3.9) <= 120


class TestBounds:
    """A peer may announce any number."""

    @pytest.mark.parametrize(
        "fleet", [FleetSize(2**63, 200.0), FleetSize(2**63, 5e-324), FleetSize(20, 1e-300)]
    )
    def test_a_liar_makes_a_client_wait_for_max_spread_at_most(self, fleet: FleetSize) -> None:
        dials = moments(lost({E[0]: Fails()}, until=1500.0, fleet=fleet))
        assert max(gaps(dials)) == pytest.approx(120.0)

    def test_a_client_that_gives_up_has_dialled_before(self) -> None:
        policy = replace(POLICY, deadline=9.0)
        for seed in SEEDS:
            assert len(moments(lost({E[0]: Fails()}, seed=seed, policy=policy))) >= 3

    @pytest.mark.parametrize(
        ("policy", "fleet"),
        [
            (replace(POLICY, max_spread=0.0), FLEET),
            (POLICY, NO_FLEET),
            (POLICY, FleetSize(100, 200.0)),
            (POLICY, FleetSize(1, 1e-9)),
        ],
    )
    def test_without_a_large_fleet_nothing_changes(self, policy: Policy, fleet: FleetSize) -> None:
        for seed in range(20):
            known = lost({E[0]: Fails()}, until=30.0, seed=seed, policy=policy, fleet=fleet)
            assert known.dials() == lost({E[0]: Fails()}, until=30.0, seed=seed, fleet=NO_FLEET).dials()

    def test_a_strategy_that_was_chosen_is_taken_as_it_is(self) -> None:
        policy = replace(POLICY, backoff_strategy="full")
        with_it = lost({E[0]: Fails()}, until=30.0, policy=policy)
        assert with_it.dials() == lost({E[0]: Fails()}, until=30.0, policy=policy, fleet=NO_FLEET).dials()

    def test_the_first_connect_of_another_connection_is_not_spread(self) -> None:
        factory = Factory({E[0]: Fails()}, E[:1], policy=POLICY)
        factory.topology = replace(factory.topology, fleet=FLEET)
        factory.connect()
        factory.run(10.0)
        assert len(factory.dials()) > 5


class TestNews:
    """Facts that a client learns during the spread."""

    def test_a_primary_that_another_connection_found_is_dialled_at_once(self) -> None:
        factory = lost({E[0]: Fails(), E[1]: Serves()}, 1, until=5.0)
        factory.topology = update(factory.topology, Claimed(E[1], None, None, factory.topology.version))
        factory.run()
        assert factory.now <= 5.0 + 1.0

    @pytest.mark.parametrize("world", [{E[0]: reservation(2.0)}, {E[0]: Parks(Fails(), stays=2.0)}])
    def test_a_hint_ends_the_spread(self, world: World) -> None:
        """The member names the time of the next dial."""
        factory = lost(world, until=3 * PERIOD)
        assert len(factory.dials()) > 10

    def test_a_pair_that_announces_its_fleet_gives_no_hints(self) -> None:
        """A generation without a fleet would mean hints."""
        dials = moments(lost({E[0]: Fails()}, until=10 * PERIOD, generation=3))
        assert 9 <= len(dials) <= 12

    def test_a_pair_that_gives_hints_is_dialled_as_ever(self) -> None:
        dials = moments(lost({E[0]: Fails()}, until=30.0, fleet=NO_FLEET, generation=3))
        assert len(dials) > 30
