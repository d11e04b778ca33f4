"""Rules 7 and 8 of discovery: the end of a search, and searches that share a factory."""

from __future__ import annotations

import math

import pytest

from haclient.discovery.decision import (
    BackOff,
    Dial,
    Found,
    GiveUp,
    GiveUpReason,
    StartRound,
    Wait,
)
from haclient.discovery.evidence import Claimed, Failure, FailureReason, PrimaryLost
from haclient.discovery.polling.dial_times import DialTimes
from haclient.discovery.topology import Topology, update
from haclient.retry.policy import Policy

from .virtual import (
    REFUSED,
    WRONG_PASSWORD,
    E,
    Factory,
    Fails,
    Serves,
    World,
    closes,
    dialled,
    ran,
    redirects,
    search,
    verdict,
)


class TestRule7GivingUp:
    """Deadlines, and the limit on attempts."""

    @pytest.mark.parametrize("world", [{}, {E[0]: Fails(), E[1]: Fails()}], ids=["hanging", "refusing"])
    def test_the_startup_deadline_ends_the_first_connect(self, world: World) -> None:
        """At exactly that time, with every attempt in the error and none pending."""
        factory = ran(world, 2, Policy(startup_deadline=7, attempt_timeout=3))
        end = verdict(factory)
        assert (end.reason, factory.now) == (GiveUpReason.DEADLINE, 7.0)
        assert [record.number for record in sorted(end.attempts, key=lambda r: r.number)] == list(
            range(1, len(factory.dials()) + 1)
        )

    def test_without_a_deadline_a_later_search_goes_on(self) -> None:
        factory = Factory({E[0]: Fails()}, E[:1])
        factory.connect(first=False)
        factory.run(until=300)
        assert not factory.of_type(GiveUp)
        assert len(factory.dials()) > 30

    def test_a_wait_never_outlasts_the_deadline(self) -> None:
        """Not even a ``retry_after`` extends it."""
        factory = ran({E[0]: closes(retry_after=50.0)}, 1, Policy(startup_deadline=7))
        assert (verdict(factory).reason, factory.now) == (GiveUpReason.DEADLINE, 7.0)

    def test_the_number_of_attempts_is_an_end(self) -> None:
        """Redirects count, and the search waits for its last attempt."""
        factory = ran({E[0]: redirects(E[1]), E[1]: Fails(after=0.5)}, 3, Policy(max_attempts=3))
        assert len(factory.dials()) == 3
        assert verdict(factory).reason is GiveUpReason.MAX_ATTEMPTS

    def test_a_search_without_a_dial_says_that(self) -> None:
        """The error also names the cause: another search was the owner, or other searches held all dials."""
        topology, deadline = Topology(seeds=(E[0],)), Policy().startup_deadline
        assert deadline is not None
        waiting, following, dialling = search(), search(), search()
        waiting.next(0.0, topology, free_dials=0)
        assert waiting.next(0.0, topology, free_dials=0) == Wait(deadline)
        following.next(0.0, topology, search_owner=False)
        dialling.next(0.0, topology)
        assert dialling.next(0.0, topology) == Dial(1, E[0])
        details = []
        for each in (waiting, following, dialling):
            end = each.next(deadline, topology)
            while not isinstance(end, GiveUp):
                end = each.next(deadline, topology)
            details.append(end.detail.removeprefix("no usable session: "))
        given_none = "0 attempts in 60 s; it was given none of the 4 dials of its factory (max_dials)"
        another = f"{given_none}: another connection searched for all of them"
        assert details == [given_none, another, "1 attempts in 60 s"]

    def test_a_search_that_waits_for_a_dial_again_says_that(self) -> None:
        topology = Topology(seeds=(E[0], E[1]))
        crowded = search()
        crowded.next(0.0, topology)
        assert crowded.next(0.0, topology) == Dial(1, E[0])
        crowded.attempt_ended(1, 0.1, REFUSED)
        wait = crowded.next(0.1, topology, free_dials=0)
        assert isinstance(wait, Wait)
        assert wait.for_dial
        end = crowded.next(60.0, topology, free_dials=0)
        assert isinstance(end, GiveUp)
        assert "1 attempts in 60 s; it waits for one of the 4 dials of its factory (max_dials)" in end.detail

    def test_an_empty_seed_list_is_an_end(self) -> None:
        """No event could ever add a candidate."""
        assert verdict(ran({}, 0)).reason is GiveUpReason.NO_ENDPOINTS

    def test_the_end_stays_the_end(self) -> None:
        """The search ignores later facts."""
        done = search()
        topology = Topology(seeds=(E[0], E[1]))
        done.next(0.0, topology)
        done.next(0.0, topology)
        done.usable(1, 0.1)
        assert done.next(0.1, topology) == Found(1)
        done.attempt_ended(1, 0.2, REFUSED)
        done.usable(2, 0.2)
        assert done.next(99.0, topology) == Found(1)
        assert done.history == ()

    def test_facts_about_ended_and_unknown_attempts_are_ignored(self) -> None:
        """Cancelling an attempt takes a moment, so the driver may report it once more."""
        late = search()
        topology = Topology(seeds=(E[0], E[1]))
        late.next(0.0, topology)
        late.next(0.0, topology)
        late.attempt_ended(1, 0.1, REFUSED)
        late.attempt_ended(1, 0.1, WRONG_PASSWORD)
        late.usable(1, 0.1)
        late.tcp_connected(7, 0.1)
        late.usable(7, 0.1)
        assert late.next(0.1, topology) == Dial(2, E[1])
        assert [record.failure for record in late.history] == [REFUSED]

    def test_the_history_is_bounded_and_the_count_is_not(self) -> None:
        """An outage may last for days."""
        policy = Policy(startup_deadline=None, backoff_max=1.0, backoff_strategy="full")
        factory = Factory({E[0]: Fails()}, E[:1], policy=policy)
        looking = factory.connect().search
        factory.run(until=1000)
        assert looking is not None
        assert len(looking.history) == 1000
        assert looking.attempts == looking.history[-1].number > 1500


class TestRule8OneSearchOwner:
    """The connections of a factory share their knowledge."""

    def test_followers_wait_for_the_leader_and_go_to_the_primary(self) -> None:
        """With ten connections, the factory dials every passive member once."""
        world: World = {E[0]: Fails(), E[1]: Fails(), E[2]: Serves()}
        factory = Factory(world, E[:3])
        for number in range(10):
            factory.connect(str(number))
        factory.run()
        assert len(factory.of_type(Found)) == 10
        assert sorted(dialled(factory)) == [0, 1] + [2] * 10

    def test_the_factory_never_dials_more_than_the_cap_at_once(self) -> None:
        """Ten followers dial a slow primary, four at a time; the driver checks the cap at every dial."""
        factory = Factory({E[0]: Serves(after=0.2)}, E[:1], policy=Policy(max_dials=4))
        for number in range(10):
            factory.connect(str(number))
        factory.run()
        assert len(factory.of_type(Found)) == 10
        assert factory.now == pytest.approx(4 * 0.2)

    def test_a_follower_waits_out_its_own_delay_after_a_loss(self) -> None:
        """The primary is known already, but all other clients connect to it as well."""
        follower = search(first=False)
        topology = update(Topology(seeds=(E[0],)), Claimed(E[0], 1, "x", 0))
        wait = follower.next(0.0, topology, search_owner=False)
        assert isinstance(wait, BackOff)
        assert follower.next(0.0, topology, search_owner=False) == Wait(wait.until)
        assert follower.next(wait.until, topology, search_owner=False) == Dial(1, E[0])

    def test_a_follower_does_not_ask_the_same_primary_twice_without_news(self) -> None:
        """The follower waits for a new version or for the ownership; dials are 0.4 s apart anyway."""
        follower = search()
        topology = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        assert follower.next(0.0, topology, search_owner=False) == Dial(1, E[0])
        follower.attempt_ended(1, 0.1, REFUSED)
        assert follower.next(0.1, topology, search_owner=False) == Wait(60.0)
        topology = update(update(topology, PrimaryLost(E[0], 0)), Claimed(E[0], 2, "x", 1))
        assert follower.next(0.2, topology, search_owner=False) == Wait(0.4)
        assert follower.next(0.4, topology, search_owner=False) == Dial(2, E[0])
        follower.attempt_ended(2, 0.5, REFUSED)
        assert follower.next(0.5, topology, search_owner=False) == Wait(60.0)

    def test_a_follower_leaves_redirects_to_the_leader(self) -> None:
        """Otherwise all connections would follow the same redirect.  The search owner follows it at once."""
        topology = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        for search_owner, expected in (
            (False, Wait(60.0)),
            (True, Dial(2, E[1], hops=1)),
        ):
            follower = search()
            follower.next(0.0, topology, search_owner=False)
            follower.attempt_ended(1, 0.3, Failure(kind=FailureReason.REDIRECTED, redirect=E[1]))
            assert follower.next(0.3, topology, search_owner=search_owner) == expected

    def test_a_new_leader_gives_the_primary_a_stagger_before_it_walks_the_list(self) -> None:
        """The round begins while that dial is pending, and treats it like one of its own."""
        follower = search()
        topology = update(Topology(seeds=(E[0], E[1])), Claimed(E[0], 1, "x", 0))
        assert follower.next(0.0, topology, search_owner=False) == Dial(1, E[0])
        assert follower.next(0.1, topology) == StartRound(1)
        assert follower.next(0.1, topology) == Wait(0.25)
        assert follower.next(0.25, topology) == Dial(2, E[1])

    def test_a_follower_that_becomes_the_search_owner_begins_its_round(self) -> None:
        """The previous search owner gave up or was closed."""
        follower = search()
        topology = Topology(seeds=(E[0],))
        assert follower.next(0.0, topology, search_owner=False) == Wait(60.0)
        assert follower.next(1.0, topology, search_owner=True) == StartRound(1)
        assert follower.next(1.0, topology, search_owner=True) == Dial(1, E[0])

    def test_a_follower_honors_the_retry_after_of_the_primary(self) -> None:
        """The primary makes a reservation for this connection, as for any other client."""
        follower = search()
        topology = update(Topology(seeds=(E[0],)), Claimed(E[0], 1, "x", 0))
        follower.next(0.0, topology, search_owner=False)
        follower.attempt_ended(1, 0.1, Failure(kind=FailureReason.CLOSED, retry_after=3.0))
        topology = update(update(topology, PrimaryLost(E[0], 0)), Claimed(E[0], 1, "x", 1))
        wait = follower.next(0.1, topology, search_owner=False)
        assert isinstance(wait, BackOff)
        assert follower.next(0.1, topology, search_owner=True) == Wait(wait.until)
        assert wait.until >= 3.1
        assert follower.next(wait.until, topology, search_owner=False) == Dial(2, E[0])

    def test_a_search_that_backs_off_goes_to_a_newly_known_primary_at_once(self) -> None:
        """Another connection has found the primary, so its address may be dialled again so soon."""
        times = DialTimes()
        waiting = search(Policy(backoff_base=5.0), dial_times=times)
        topology = Topology(seeds=(E[0], E[1]))
        waiting.next(0.0, topology)
        waiting.next(0.0, topology)
        waiting.attempt_ended(1, 0.1, REFUSED)
        waiting.next(0.1, topology)
        waiting.attempt_ended(2, 0.2, REFUSED)
        assert isinstance(waiting.next(0.2, topology), BackOff)
        topology = update(topology, Claimed(E[1], 1, "x", 0))
        times.open(E[1])
        assert waiting.next(0.3, topology) == Dial(3, E[1])

    def test_a_retry_after_is_waited_out_even_when_the_primary_becomes_known(self) -> None:
        """``retry_after`` is the time at which the member accepts this client."""
        waiting = search()
        topology = Topology(seeds=(E[0],))
        waiting.next(0.0, topology)
        waiting.next(0.0, topology)
        waiting.attempt_ended(1, 0.1, Failure(kind=FailureReason.CLOSED, retry_after=3.0))
        wait = waiting.next(0.1, topology)
        assert isinstance(wait, BackOff)
        topology = update(topology, Claimed(E[0], 1, "x", 0))
        assert waiting.next(0.3, topology) == Wait(wait.until)

    def test_a_search_owner_that_flaps_does_not_restart_rounds(self) -> None:
        """Otherwise the search would bypass the delay between rounds."""
        flapping = search(Policy(startup_deadline=None))
        topology = Topology(seeds=(E[0],))
        dials = 0
        for step in range(100):
            decision = flapping.next(0.0, topology, search_owner=step % 2 == 0)
            if isinstance(decision, Dial):
                dials += 1
                flapping.attempt_ended(decision.attempt, 0.0, REFUSED)
        assert dials == 1


def test_no_wait_is_infinite_when_there_is_something_to_wait_for() -> None:
    """Only a search that depends on facts from outside waits without a limit."""
    idle = search(Policy(startup_deadline=None))
    assert idle.next(0.0, Topology(seeds=(E[0],)), search_owner=False) == Wait(None)
    idle.next(0.0, Topology(seeds=(E[0],)))
    idle.next(0.0, Topology(seeds=(E[0],)))
    wait = idle.next(0.0, Topology(seeds=(E[0],)))
    assert isinstance(wait, Wait)
    assert wait.until is not None
    assert wait.until < math.inf
