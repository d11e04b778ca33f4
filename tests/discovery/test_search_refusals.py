"""``not-found`` or ``invalid-field`` from every member: final if it lasts (rule 6 of ``search``)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import BackOff, Dial, Found, GiveUp, GiveUpReason, StartRound, Wait
from haclient.discovery.evidence import RESOURCE_LIMIT, AttemptRecord, Failure, FailureReason
from haclient.discovery.refusals import Refusals
from haclient.discovery.search import Search
from haclient.discovery.topology import Topology
from haclient.retry.backoff import Backoff
from haclient.retry.policy import Policy

from .virtual import REFUSED, BlackHole, E, Factory, Fails, Serves, World, closes, redirects, verdict

NOT_FOUND = closes("amqp:not-found")
INVALID_FIELD = closes("amqp:invalid-field")
FORCED = closes("amqp:connection:forced")
IN_USE = Fails(
    Failure(
        kind=FailureReason.CLOSED, condition="amqp:invalid-field", detail="held by 10.9.9.9", id_in_use=True
    )
)
THREE = {E[n]: NOT_FOUND for n in range(3)}
# The refusal is final at the end of a round: at most this many seconds later, if the members answer fast.
A_ROUND = Policy().backoff_max + 1.0


def lost(world: World, members: int = 3, *, until: float = 300.0, **options: object) -> Factory:
    """Run one connection that was just lost, in this world, without a deadline."""
    policy = Policy(startup_deadline=None, **options)  # type: ignore[arg-type]
    factory = Factory(world, E[:members], policy=policy)
    factory.connect(first=False)
    factory.run(until)
    return factory


def first(world: World, members: int = 3, *, until: float = 300.0, **options: object) -> Factory:
    """Run one first connect in this world."""
    factory = Factory(world, E[:members], policy=Policy(**options))  # type: ignore[arg-type]
    factory.connect()
    factory.run(until)
    return factory


class TestAfterALoss:
    """The name was right when the client was connected."""

    @pytest.mark.parametrize("answer", [NOT_FOUND, INVALID_FIELD, IN_USE], ids=["unknown", "field", "id"])
    @pytest.mark.parametrize("seconds", [0.07, 5.0, 59.0])
    def test_an_election_is_waited_for(self, answer: Fails, seconds: float) -> None:
        """Every member answers like this until one is elected."""
        world: World = {
            E[0]: answer,
            E[1]: lambda now: answer if now < seconds else Serves(),
            E[2]: answer,
        }
        factory = lost(world)
        assert factory.of_type(Found)
        assert factory.now <= seconds + A_ROUND

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [(NOT_FOUND, GiveUpReason.NOT_FOUND), (INVALID_FIELD, GiveUpReason.INVALID_FIELD)],
        ids=["unknown", "field"],
    )
    def test_a_minute_of_it_is_the_answer_even_without_a_deadline(
        self, answer: Fails, reason: GiveUpReason
    ) -> None:
        """The error has one member and its answer."""
        factory = lost({E[n]: answer for n in range(3)})
        end = verdict(factory)
        assert end.reason is reason
        assert end.detail == f"{E[0]}: {answer.failure.condition}"
        assert 60 <= factory.now <= 60 + A_ROUND

    @pytest.mark.parametrize("seconds", [1.0, 7.0, 200.0])
    def test_the_option_says_how_long(self, seconds: float) -> None:
        """The search ends with the first round that ends after this time."""
        factory = lost(THREE, refusal_timeout=seconds)
        assert verdict(factory).reason is GiveUpReason.NOT_FOUND
        assert seconds <= factory.now <= seconds + A_ROUND

    @pytest.mark.slow
    def test_no_refusal_timeout_is_no_end(self) -> None:
        """Only a deadline ends such a search."""
        assert not lost(THREE, refusal_timeout=None, until=3000).of_type(GiveUp)
        factory = lost(THREE, refusal_timeout=None, deadline=100)
        assert (verdict(factory).reason, factory.now) == (GiveUpReason.DEADLINE, 100)
        assert "amqp:not-found" in verdict(factory).detail

    def test_the_shortest_refusal_timeout_is_three_rounds(self) -> None:
        """A single round may fall between two primaries."""
        factory = lost(THREE, refusal_timeout=0.0)
        assert len(factory.of_type(StartRound)) == 3
        assert len(factory.dials()) == 9

    def test_a_shorter_deadline_comes_first(self) -> None:
        """The error includes the answer of the members."""
        factory = lost(THREE, deadline=10)
        assert (verdict(factory).reason, factory.now) == (GiveUpReason.DEADLINE, 10)
        assert verdict(factory).detail.endswith(f"; {E[0]}: amqp:not-found")

    @pytest.mark.parametrize(
        "other",
        [FORCED, Fails(), BlackHole(), BlackHole(tcp=0.01), closes("amqp:not-found", 1.0)],
        ids=["forced", "refused", "no TCP", "silent", "retry-after"],
    )
    def test_one_member_that_answers_something_else_begins_the_minute_anew(
        self, other: Fails | BlackHole
    ) -> None:
        """Two of three members always refuse the name; the third answers otherwise from 40 to 55 s."""
        world: World = {
            E[0]: NOT_FOUND,
            E[1]: lambda now: other if 40 <= now < 55 else NOT_FOUND,
            E[2]: NOT_FOUND,
        }
        factory = lost(world)
        assert verdict(factory).reason is GiveUpReason.NOT_FOUND
        assert factory.now >= 55 + 60 - A_ROUND  # Its last other answer may be up to a round earlier.
        assert last_other_answer(verdict(factory)) <= factory.now - 60

    @pytest.mark.parametrize("other", [FORCED, Fails(), BlackHole()], ids=["forced", "refused", "no TCP"])
    def test_one_member_that_always_answers_something_else_is_asked_for_ever(
        self, other: Fails | BlackHole
    ) -> None:
        """The third member may become the primary."""
        assert not lost({**THREE, E[2]: other}, until=1000).of_type(GiveUp)

    def test_a_session_between_two_elections_begins_the_minute_anew(self) -> None:
        """Fifty seconds of refusals, a session that is lost at once, and fifty seconds of refusals again."""

        def member(now: float) -> Fails | Serves:
            return Serves(drops_after=0.5) if 50 <= now < 62 or now >= 115 else NOT_FOUND

        factory = lost(dict.fromkeys(E[:3], member), until=150, backoff_max=2.0)
        assert not factory.of_type(GiveUp)
        assert len(factory.of_type(Found)) >= 2

    def test_a_full_primary_among_them_begins_the_minute_anew(self) -> None:
        """The refusal with a reservation ends the round at once."""
        world: World = {
            E[0]: lambda now: closes(RESOURCE_LIMIT, 1.0) if 40 <= now < 52 else NOT_FOUND,
            E[1]: NOT_FOUND,
        }
        factory = lost(world, 2)
        assert last_other_answer(verdict(factory)) <= factory.now - 60
        assert factory.now >= 100

    def test_a_listed_name_without_an_address_has_not_answered(self) -> None:
        """The pod of that name is still starting, and the others need it to elect a primary."""
        name = Endpoint("broker-2.example.com", 5672)
        known: dict[Endpoint, tuple[float, tuple[Endpoint, ...]]] = {name: (0.001, ())}
        factory = Factory(THREE, [E[0], E[1], name], names=known)
        factory.connect(first=False)
        factory.run(until=200)
        assert not factory.of_type(GiveUp)
        known[name] = (0.001, (E[2],))
        began = factory.now
        factory.run(until=400)
        assert verdict(factory).reason is GiveUpReason.NOT_FOUND
        assert factory.now >= began + 60 - A_ROUND

    def test_the_members_of_the_second_site_are_asked_as_well(self) -> None:
        """The first site was demoted for good; the second site serves."""
        made = Factory(
            {**THREE, E[10]: Serves()}, E[:3], policy=Policy(dr=("b",), dr_after=80.0, startup_deadline=None)
        )
        made.topology = replace(made.topology, dr=(E[10],))
        made.connect(first=False)
        made.run()
        assert made.topology.primary == E[10]

    def test_a_redirect_says_nothing_and_its_target_does(self) -> None:
        """The passive members still redirect to the former primary, whose queues are gone."""
        factory = lost({E[0]: redirects(E[1]), E[1]: NOT_FOUND, E[2]: redirects(E[1])})
        assert verdict(factory).reason is GiveUpReason.NOT_FOUND
        assert 60 <= factory.now <= 60 + A_ROUND


class TestTheFirstConnect:
    """A wrong name is the most likely reason, and a user may be watching."""

    @pytest.mark.parametrize("members", [1, 3])
    def test_three_rounds_and_three_seconds_are_enough(self, members: int) -> None:
        """``refusal_timeout`` does not matter: it is for outages."""
        for option in (0.0, 60.0, None):
            factory = first(THREE, members, refusal_timeout=option)
            assert verdict(factory).reason is GiveUpReason.NOT_FOUND
            assert 3 <= factory.now <= 3 + A_ROUND
            assert len(factory.of_type(StartRound)) >= 3

    def test_slow_rounds_are_three_as_well(self) -> None:
        factory = first(THREE, backoff_base=10.0)
        assert verdict(factory).reason is GiveUpReason.NOT_FOUND
        assert len(factory.of_type(StartRound)) == 3
        assert factory.now >= 10

    def test_a_cluster_that_starts_with_the_client_is_waited_for(self) -> None:
        """The first connections of a deployment meet an election."""
        assert first({**THREE, E[1]: lambda now: NOT_FOUND if now < 2.9 else Serves()}).of_type(Found)

    def test_a_shorter_startup_deadline_comes_first(self) -> None:
        """The error includes the answer of the members."""
        factory = first(THREE, startup_deadline=1)
        assert (verdict(factory).reason, factory.now) == (GiveUpReason.DEADLINE, 1)
        assert "amqp:not-found" in verdict(factory).detail

    def test_members_that_were_down_do_not_count(self) -> None:
        """The members start after fifty seconds, know no name at first, and serve two seconds later."""

        def member(now: float) -> Fails | Serves:
            return Fails() if now < 50 else NOT_FOUND if now < 52 else Serves()

        assert first(dict.fromkeys(E[:3], member)).of_type(Found)

    def test_the_number_of_attempts_is_still_an_end(self) -> None:
        """The error includes the answer of the members."""
        end = verdict(first(THREE, max_attempts=6))
        assert end.reason is GiveUpReason.MAX_ATTEMPTS
        assert "amqp:not-found" in end.detail


class TestTheContainerId:
    """The primary has another connection with this container id, of a dead process or a live client."""

    @pytest.mark.parametrize("others", [IN_USE, NOT_FOUND, INVALID_FIELD, FORCED], ids=repr)
    def test_the_first_connect_retries_it_up_to_its_deadline_and_says_so(self, others: Fails) -> None:
        factory = first({E[0]: others, E[1]: IN_USE})
        assert (verdict(factory).reason, factory.now) == (GiveUpReason.DEADLINE, 60)
        assert "container id" in verdict(factory).detail
        assert "client_id" in verdict(factory).detail
        assert "held by 10.9.9.9" in verdict(factory).detail

    def test_it_is_found_when_the_member_has_noticed_the_death(self) -> None:
        """The member may need its heartbeat interval, perhaps twice."""
        assert first({E[0]: lambda now: IN_USE if now < 45 else Serves()}, 1).of_type(Found)

    def test_without_a_startup_deadline_it_is_retried_for_ever(self) -> None:
        """The drop-in does this, like proton."""
        assert not first({E[0]: IN_USE}, 1, startup_deadline=None, until=1000).of_type(GiveUp)

    def test_after_a_loss_it_is_final_like_any_refusal_and_says_so(self) -> None:
        """The other client is alive."""
        factory = lost({E[0]: NOT_FOUND, E[1]: IN_USE}, 2)
        assert verdict(factory).reason is GiveUpReason.INVALID_FIELD
        assert "container id" in verdict(factory).detail
        assert 60 <= factory.now <= 60 + A_ROUND

    def test_a_member_that_freed_it_and_does_not_know_the_host_begins_the_count_anew(self) -> None:
        """The error is about the host only."""
        factory = first({E[0]: lambda now: IN_USE if now < 20 else NOT_FOUND}, 1)
        assert verdict(factory).reason is GiveUpReason.NOT_FOUND
        assert verdict(factory).detail == f"{E[0]}: amqp:not-found"
        assert factory.now >= 20 + 3

    def test_the_error_does_not_speak_of_it_when_the_member_says_something_else(self) -> None:
        factory = first({E[0]: lambda now: IN_USE if now < 30 else FORCED}, 1)
        assert verdict(factory).reason is GiveUpReason.DEADLINE
        assert "container id" not in verdict(factory).detail


class TestTheClock:
    """Only time in which the search dialled members counts."""

    def rounds(self, search: Search, topology: Topology, now: float, until: float) -> tuple[float, object]:
        """Answer every dial with ``not-found`` at once.

        :returns: the time and the decision at which the search gave up, or began a wait beyond ``until``.
        """
        while True:
            decision = search.next(now, topology)
            if isinstance(decision, Dial):
                search.attempt_ended(decision.attempt, now, NOT_FOUND.failure)
            elif isinstance(decision, Wait):
                assert decision.until is not None
                if decision.until > until:
                    return now, decision
                now = decision.until
            elif isinstance(decision, GiveUp):
                return now, decision

    def search(self, *, first: bool = False) -> tuple[Search, Topology]:
        policy = Policy(startup_deadline=None)
        backoff = Backoff(policy, random.Random(1))
        return Search(policy=policy, backoff=backoff, now=0.0, first=first), Topology(seeds=(E[0], E[1]))

    def test_a_process_that_stood_still_asks_again(self) -> None:
        """The process meets an election, is suspended for an hour, and meets another election."""
        search, topology = self.search()
        now, _ = self.rounds(search, topology, 0.0, 5.0)
        ended, decision = self.rounds(search, topology, now + 3600, now + 3600 + 30)
        assert isinstance(decision, Wait)
        assert ended <= now + 3600 + 30
        ended, decision = self.rounds(search, topology, ended, 9999)
        assert isinstance(decision, GiveUp)
        assert ended >= now + 3600 + 30

    @pytest.mark.parametrize("first", [True, False])
    def test_a_clock_that_jumps_at_once_does_not_make_one_round_three(self, *, first: bool) -> None:
        """The process was suspended in its very first round."""
        search, topology = self.search(first=first)
        dials = 0
        now = 0.0
        for _ in range(100):
            decision = search.next(now, topology)
            if isinstance(decision, Dial):
                dials += 1
                now += 3600
                search.attempt_ended(decision.attempt, now, NOT_FOUND.failure)
            elif isinstance(decision, Wait):
                assert decision.until is not None
                now = decision.until
            elif isinstance(decision, GiveUp):
                break
        assert dials >= 6

    def test_a_clock_that_goes_back_takes_nothing_away_and_gives_nothing(self) -> None:
        """A monotonic clock never does this; still, the search must not spin or end because of it."""
        search, topology = self.search()
        now, _ = self.rounds(search, topology, 1000.0, 1005.0)
        refusals = Refusals()
        tried = search._round
        refusals.round_ended(tried, topology, Policy(), now)
        refusals.round_ended(tried, topology, Policy(), now - 500)
        assert (refusals.by_all.rounds, refusals.by_all.seconds) == (2, 0.0)
        refusals.round_ended(tried, topology, Policy(), now - 499)
        assert (refusals.by_all.rounds, refusals.by_all.seconds) == (3, 1.0)


class TestTheFactory:
    """The connections of a factory need the same name."""

    def test_its_connections_give_up_together(self) -> None:
        """They do not wait a minute one after the other, but each has tried every member."""
        factory = Factory(THREE, E[:3])
        for number in range(20):
            factory.connect(str(number), first=False)
        factory.run(until=2000)
        assert [end.reason for end in factory.of_type(GiveUp)] == [GiveUpReason.NOT_FOUND] * 20
        assert min(s.time for s in factory.trace if isinstance(s.decision, GiveUp)) >= 60
        assert factory.now <= 60 + 2 * A_ROUND
        for number in range(20):
            assert {where for _, where in factory.dials(str(number))} == set(E[:3])

    def test_a_connection_that_is_lost_later_waits_for_its_own_minute(self) -> None:
        """The other connection has waited for half a minute by then."""
        factory = Factory(THREE, E[:3])
        factory.connect("old", first=False)
        factory.run(until=30)
        factory.now = 30.0
        factory.connect("new", first=False)
        factory.run(until=500)
        ends = {s.connection: s.time for s in factory.trace if isinstance(s.decision, GiveUp)}
        assert 60 <= ends["old"] <= 60 + A_ROUND
        assert 90 <= ends["new"] <= 90 + A_ROUND

    def test_a_session_of_one_begins_the_minute_of_the_others_anew(self) -> None:
        """The primary accepts one connection after fifty seconds, and then the next election begins."""
        asked: list[float] = []

        def master(now: float) -> Fails | Serves:
            if now >= 50:
                asked.append(now)
            return Serves() if 0 < len(asked) <= 2 else NOT_FOUND  # at its dial and when found

        factory = Factory({**THREE, E[0]: master}, E[:3])
        factory.connect("one", first=False)
        factory.connect("other", first=False)
        factory.run(until=500)
        (found,) = [s.time for s in factory.trace if isinstance(s.decision, Found)]
        (gave_up,) = [s.time for s in factory.trace if isinstance(s.decision, GiveUp)]
        assert found + 60 <= gave_up <= found + 60 + A_ROUND

    @pytest.mark.parametrize("is_first", [True, False])
    def test_a_connection_of_later_begins_anew(self, *, is_first: bool) -> None:
        """All other connections gave up an hour ago; the new one meets an election."""
        factory = Factory(THREE, E[:3])
        factory.connect("old", first=False)
        factory.run()
        factory.now = 3600.0
        factory.connect("new", first=is_first)
        factory.run(until=9000)
        ends = {s.connection: s.time for s in factory.trace if isinstance(s.decision, GiveUp)}
        assert ends["new"] >= 3600 + (3 if is_first else 60)
        assert len([s for s in factory.trace if s.connection == "new" and isinstance(s.decision, Dial)]) >= 9


def last_other_answer(end: GiveUp) -> float:
    """Return when a member last gave another answer; minus infinity if none did."""
    return max((r.ended for r in end.attempts if not refuses(r)), default=float("-inf"))


def refuses(record: AttemptRecord) -> bool:
    failure = record.failure
    names = {"amqp:not-found", "amqp:invalid-field"}
    return failure.kind is FailureReason.CLOSED and failure.condition in names and failure.retry_after is None


# The life of a member: its answers, one after the other, each with its duration in seconds.
LIVES = st.lists(
    st.tuples(
        st.sampled_from([0.05, 0.5, 2.0, 10.0, 30.0, 70.0]),
        st.sampled_from(
            [NOT_FOUND, NOT_FOUND, INVALID_FIELD, IN_USE, FORCED, Fails(REFUSED, 0.0), BlackHole()]
        ),
    ),
    max_size=4,
)
Life = list[tuple[float, Fails | BlackHole]]
# A low ceiling of the delays bounds the wait for the next round.
QUICK = Policy(startup_deadline=None, attempt_timeout=0.5, backoff_base=0.2, backoff_max=0.4, stagger=0.1)
properties = settings(max_examples=60, deadline=None, derandomize=True)


def living(life: Life, at_last: Fails | Serves) -> object:
    def behaviour(now: float) -> Fails | BlackHole | Serves:
        until = 0.0
        for seconds, answer in life:
            until += seconds
            if now < until:
                return answer
        return at_last

    return behaviour


def run(lives: list[Life], at_last: list[Fails | Serves], *, first: bool, connections: int) -> Factory:
    world = {E[n]: living(life, last) for n, (life, last) in enumerate(zip(lives, at_last, strict=True))}
    factory = Factory(world, E[: len(lives)], policy=QUICK)  # type: ignore[arg-type]
    for number in range(connections):
        factory.connect(str(number), first=first)
    factory.run(until=1000.0)
    return factory


@pytest.mark.slow
@properties
@given(lives=st.lists(LIVES, min_size=1, max_size=3), first=st.booleans(), connections=st.integers(1, 3))
def test_a_refusal_is_final_only_after_every_member_has_repeated_it_for_so_long(
    *, lives: list[Life], first: bool, connections: int
) -> None:
    """The dials and the scripts of the members are checked, not the notes of the search."""
    factory = run(lives, [NOT_FOUND for _ in lives], first=first, connections=connections)
    ends = [s for s in factory.trace if isinstance(s.decision, GiveUp)]
    assert len(ends) == connections, "the members refuse for ever in the end"
    needed = 3.0 if first else 60.0
    for end in ends:
        asked = [(t, e) for t, e in factory.dials() if end.time - needed <= t <= end.time]
        for when, where in asked:
            answer = factory.world[where](when)  # type: ignore[operator]
            assert answer in (NOT_FOUND, INVALID_FIELD, *([] if first else [IN_USE]))
        for number in range(len(lives)):
            assert len([where for _, where in asked if where == E[number]]) >= 3
    over = max(sum(seconds for seconds, _ in life) for life in lives)
    assert factory.now <= over + needed + 2 * connections


@properties
@given(
    lives=st.lists(LIVES, min_size=2, max_size=3),
    first=st.booleans(),
    elected=st.integers(0, 2),
)
def test_an_election_that_ends_in_time_is_never_given_up(
    *, lives: list[Life], first: bool, elected: int
) -> None:
    """One member serves before the refusals of all members have lasted too long."""
    limit = 2.9 if first else 59.0
    short = [cut(life, limit) for life in lives]
    at_last: list[Fails | Serves] = [NOT_FOUND for _ in lives]
    at_last[elected % len(lives)] = Serves()
    for life in short[: elected % len(lives)] + short[elected % len(lives) + 1 :]:
        life.append((1e9, NOT_FOUND))
    factory = run(short, at_last, first=first, connections=2)
    assert len(factory.of_type(Found)) == 2
    assert not factory.of_type(GiveUp)


def cut(life: Life, longest: float) -> Life:
    """Return the same life, compressed to at most ``longest`` seconds."""
    total = sum(seconds for seconds, _ in life)
    return [(seconds * min(1.0, longest / total), answer) for seconds, answer in life]


def test_rounds_of_refusals_keep_their_delays() -> None:
    """Passive members that refuse are polled as often as with any other answer."""
    factory = lost(THREE)
    pauses = [each.delay.delay for each in factory.of_type(BackOff)]
    assert min(pauses[2:]) >= 0.5  # 0.504 to 0.56 s after the start of the round.
    assert len(factory.dials()) <= 3 * 120
