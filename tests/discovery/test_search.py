"""Rules 1 to 3 of discovery: rounds and their delays, deadlines and staggering, usable sessions."""

from __future__ import annotations

import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import (
    Abandon,
    BackOff,
    Dial,
    Found,
    StartRound,
    Wait,
)
from haclient.discovery.evidence import Claimed, FailureReason, PrimaryLost, Resolved
from haclient.discovery.pending_attempts import Claim
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy

from .virtual import (
    BlackHole,
    E,
    Factory,
    Fails,
    Serves,
    World,
    closes,
    dialled,
    first_round,
    ran,
    search,
    verdict,
)


class TestRule1TheListInTurn:
    """No delay within a round, and a jittered delay between rounds."""

    def test_the_first_attempt_is_made_at_once(self) -> None:
        """If that member is the primary, one attempt is enough."""
        factory = ran({E[0]: Serves()}, 1)
        assert factory.dials() == [(0.0, E[0])]
        assert factory.trace[-1].decision == Found(1)
        assert factory.trace[-1].time == pytest.approx(0.01)

    def test_a_refusal_leads_to_the_next_member_without_delay(self) -> None:
        """Three passive members cost three round trips."""
        factory = ran({E[0]: Fails(), E[1]: Fails(), E[2]: Fails(), E[3]: Serves()}, 4)
        assert [when for when, _ in factory.dials()] == pytest.approx([0, 0.001, 0.002, 0.003])

    def test_rounds_are_apart_by_a_growing_jittered_delay(self) -> None:
        policy = Policy(startup_deadline=20, backoff_strategy="full")
        factory = ran({E[0]: Fails(), E[1]: Fails()}, 2, policy)
        waits = factory.of_type(BackOff)
        assert [w.round for w in waits] == list(range(1, len(waits) + 1))
        assert [w.delay.base for w in waits[:4]] == pytest.approx([0.1, 0.2, 0.4, 0.8])
        starts = [s.time for s in factory.trace if isinstance(s.decision, StartRound)]
        assert starts[1:] == [w.until for w in waits][: len(starts) - 1]

    def test_a_virtual_address_is_a_list_of_one_and_is_retried(self) -> None:
        """The address moves to the new primary after three seconds."""
        factory = ran({E[0]: lambda now: Fails() if now < 3 else Serves()}, 1)
        assert isinstance(factory.trace[-1].decision, Found)
        assert 3 < factory.now < 10

    def test_after_a_loss_a_delay_comes_first(self) -> None:
        """Otherwise all clients of a dead primary would arrive at its successor in the same instant."""
        lost = search(first=False)
        topology = Topology(seeds=(E[0],))
        wait = lost.next(0.0, topology)
        assert isinstance(wait, BackOff)
        assert 0 < wait.until == wait.delay.delay <= 0.1
        assert lost.next(0.0, topology) == Wait(wait.until)
        assert lost.next(wait.until, topology) == StartRound(1)
        assert lost.next(wait.until, topology) == Dial(1, E[0])

    @pytest.mark.parametrize(("lost", "order"), [(0, [1, 2, 0]), (1, [2, 0, 1]), (2, [0, 1, 2])])
    def test_a_member_that_did_not_stay_usable_is_the_last_to_be_dialled(
        self, lost: int, order: list[int]
    ) -> None:
        """Dialled first, such a member would delay the attempts at all others."""
        topology = Topology(seeds=tuple(E[:3]))
        assert first_round(search(first=False, unstable=E[lost]), topology) == order

    def test_nor_does_it_matter_when_it_is_no_member_any_more(self) -> None:
        """The name of the unstable member has a new address now."""
        topology = Topology(seeds=tuple(E[:2]))
        assert first_round(search(first=False, unstable=E[5]), topology) == [0, 1]

    def test_the_largest_retry_after_of_a_round_decides_over_its_delay(self) -> None:
        """Only the server knows when it can accept this client."""
        factory = ran({E[0]: closes(retry_after=2.0), E[1]: closes(retry_after=3.0)}, 2, until=3.2)
        wait = factory.of_type(BackOff)[0]
        assert wait.delay.retry_after == 3.0
        assert 3.0 <= wait.delay.delay <= 3.1
        assert dialled(factory) == [0, 1, 0, 1]

    def test_an_open_and_drop_peer_makes_no_hot_loop(self) -> None:
        """At most ten connections in three seconds, at a falling rate, until one connection is stable."""
        rates = []
        for seed in range(300):
            factory = Factory({E[0]: Serves(after=0.0, drops_after=0.0)}, E[:1], seed=seed)
            factory.connect()
            factory.run(until=30)
            found = [s.time for s in factory.trace if isinstance(s.decision, Found)]
            assert sum(time <= 3 for time in found) <= 10
            rates.append([sum(3 * n <= time < 3 * n + 3 for time in found) for n in (0, 1, 9)])
        first, second, last = (sum(column) for column in zip(*rates, strict=True))
        assert first > 2 * second > 2 * last

    def test_a_stable_connection_starts_over_with_the_first_ceiling(self) -> None:
        """Each connection is usable for six seconds, so every loss is a new incident."""
        factory = ran({E[0]: Serves(drops_after=6.0)}, 1)
        assert {wait.delay.base for wait in factory.of_type(BackOff)} == {0.1}


class TestRule2OneDeadlineAndStaggering:
    """Hanging attempts do not delay the others."""

    def test_three_black_holes_cost_three_staggers(self) -> None:
        """The search dials the fourth member while the three attempts hang."""
        factory = ran({E[3]: Serves()}, 4)
        assert factory.trace[-1].decision == Found(4)
        assert factory.now == pytest.approx(3 * 0.25 + 0.01)

    def test_a_long_list_of_black_holes_is_walked_in_steps_of_stagger(self) -> None:
        """At most four attempts are pending: the oldest one frees its dial for the next."""
        factory = ran({E[20]: Serves()}, 21)
        assert [when for when, _ in factory.dials()] == pytest.approx([0.25 * n for n in range(21)])
        assert [a.attempt for a in factory.of_type(Abandon) if a.kind is FailureReason.DISPLACED] == list(
            range(1, 18)
        )
        assert factory.trace[-1].decision == Found(21)

    def test_an_attempt_with_tcp_does_not_make_room(self) -> None:
        """A member that is slow to authenticate keeps its dial; the search abandons one without TCP."""
        policy = Policy(max_dials=2)
        factory = ran({E[0]: BlackHole(tcp=0.01), E[3]: Serves()}, 4, policy)
        displaced = [a.attempt for a in factory.of_type(Abandon) if a.kind is FailureReason.DISPLACED]
        assert displaced == [2, 3]

    def test_when_nobody_can_make_room_the_search_waits_for_a_deadline(self) -> None:
        """Members that accept TCP and stay silent hold all dials."""
        policy = Policy(max_dials=2, attempt_timeout=5)
        factory = ran({E[0]: BlackHole(tcp=0.01), E[1]: BlackHole(tcp=0.01), E[2]: Serves()}, 3, policy)
        assert [when for when, _ in factory.dials()] == pytest.approx([0, 0.25, 5.0])

    @pytest.mark.parametrize(
        ("tcp", "phase"), [(None, "no TCP connection"), (0.5, "TCP connected after 0.5 s, then silence")]
    )
    def test_the_deadline_of_an_attempt_says_which_phase_hung(self, tcp: float | None, phase: str) -> None:
        """A firewall and a hanging broker are different problems."""
        factory = ran({E[0]: BlackHole(tcp)}, 1, Policy(attempt_timeout=4), until=4.0)
        (order,) = factory.of_type(Abandon)
        assert (order.kind, factory.now) == (FailureReason.TIMED_OUT, 4.0)
        assert phase in order.detail

    def test_a_failure_lets_the_next_be_dialled_at_once(self) -> None:
        """The stagger is for silent members only."""
        factory = ran({E[1]: Fails(after=0.01), E[2]: Serves()}, 3)
        assert [when for when, _ in factory.dials()] == pytest.approx([0, 0.25, 0.26])

    def test_the_first_usable_wins_and_the_others_are_closed(self) -> None:
        """Two members answer late, the second one first."""
        factory = ran({E[0]: Serves(after=0.6), E[1]: Serves(after=0.2)}, 2)
        assert factory.of_type(Found) == [Found(2)]
        assert [(a.attempt, a.kind) for a in factory.of_type(Abandon)] == [(1, FailureReason.LOST_RACE)]

    def test_a_hanging_attempt_does_not_hold_up_the_next_round(self) -> None:
        """The search dials the other member again, and the hanging attempt stays pending."""
        factory = ran({E[0]: BlackHole(tcp=0.01), E[1]: lambda now: Fails() if now < 2 else Serves()}, 2)
        assert factory.now < 10
        assert dialled(factory).count(0) == 1
        assert dialled(factory).count(1) > 2

    def test_when_all_members_hang_their_deadlines_are_waited_for(self) -> None:
        factory = ran({}, 2, until=7.0)
        assert dialled(factory) == [0, 1]
        assert factory.of_type(BackOff) == []

    def test_addresses_that_are_found_during_a_round_are_dialled_in_it(self) -> None:
        """The resolver takes half a second; meanwhile the search tries the literal seed."""
        name = Endpoint("broker.example.com", 5672)
        factory = Factory({E[0]: Fails(), E[1]: Serves()}, [name, E[0]], names={name: (0.5, (E[1],))})
        factory.connect()
        factory.run()
        assert [(when, where) for when, where in factory.dials()] == [(0.0, E[0]), (0.5, E[1])]
        assert len(factory.of_type(StartRound)) == 1

    def test_a_moved_name_is_followed_in_the_same_round(self) -> None:
        """The search dials all old addresses before the new answer arrives, and the new ones afterwards."""
        name = Endpoint("broker.example.com", 5672)
        names = {name: (0.1, (E[2], E[3]))}
        world: World = {E[0]: Fails(), E[1]: Fails(), E[2]: Fails(), E[3]: Serves()}
        factory = Factory(world, [name], names=names)
        factory.topology = update(factory.topology, Resolved(name, (E[0], E[1])))
        factory.connect()
        factory.run()
        assert dialled(factory) == [0, 1, 2, 3]
        assert len(factory.of_type(StartRound)) == 1

    def test_without_any_address_the_round_has_failed(self) -> None:
        """DNS is down at first."""
        name = Endpoint("broker.example.com", 5672)
        factory = Factory({}, [name], policy=Policy(startup_deadline=5), names={name: (0.1, ())})
        factory.connect()
        factory.run()
        assert len(factory.of_type(BackOff)) > 2
        assert "no address is known" in verdict(factory).detail

    def test_a_search_without_room_waits_for_it(self) -> None:
        """Other searches hold all dials of the factory."""
        crowded = search()
        topology = Topology(seeds=(E[0],))
        assert crowded.next(0.0, topology, free_dials=0) == StartRound(1)
        assert crowded.next(0.0, topology, free_dials=0) == Wait(60.0)
        assert crowded.next(1.0, topology, free_dials=1) == Dial(1, E[0])

    def test_at_the_cap_of_the_factory_an_own_attempt_makes_room_once_a_stagger(self) -> None:
        """If another search takes the freed dial, this one must not free all its dials at once."""
        crowded = search()
        topology = Topology(seeds=tuple(E[:5]))
        crowded.next(0.0, topology)
        for number in range(3):
            assert crowded.next(0.25 * number, topology, free_dials=1) == Dial(number + 1, E[number])
        gone = crowded.next(0.75, topology, free_dials=0)
        assert isinstance(gone, Abandon)
        assert (gone.attempt, gone.kind) == (1, FailureReason.DISPLACED)
        assert crowded.next(0.75, topology, free_dials=0) == Wait(1.0)
        assert crowded.next(1.0, topology, free_dials=1) == Dial(4, E[3])


class TestRule3Usable:
    """A stale primary is not usable."""

    def test_an_old_generation_is_a_failure_and_the_new_primary_is_found(self) -> None:
        """The former primary was suspended, and still claims to be the primary."""
        world: World = {E[0]: Serves(generation=4, cluster="x"), E[1]: Serves(generation=5, cluster="x")}
        factory = Factory(world, E[:2])
        factory.topology = update(factory.topology, Claimed(E[9], 5, "x", 0))
        factory.topology = update(factory.topology, PrimaryLost(E[9], 0))
        factory.connect()
        factory.run()
        assert [a.kind for a in factory.of_type(Abandon)] == [FailureReason.STALE_PRIMARY]
        assert factory.topology.primary == E[1]

    def test_of_two_claims_in_one_instant_the_higher_generation_wins(self) -> None:
        """This holds even if the topology has seen neither claim."""
        race = search(Policy(stagger=0.1))
        topology = Topology(seeds=(E[0], E[1]))
        race.next(0.0, topology)
        race.next(0.0, topology)
        race.next(0.1, topology)
        race.usable(1, 0.2, Claim(4, "x"))
        race.usable(2, 0.2, Claim(5, "x"))
        stale = race.next(0.2, topology)
        assert isinstance(stale, Abandon)
        assert (stale.attempt, stale.kind) == (1, FailureReason.STALE_PRIMARY)
        assert race.next(0.2, topology) == Found(2)

    def test_an_unproven_claim_in_the_same_instant_makes_no_proven_one_stale(self) -> None:
        race = search(Policy(stagger=0.1))
        topology = Topology(seeds=(E[0], E[1]))
        race.next(0.0, topology)
        race.next(0.0, topology)
        race.next(0.1, topology)
        race.usable(1, 0.2, Claim(4, "x", proven=True))
        race.usable(2, 0.2, Claim(5, "x"))
        lost = race.next(0.2, topology)
        assert isinstance(lost, Abandon)
        assert (lost.attempt, lost.kind) == (2, FailureReason.LOST_RACE)
        assert race.next(0.2, topology) == Found(1)
