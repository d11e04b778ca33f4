"""Rule 9 of discovery: a server says where to come, and when."""

from __future__ import annotations

import math

import pytest

from haclient.discovery.decision import BackOff, Decision, Dial, Found, Wait
from haclient.discovery.evidence import RESOURCE_LIMIT, Claimed, Failure, Missed, FailureReason
from haclient.discovery.search import Search
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy

from .virtual import (
    REFUSED,
    BlackHole,
    E,
    Factory,
    Misses,
    Serves,
    World,
    closes,
    dialled,
    first_round,
    ran,
    redirects,
    search,
    slot,
)

FULL = Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT, retry_after=3.0)


def until_wait(looking: Search, now: float, topology: Topology, *, lead: bool = True) -> list[Decision]:
    """Everything decided at one instant; the last is the wait."""
    decisions: list[Decision] = []
    while not decisions or not isinstance(decisions[-1], Wait | Found):
        decisions.append(looking.next(now, topology, lead=lead))
    return decisions


class TestSlots:
    """``amqp:resource-limit-exceeded`` with a hint: the primary, and this client's turn."""

    def test_the_slot_is_waited_for_at_once_and_kept_first(self) -> None:
        """The members that were not asked yet are not asked."""
        world: World = {E[0]: lambda now: slot(3.0) if now < 1 else Serves(), E[1]: Misses(), E[2]: Misses()}
        factory = ran(world, 3)
        assert dialled(factory) == [0, 0]
        (wait,) = factory.of_type(BackOff)
        assert wait.delay.hint == 3.0
        assert 3.0 <= wait.delay.delay <= 3.1
        assert factory.of_type(Found)

    def test_the_member_of_the_slot_goes_ahead_of_the_list(self) -> None:
        """It is the last one of the list."""
        world: World = {
            E[0]: Misses(),
            E[1]: Misses(),
            E[2]: lambda now: slot(1.0) if now < 1 else Serves(),
        }
        assert dialled(ran(world, 3)) == [0, 1, 2, 2]

    def test_the_rest_of_the_list_comes_when_the_slot_is_missed(self) -> None:
        """The primary died while its clients waited; it is not asked again in that round."""
        world: World = {E[1]: lambda now: slot(1.0) if now < 1 else Misses(), E[0]: Misses(), E[2]: Misses()}
        factory = ran(world, 3, until=1.2)
        assert dialled(factory)[:5] == [0, 1, 1, 0, 2]

    def test_a_new_slot_of_the_same_primary_is_waited_for(self) -> None:
        """It changes its mind; nobody else is asked meanwhile."""
        world: World = {E[0]: lambda now: slot(2.0) if now < 5 else Serves(), E[1]: Misses()}
        assert dialled(ran(world, 2)) == [0, 0, 0, 0]

    def test_the_attempt_is_alone_while_it_has_tcp(self) -> None:
        """A primary that is busy with a storm answers late; the others have nothing to say."""
        world: World = {E[0]: lambda now: slot(1.0) if now < 1 else BlackHole(tcp=0.01), E[1]: Misses()}
        factory = ran(world, 2, until=6.0)
        assert dialled(factory) == [0, 0]

    def test_a_dead_primary_does_not_hold_up_the_list_for_longer_than_a_stagger(self) -> None:
        """No TCP: it is not busy, it is gone."""
        world: World = {E[0]: lambda now: slot(1.0) if now < 1 else BlackHole(), E[1]: Serves()}
        factory = ran(world, 2)
        assert dialled(factory) == [0, 0, 1]
        (_, kept), (_, other) = factory.dials()[1:]
        assert (kept, other) == (E[0], E[1])
        assert factory.dials()[2][0] - factory.dials()[1][0] == pytest.approx(0.25)

    def test_a_slot_does_not_clear_the_primary(self) -> None:
        """The other connections of the factory know where it is."""
        known = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        after = update(known, Missed(E[0], FULL, 0))
        assert (after.primary, after.epoch) == (E[0], 0)
        assert after.last_miss(E[0]) == FULL
        without = Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT)
        assert update(known, Missed(E[0], without, 0)).primary is None

    @pytest.mark.parametrize("hint", [-1.0, math.nan])
    def test_what_is_no_hint_names_no_slot(self, hint: float) -> None:
        """Otherwise such a primary would stay known, and nobody would look for another one."""
        known = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        looking = search()
        until_wait(looking, 0.0, known)
        told = Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT, retry_after=hint)
        assert not told.is_slot
        heard = looking.missed(1, 0.1, told)
        cleared = update(known, Missed(E[0], heard, 0))
        assert cleared.primary is None
        assert isinstance(until_wait(looking, 0.1, cleared)[0], Dial)

    def test_a_follower_keeps_its_own_slot(self) -> None:
        """Every connection of a factory has one, and comes once for it."""
        known = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        follower = search()
        assert follower.next(0.0, known, lead=False) == Dial(1, E[0])
        follower.missed(1, 0.1, FULL)
        wait, then = until_wait(follower, 0.1, known, lead=False)
        assert isinstance(wait, BackOff)
        assert then == Wait(wait.until)
        assert follower.next(wait.until, known, lead=False) == Dial(2, E[0])

    def test_a_primary_elsewhere_ends_the_wait(self) -> None:
        """Another connection has found it: the one that gave the slot is not the primary any more."""
        waiting = search()
        topology = Topology(seeds=(E[0], E[1]))
        until_wait(waiting, 0.0, topology)
        waiting.missed(1, 0.1, FULL)
        until_wait(waiting, 0.1, topology)
        same = update(topology, Claimed(E[0], 1, "x", 0))
        assert isinstance(until_wait(waiting, 0.2, same)[0], Wait)
        moved = update(topology, Claimed(E[1], 2, "x", 0))
        assert until_wait(waiting, 0.3, moved)[0] == Dial(2, E[1])

    def test_ten_connections_come_once_for_their_slots(self) -> None:
        """Two attempts each, and the primary is never asked out of turn."""
        given: dict[str, int] = {}

        def full(now: float) -> Misses | Serves:
            return slot(2.0) if now < 2 else Serves()

        factory = Factory({E[0]: full}, E[:1], policy=Policy(max_dials=4))
        for number in range(10):
            factory.connect(str(number))
        factory.run(until=30.0)
        assert len(factory.of_type(Found)) == 10
        for when, _ in factory.dials():
            given[str(when < 2)] = given.get(str(when < 2), 0) + 1
        # One leads and gets a slot; when it is in, the others come.
        assert given == {"True": 1, "False": 10}


class TestRedirectsWithAHint:
    """``amqp:connection:redirect`` with a hint: dial the target after that long."""

    def test_the_target_is_dialled_after_the_hint_and_alone(self) -> None:
        """Neither at once nor after the rest of the list."""
        told = Misses(Failure(kind=FailureReason.REDIRECTED, redirect=E[2], retry_after=2.0))
        factory = ran({E[0]: told, E[1]: Misses(), E[2]: Serves()}, 3)
        assert dialled(factory) == [0, 2]
        when, _ = factory.dials()[1]
        assert 2.0 <= when <= 2.2
        assert factory.of_type(Dial)[1].redirected_by == E[0]

    def test_a_target_that_may_not_be_followed_leaves_an_ordinary_hint(self) -> None:
        """It delays the next round, as a hint without an address does."""
        told = Misses(Failure(kind=FailureReason.REDIRECTED, redirect=E[2], retry_after=2.0))
        factory = ran({E[0]: told, E[1]: Misses()}, 2, Policy(redirects="none"), until=1.0)
        assert dialled(factory) == [0, 1]
        assert factory.of_type(BackOff)[0].delay.hint == 2.0

    def test_the_chain_is_remembered(self) -> None:
        """Two members that send each other clients are a loop, with hints as without."""
        there = Misses(Failure(kind=FailureReason.REDIRECTED, redirect=E[1], retry_after=0.5))
        back = Misses(Failure(kind=FailureReason.REDIRECTED, redirect=E[0], retry_after=0.5))
        factory = Factory({E[0]: there, E[1]: back, E[2]: Serves()}, E[:3])
        connection = factory.connect()
        looking = connection.search
        factory.run(until=3.0)
        assert looking is not None
        assert FailureReason.REDIRECT_REFUSED in {record.miss.kind for record in looking.history}
        assert factory.of_type(Found)


class TestBadServers:
    """Nobody is parked beyond the ceiling."""

    @pytest.mark.parametrize("hint", [3600.0, math.inf, 59.0, 0.0, 0.001])
    def test_the_search_goes_back_to_its_own_backoff(self, hint: float) -> None:
        """One member always says "later"; the other one serves after the ceiling."""
        policy = Policy(max_hint=10.0, startup_deadline=None)
        world: World = {E[0]: slot(hint), E[1]: lambda now: Serves() if now > 11 else Misses()}
        factory = ran(world, 2, policy, until=60.0)
        assert factory.of_type(Found)
        assert factory.now < 32  # the ceiling, and then rounds at most 10 s apart
        hinted = [each.delay for each in factory.of_type(BackOff) if each.delay.hint is not None]
        assert sum(each.delay for each in hinted) <= 10

    def test_a_primary_that_hints_for_ever_is_not_the_primary_for_ever(self) -> None:
        """Once hints are not obeyed any more, its refusal clears it and the list is walked."""
        policy = Policy(max_hint=1.0, startup_deadline=None)
        factory = Factory({E[0]: slot(3600.0), E[1]: Serves()}, E[:2], policy=policy)
        factory.topology = update(factory.topology, Claimed(E[0], None, None, 0))
        factory.connect("a")
        factory.run(until=30.0)
        assert factory.topology.primary == E[1]
        assert len(factory.of_type(Found)) == 1

    def test_a_forced_close_with_a_hint_names_no_member(self) -> None:
        """Here or elsewhere: the rest of the round goes on, the next one waits."""
        factory = ran({E[0]: closes("amqp:connection:forced", 2.0), E[1]: Misses()}, 2, until=2.3)
        assert dialled(factory)[:4] == [0, 1, 0, 1]
        assert factory.of_type(BackOff)[0].delay.hint == 2.0

    def test_a_redirect_without_a_hint_is_followed_at_once(self) -> None:
        """As ever."""
        assert ran({E[0]: redirects(E[1]), E[1]: Serves()}, 1).dials()[1] == (0.001, E[1])

    def test_a_slot_at_a_member_that_is_refused_meanwhile_is_dropped(self) -> None:
        """The attempts that were in flight go on during the wait; this one found the password wrong."""
        looking = search()
        topology = Topology(seeds=(E[0], E[1]))
        until_wait(looking, 0.0, topology)
        until_wait(looking, 0.25, topology)
        looking.missed(2, 0.3, FULL)
        until_wait(looking, 0.3, topology)
        looking.missed(1, 0.4, REFUSED)
        assert isinstance(until_wait(looking, 0.4, topology)[-1], Wait)


class TestFarewells:
    """The Close that ended a connection asks for a delay."""

    @pytest.mark.parametrize(
        ("said", "order"),
        [
            pytest.param(FULL, [1, 0, 2], id="its slot: there first"),
            pytest.param(closes(retry_after=3.0).miss, [0, 1, 2], id="come later: the list"),
        ],
    )
    def test_nobody_is_dialled_before_the_time_has_come(self, said: Failure, order: list[int]) -> None:
        looking = search(Policy(standby="none"), first=False, farewell=(E[1], said))
        topology = Topology(seeds=E[:3])
        pause, wait = until_wait(looking, 0.0, topology)
        assert isinstance(pause, BackOff)
        assert (pause.round, pause.delay.hint) == (0, 3.0)
        assert isinstance(wait, Wait)
        assert wait.until == pause.until
        assert 3.0 <= pause.until <= 3.1
        assert first_round(looking, topology, now=pause.until) == order

    @pytest.mark.parametrize("said", [closes(retry_after=hint).miss for hint in (-1.0, math.nan, None)])
    def test_what_is_no_hint_changes_nothing(self, said: Failure) -> None:
        looking = search(first=False, farewell=(E[1], said))
        (pause, _) = until_wait(looking, 0.0, Topology(seeds=E[:3]))
        assert isinstance(pause, BackOff)
        assert pause.delay.hint is None

    def test_a_hint_beyond_what_may_be_obeyed_is_not_there(self) -> None:
        looking = search(Policy(max_hint=0.0), first=False, farewell=(E[1], FULL))
        (pause, _) = until_wait(looking, 0.0, Topology(seeds=E[:3]))
        assert isinstance(pause, BackOff)
        assert pause.delay.hint is None
