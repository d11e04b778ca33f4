"""Rule 9 of discovery: a server names a member to connect to, and a time."""

from __future__ import annotations

import math

import pytest

from haclient.discovery.decision import BackOff, Decision, Dial, Found, Wait
from haclient.discovery.evidence import RESOURCE_LIMIT, AttemptEnded, Claimed, Failure, FailureReason
from haclient.discovery.search import Search
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy

from .virtual import (
    REFUSED,
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
    redirects,
    reservation,
    search,
)

FULL = Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT, retry_after=3.0)


def until_wait(
    looking: Search, now: float, topology: Topology, *, search_owner: bool = True
) -> list[Decision]:
    """Return all decisions of one instant, up to the wait or the session found."""
    decisions: list[Decision] = []
    while not decisions or not isinstance(decisions[-1], Wait | Found):
        decisions.append(looking.next(now, topology, search_owner=search_owner))
    return decisions


class TestSlots:
    """``amqp:resource-limit-exceeded`` with a ``retry_after``: a full primary makes a reservation."""

    def test_the_reservation_is_waited_for_at_once_and_kept_first(self) -> None:
        """The search does not dial the remaining members."""
        world: World = {
            E[0]: lambda now: reservation(3.0) if now < 1 else Serves(),
            E[1]: Fails(),
            E[2]: Fails(),
        }
        factory = ran(world, 3)
        assert dialled(factory) == [0, 0]
        (wait,) = factory.of_type(BackOff)
        assert wait.delay.retry_after == 3.0
        assert 3.0 <= wait.delay.delay <= 3.1
        assert factory.of_type(Found)

    def test_the_member_of_the_reservation_goes_ahead_of_the_list(self) -> None:
        world: World = {
            E[0]: Fails(),
            E[1]: Fails(),
            E[2]: lambda now: reservation(1.0) if now < 1 else Serves(),
        }
        assert dialled(ran(world, 3)) == [0, 1, 2, 2]

    def test_the_rest_of_the_list_is_dialled_when_the_reservation_fails(self) -> None:
        """The primary died while its clients waited; the search does not dial it again in that round."""
        world: World = {
            E[1]: lambda now: reservation(1.0) if now < 1 else Fails(),
            E[0]: Fails(),
            E[2]: Fails(),
        }
        factory = ran(world, 3, until=1.2)
        assert dialled(factory)[:5] == [0, 1, 1, 0, 2]

    def test_a_new_reservation_of_the_same_primary_is_waited_for(self) -> None:
        """The primary postpones the reservation, and the search dials no other member meanwhile."""
        world: World = {E[0]: lambda now: reservation(2.0) if now < 5 else Serves(), E[1]: Fails()}
        assert dialled(ran(world, 2)) == [0, 0, 0, 0]

    def test_the_attempt_is_alone_while_it_has_tcp(self) -> None:
        """A primary with many clients to accept answers late, and no other member can help."""
        world: World = {E[0]: lambda now: reservation(1.0) if now < 1 else BlackHole(tcp=0.01), E[1]: Fails()}
        factory = ran(world, 2, until=6.0)
        assert dialled(factory) == [0, 0]

    def test_a_dead_primary_does_not_hold_up_the_list_for_longer_than_a_stagger(self) -> None:
        """A primary without TCP is not busy but dead."""
        world: World = {E[0]: lambda now: reservation(1.0) if now < 1 else BlackHole(), E[1]: Serves()}
        factory = ran(world, 2)
        assert dialled(factory) == [0, 0, 1]
        (_, kept), (_, other) = factory.dials()[1:]
        assert (kept, other) == (E[0], E[1])
        assert factory.dials()[2][0] - factory.dials()[1][0] == pytest.approx(0.25)

    def test_a_reservation_does_not_clear_the_primary(self) -> None:
        """The primary stays known to the other connections of the factory."""
        known = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        after = update(known, AttemptEnded(E[0], FULL, 0))
        assert (after.primary, after.version) == (E[0], 0)
        assert dict(after.failures)[E[0]] == FULL
        without = Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT)
        assert update(known, AttemptEnded(E[0], without, 0)).primary is None

    @pytest.mark.parametrize("retry_after", [-1.0, math.nan])
    def test_what_is_no_retry_after_names_no_reservation(self, retry_after: float) -> None:
        """Otherwise such a primary would stay known, and no search would look for another one."""
        known = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        looking = search()
        until_wait(looking, 0.0, known)
        announced = Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT, retry_after=retry_after)
        assert not announced.is_reservation
        seen = looking.attempt_ended(1, 0.1, announced)
        cleared = update(known, AttemptEnded(E[0], seen, 0))
        assert cleared.primary is None
        assert isinstance(until_wait(looking, 0.1, cleared)[0], Dial)

    def test_a_follower_keeps_its_own_reservation(self) -> None:
        """Every connection of a factory has its own reservation, and dials once for it."""
        known = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        follower = search()
        assert follower.next(0.0, known, search_owner=False) == Dial(1, E[0])
        follower.attempt_ended(1, 0.1, FULL)
        wait, then = until_wait(follower, 0.1, known, search_owner=False)
        assert isinstance(wait, BackOff)
        assert then == Wait(wait.until)
        assert follower.next(wait.until, known, search_owner=False) == Dial(2, E[0])

    def test_a_primary_elsewhere_ends_the_wait(self) -> None:
        """Another connection has found it, so the member with the reservation is no longer the primary."""
        waiting = search()
        topology = Topology(seeds=(E[0], E[1]))
        until_wait(waiting, 0.0, topology)
        waiting.attempt_ended(1, 0.1, FULL)
        until_wait(waiting, 0.1, topology)
        same = update(topology, Claimed(E[0], 1, "x", 0))
        assert isinstance(until_wait(waiting, 0.2, same)[0], Wait)
        moved = update(topology, Claimed(E[1], 2, "x", 0))
        assert until_wait(waiting, 0.3, moved)[0] == Dial(2, E[1])

    def test_ten_connections_come_once_for_their_slots(self) -> None:
        """Before the reserved time, the primary gets only the one dial that it refused."""
        given: dict[str, int] = {}

        def full(now: float) -> Fails | Serves:
            return reservation(2.0) if now < 2 else Serves()

        factory = Factory({E[0]: full}, E[:1], policy=Policy(max_dials=4))
        for number in range(10):
            factory.connect(str(number))
        factory.run(until=30.0)
        assert len(factory.of_type(Found)) == 10
        for when, _ in factory.dials():
            given[str(when < 2)] = given.get(str(when < 2), 0) + 1
        # The search owner gets a reservation; the others dial when it is connected.
        assert given == {"True": 1, "False": 10}


class TestRedirectsWithAHint:
    """``amqp:connection:redirect`` with a ``retry_after``: the search dials the target after that time."""

    def test_the_target_is_dialled_after_the_retry_after_and_alone(self) -> None:
        """The search does not dial it at once, nor after the rest of the list."""
        announced = Fails(Failure(kind=FailureReason.REDIRECTED, redirect=E[2], retry_after=2.0))
        factory = ran({E[0]: announced, E[1]: Fails(), E[2]: Serves()}, 3)
        assert dialled(factory) == [0, 2]
        when, _ = factory.dials()[1]
        assert 2.0 <= when <= 2.2
        assert factory.of_type(Dial)[1].hops == 1

    def test_a_target_that_may_not_be_followed_leaves_an_ordinary_retry_after(self) -> None:
        """The delay then precedes the next round, as with a ``retry_after`` without an address."""
        announced = Fails(Failure(kind=FailureReason.REDIRECTED, redirect=E[2], retry_after=2.0))
        factory = ran({E[0]: announced, E[1]: Fails()}, 2, Policy(redirects="none"), until=1.0)
        assert dialled(factory) == [0, 1]
        assert factory.of_type(BackOff)[0].delay.retry_after == 2.0

    def test_the_chain_is_remembered(self) -> None:
        """Two members that redirect to each other are a loop, with or without ``retry_after``."""
        there = Fails(Failure(kind=FailureReason.REDIRECTED, redirect=E[1], retry_after=0.5))
        back = Fails(Failure(kind=FailureReason.REDIRECTED, redirect=E[0], retry_after=0.5))
        factory = Factory({E[0]: there, E[1]: back, E[2]: Serves()}, E[:3])
        connection = factory.connect()
        looking = connection.search
        factory.run(until=3.0)
        assert looking is not None
        assert FailureReason.REDIRECT_REFUSED in {record.failure.kind for record in looking.history}
        assert factory.of_type(Found)


class TestBadServers:
    """No server delays a client beyond the ceiling."""

    @pytest.mark.parametrize("retry_after", [3600.0, math.inf, 59.0, 0.0, 0.001])
    def test_the_search_goes_back_to_its_own_backoff(self, retry_after: float) -> None:
        """One member always asks for a delay; the other serves after the ceiling has passed."""
        policy = Policy(max_retry_after=10.0, startup_deadline=None)
        world: World = {E[0]: reservation(retry_after), E[1]: lambda now: Serves() if now > 11 else Fails()}
        factory = ran(world, 2, policy, until=60.0)
        assert factory.of_type(Found)
        assert factory.now < 32  # The ceiling, then rounds at most 10 s apart.
        honored = [each.delay for each in factory.of_type(BackOff) if each.delay.retry_after is not None]
        assert sum(each.delay for each in honored) <= 10

    def test_a_primary_that_sends_retry_after_for_ever_is_not_the_primary_for_ever(self) -> None:
        """When the search no longer honors ``retry_after``, a refusal clears the primary."""
        policy = Policy(max_retry_after=1.0, startup_deadline=None)
        factory = Factory({E[0]: reservation(3600.0), E[1]: Serves()}, E[:2], policy=policy)
        factory.topology = update(factory.topology, Claimed(E[0], None, None, 0))
        factory.connect("a")
        factory.run(until=30.0)
        assert factory.topology.primary == E[1]
        assert len(factory.of_type(Found)) == 1

    def test_a_forced_close_with_a_retry_after_names_no_member(self) -> None:
        """The rest of the round goes on, and the next round waits."""
        factory = ran({E[0]: closes("amqp:connection:forced", 2.0), E[1]: Fails()}, 2, until=2.3)
        assert dialled(factory)[:4] == [0, 1, 0, 1]
        assert factory.of_type(BackOff)[0].delay.retry_after == 2.0

    def test_a_redirect_without_a_retry_after_is_followed_at_once(self) -> None:
        assert ran({E[0]: redirects(E[1]), E[1]: Serves()}, 1).dials()[1] == (0.001, E[1])

    def test_a_reservation_at_a_member_that_is_refused_meanwhile_is_dropped(self) -> None:
        """The pending attempts continue during the wait, and one of them fails."""
        looking = search()
        topology = Topology(seeds=(E[0], E[1]))
        until_wait(looking, 0.0, topology)
        until_wait(looking, 0.25, topology)
        looking.attempt_ended(2, 0.3, FULL)
        until_wait(looking, 0.3, topology)
        looking.attempt_ended(1, 0.4, REFUSED)
        assert isinstance(until_wait(looking, 0.4, topology)[-1], Wait)


class TestFarewells:
    """The Close that ended a connection asks for a delay."""

    @pytest.mark.parametrize(
        ("said", "order"),
        [
            pytest.param(FULL, [1, 0, 2], id="its reservation: that member first"),
            pytest.param(closes(retry_after=3.0).failure, [0, 1, 2], id="only retry_after: the list"),
        ],
    )
    def test_nobody_is_dialled_before_the_time_has_come(self, said: Failure, order: list[int]) -> None:
        looking = search(Policy(standby="none"), first=False, peer_close=(E[1], said))
        topology = Topology(seeds=E[:3])
        pause, wait = until_wait(looking, 0.0, topology)
        assert isinstance(pause, BackOff)
        assert (pause.round, pause.delay.retry_after) == (0, 3.0)
        assert isinstance(wait, Wait)
        assert wait.until == pause.until
        assert 3.0 <= pause.until <= 3.1
        assert first_round(looking, topology, now=pause.until) == order

    @pytest.mark.parametrize(
        "said", [closes(retry_after=retry_after).failure for retry_after in (-1.0, math.nan, None)]
    )
    def test_what_is_no_retry_after_changes_nothing(self, said: Failure) -> None:
        looking = search(first=False, peer_close=(E[1], said))
        (pause, _) = until_wait(looking, 0.0, Topology(seeds=E[:3]))
        assert isinstance(pause, BackOff)
        assert pause.delay.retry_after is None

    def test_a_retry_after_beyond_what_may_be_honored_is_not_there(self) -> None:
        looking = search(Policy(max_retry_after=0.0), first=False, peer_close=(E[1], FULL))
        (pause, _) = until_wait(looking, 0.0, Topology(seeds=E[:3]))
        assert isinstance(pause, BackOff)
        assert pause.delay.retry_after is None


class TestFactsThatArriveTogether:
    """Two attempts end before the next decision, as when two sockets are readable at once."""

    def test_a_reservation_and_the_attempt_that_uses_up_what_may_be_honored(self) -> None:
        """The newer reservation is beyond the limit: the client's own delay replaces the wait."""
        looking = search(Policy(max_retry_after=8.0, startup_deadline=None), first=False)
        topology = Topology(seeds=E[:3])
        now = run_until(looking, topology, 0.0, 0.2)
        looking.attempt_ended(1, now, closes(RESOURCE_LIMIT, 0.1).failure)
        now = run_until(looking, topology, now, now + 0.8)
        assert [each.number for each in looking.history] == [1]
        assert looking.attempts == 4, "its reservation hangs, and so do the others"
        looking.attempt_ended(4, now, closes(RESOURCE_LIMIT, 4.0).failure)
        now = run_until(looking, topology, now, 4.4)
        assert looking.attempts == 4
        looking.attempt_ended(3, now, closes(RESOURCE_LIMIT, 1.0).failure)
        looking.attempt_ended(2, now, REFUSED)
        pause, wait = until_wait(looking, now, topology)
        assert isinstance(pause, BackOff)
        assert pause.delay.retry_after is None
        assert wait == Wait(pause.until)
        dials = [each for each in until_wait(looking, pause.until, topology) if isinstance(each, Dial)]
        assert dials[0].endpoint == E[1], "the member of the newer reservation"


def run_until(looking: Search, topology: Topology, now: float, until: float) -> float:
    """Carry out the decisions while no member answers, and return the time of the last step."""
    while True:
        wait = until_wait(looking, now, topology)[-1]
        assert isinstance(wait, Wait)
        assert wait.until is not None
        if wait.until > until:
            return until
        now = wait.until
