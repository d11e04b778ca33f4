"""Rule 12 of discovery: a member holds the connection until it serves."""

from __future__ import annotations

import math

from haclient.discovery.decision import Abandon, BackOff, Dial, Found, GiveUp, StartRound, Wait
from haclient.discovery.evidence import Claimed, Failure, FailureReason
from haclient.discovery.pending_attempts import Claim
from haclient.discovery.search import Search
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy

from .test_search_retry_after import until_wait
from .virtual import (
    REFUSED,
    E,
    Factory,
    Fails,
    Parks,
    Serves,
    World,
    dialled,
    ran,
    redirects,
    reservation,
    search,
)

AWAY = Parks(Fails(), stays=math.inf)


def parked(policy: Policy | None = None, members: int = 2) -> tuple[Topology, float, Search]:
    """Return a topology, a time, and a search that the last member parked in round 2 at that time."""
    looking = search(policy or Policy(startup_deadline=None))
    topology = Topology(seeds=tuple(E[:members]))
    until_wait(looking, 0.0, topology)
    for attempt in range(1, members + 1):
        looking.attempt_ended(attempt, 0.0, REFUSED)
        decisions = until_wait(looking, 0.0, topology)
    (wait,) = [each for each in decisions if isinstance(each, BackOff)]
    now = wait.until
    until_wait(looking, now, topology)
    for attempt in range(members + 1, 2 * members):
        looking.attempt_ended(attempt, now, REFUSED)
        until_wait(looking, now, topology)
    assert looking.may_park
    looking.parked(2 * members, now)
    return topology, now, looking


class TestAsking:
    """The client asks to be parked only in an outage."""

    def test_the_first_round_does_not_ask(self) -> None:
        """A passive member that knows the primary redirects to it, instead of holding the client."""
        world: World = {E[0]: Parks(redirects(E[1])), E[1]: Serves()}
        factory = ran(world, 1)
        assert dialled(factory) == [0, 1]
        assert not any(connection.parked for connection in factory.connections)

    def test_a_round_that_failed_is_an_outage(self) -> None:
        """The second round asks, and then the client needs no more attempts until the member serves."""
        world: World = {E[0]: Fails(), E[1]: Parks(Serves(), stays=30.0)}
        policy = Policy(park_timeout=60.0)
        factory = Factory(
            {**world, E[1]: lambda now: world[E[1]] if now > 0.002 else Fails()}, E[:2], policy=policy
        )
        factory.connect()
        factory.run()
        assert factory.of_type(Found)
        assert len(factory.dials()) == 4
        assert factory.connections[0].parked == {4}

    def test_a_primary_that_lives_is_found_behind_a_member_that_parks(self) -> None:
        """The failures of the first round may be over: a broken network, or a missing password."""
        world: World = {
            E[0]: lambda now: Parks(Serves(), stays=30.0) if now > 0.002 else Fails(),
            E[1]: lambda now: Serves() if now > 0.002 else Fails(),
        }
        factory = Factory(world, E[:2], policy=Policy(park_timeout=60.0))
        factory.connect()
        factory.run(5.0)
        assert factory.connections[0].parked == {3}
        (found,) = factory.of_type(Found)
        assert found.attempt == 4

    def test_with_standby_none_nobody_asks(self) -> None:
        looking = search(Policy(standby="none"))
        topology = Topology(seeds=(E[0],))
        until_wait(looking, 0.0, topology)
        looking.attempt_ended(1, 0.0, REFUSED)
        until_wait(looking, 30.0, topology)
        assert not looking.may_park

    def test_one_attempt_asks_at_a_time(self) -> None:
        """While an attempt is parked, the other attempts do not ask."""
        _, _, looking = parked()
        assert not looking.may_park

    def test_a_reservation_does_not_ask(self) -> None:
        """The primary keeps the reserved time for the client that it refused."""
        looking = search()
        topology = Topology(seeds=(E[0],))
        until_wait(looking, 0.0, topology)
        looking.attempt_ended(1, 0.0, reservation(1.0).failure)
        (wait, _) = until_wait(looking, 0.0, topology)
        assert isinstance(wait, BackOff)
        decisions = until_wait(looking, wait.until, topology)
        assert Dial(2, E[0]) in decisions
        assert not looking.may_park


class TestResting:
    """While an attempt is parked, the search polls no member."""

    def test_the_search_rests_and_holds_no_dial(self) -> None:
        """The rest lasts for ``park_timeout``."""
        rest = Policy().park_timeout
        topology, now, looking = parked()
        assert looking.dials == 0
        assert until_wait(looking, now, topology) == [Wait(now + rest)]
        assert until_wait(looking, now + rest - 0.1, topology) == [Wait(now + rest)]

    def test_a_parked_attempt_has_no_deadline_of_its_own(self) -> None:
        """The attempt may last longer than ``attempt_timeout`` and ``park_timeout``."""
        factory = ran({E[0]: Fails(), E[1]: AWAY}, 2, Policy(startup_deadline=500), until=400.0)
        kinds = {each.kind for each in factory.of_type(Abandon)}
        assert FailureReason.TIMED_OUT not in kinds
        assert factory.connections[0].parked
        assert not factory.of_type(GiveUp)

    def test_after_the_park_timeout_rounds_go_on_beside_it(self) -> None:
        """A primary found in them wins over the parked attempt, which is closed."""
        policy = Policy(startup_deadline=None, park_timeout=5.0)
        topology, now, looking = parked(policy)
        (wait, _) = until_wait(looking, now + 5.0, topology)
        assert isinstance(wait, BackOff)
        assert until_wait(looking, wait.until, topology)[:2] == [StartRound(3), Dial(5, E[0])]
        assert not looking.may_park
        looking.usable(5, wait.until)
        assert [each.attempt for each in until_wait(looking, wait.until, topology)] == [4, 5]

    def test_a_virtual_address_is_dialled_again_beside_the_parked_attempt(self) -> None:
        """The address may have moved to another member."""
        policy = Policy(startup_deadline=None, park_timeout=5.0)
        topology, now, looking = parked(policy, members=1)
        assert until_wait(looking, now + 1, topology) == [Wait(now + 5.0)]
        (wait, _) = until_wait(looking, now + 5.0, topology)
        assert Dial(3, E[0]) in until_wait(looking, wait.until, topology)

    def test_a_primary_that_another_connection_found_is_dialled(self) -> None:
        """When that attempt is usable, the parked one is closed."""
        topology, now, looking = parked()
        topology = update(topology, Claimed(E[0], 1, "x", 0))
        assert until_wait(looking, now + 1, topology)[0] == Dial(5, E[0])
        looking.usable(5, now + 1, Claim(1, "x"))
        order, found = until_wait(looking, now + 1, topology)
        assert isinstance(order, Abandon)
        assert (order.attempt, order.kind) == (4, FailureReason.LOST_RACE)
        assert found == Found(5)

    def test_a_parked_attempt_that_is_redirected_leads_to_the_primary(self) -> None:
        """The search dials the target at once: the member held the client for this moment."""
        topology, now, looking = parked()
        looking.attempt_ended(4, now + 7, Failure(kind=FailureReason.REDIRECTED, redirect=E[2]))
        assert until_wait(looking, now + 7, topology)[0] == Dial(5, E[2], hops=1)

    def test_a_parked_attempt_that_is_redirected_with_a_retry_after_waits_for_it(self) -> None:
        """The redirecting member spreads its clients over time."""
        topology, now, looking = parked()
        looking.attempt_ended(
            4, now + 7, Failure(kind=FailureReason.REDIRECTED, redirect=E[2], retry_after=2.0)
        )
        (wait, _) = until_wait(looking, now + 7, topology)
        assert isinstance(wait, BackOff)
        assert now + 9 <= wait.until <= now + 9.1
        assert Dial(5, E[2], hops=1) in until_wait(looking, wait.until, topology)

    def test_when_the_parked_attempt_ends_rounds_go_on_after_a_delay(self) -> None:
        """The member that parked it has died as well."""
        topology, now, looking = parked()
        looking.attempt_ended(4, now + 7, Failure(kind=FailureReason.ENDED))
        assert isinstance(until_wait(looking, now + 7, topology)[0], BackOff)

    def test_the_deadline_ends_a_parked_attempt(self) -> None:
        """The error says that the member did not become the primary."""
        factory = ran({E[0]: Fails(), E[1]: AWAY}, 2, Policy(startup_deadline=9))
        (end,) = factory.of_type(GiveUp)
        assert "did not become primary" in end.attempts[-1].failure.detail

    def test_its_turn_comes(self) -> None:
        """The parked session becomes usable, and the generation of its claim is unknown."""
        topology, now, looking = parked()
        topology = update(topology, Claimed(E[5], 7, "x", 0))
        looking.usable(4, now + 3)
        assert Found(4) in until_wait(looking, now + 3, topology)

    def test_two_members_park_the_same_client_only_for_a_moment(self) -> None:
        """Both were dialled before the first one had answered."""
        looking = search(Policy(startup_deadline=None))
        topology = Topology(seeds=(E[0], E[1]))
        until_wait(looking, 0.0, topology)
        until_wait(looking, 0.25, topology)
        looking.parked(1, 0.3)
        looking.parked(2, 0.3)
        (order, *_) = until_wait(looking, 0.3, topology)
        assert isinstance(order, Abandon)
        assert (order.attempt, order.kind) == (2, FailureReason.LOST_RACE)
        assert looking.dials == 0


class TestAStandby:
    """An episode that begins with a parked attempt."""

    def test_its_turn_may_come_during_the_wait_after_the_loss(self) -> None:
        """The usable session ends the wait."""
        looking = search(first=False)
        topology = Topology(seeds=(E[0], E[1]))
        assert looking.resume(E[1], 0.0) == 1
        assert isinstance(until_wait(looking, 0.0, topology)[0], BackOff)
        looking.usable(1, 0.001)
        assert until_wait(looking, 0.001, topology) == [Found(1)]

    def test_the_list_is_walked_beside_it_once(self) -> None:
        """The primary may be alive, if only the connection to it broke."""
        looking = search(first=False)
        topology = Topology(seeds=(E[0], E[1]))
        looking.resume(E[1], 0.0)
        (wait, _) = until_wait(looking, 0.0, topology)
        assert isinstance(wait, BackOff)
        now = wait.until
        assert until_wait(looking, now, topology)[:2] == [StartRound(1), Dial(2, E[0])]
        assert looking.dials == 1
        looking.attempt_ended(2, now, REFUSED)
        assert until_wait(looking, now, topology) == [Wait(Policy().park_timeout)]

    def test_when_it_is_gone_the_search_goes_its_ordinary_way(self) -> None:
        """The search continues as if no attempt had been parked."""
        looking = search(first=False)
        topology = Topology(seeds=(E[0], E[1]))
        looking.resume(E[1], 0.0)
        (wait, _) = until_wait(looking, 0.0, topology)
        assert isinstance(wait, BackOff)
        looking.attempt_ended(1, wait.until, Failure(kind=FailureReason.ENDED))
        until_wait(looking, wait.until, topology)
        looking.attempt_ended(2, wait.until, REFUSED)
        assert Dial(3, E[1]) in until_wait(looking, wait.until, topology)
