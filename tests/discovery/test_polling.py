"""The default backoff strategy: the last answer of a member decides when it is dialled again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import Abandon, BackOff, Dial, Found
from haclient.discovery.evidence import RESOURCE_LIMIT, Claimed, Failure, FailureReason, PrimaryLost, Resolved
from haclient.discovery.polling.by_answer import Answer, Polling, answer_of
from haclient.discovery.topology import update
from haclient.retry.policy import Policy

from .virtual import (
    REFUSED,
    Behaviour,
    BlackHole,
    E,
    Factory,
    Fails,
    Parks,
    Script,
    Serves,
    World,
    closes,
    redirects,
)

FOR_EVER = Policy(startup_deadline=None)
FORCED = closes("amqp:connection:forced")


def lost(
    world: World, members: int = 1, *, until: float = 60.0, seed: int = 0, policy: Policy = FOR_EVER
) -> Factory:
    """Run one connection that lost the first member at time 0, in a cluster that gives no hints."""
    factory = Factory(world, E[:members], policy=policy, seed=seed)
    factory.topology = update(factory.topology, Claimed(E[0], None, None, 0))
    factory.topology = update(factory.topology, PrimaryLost(E[0], 0))
    factory.connect(first=False)
    factory.run(until)
    return factory


def times(factory: Factory, where: Endpoint) -> list[float]:
    """Return the times at which an endpoint was dialled."""
    return [when for when, endpoint in factory.dials() if endpoint == where]


def gaps(moments: list[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(moments)]


@pytest.mark.parametrize(
    ("failure", "connected", "answer"),
    [
        (REFUSED, False, Answer.REFUSED),
        (Failure(kind=FailureReason.UNREACHABLE), False, Answer.REFUSED),
        (Failure(kind=FailureReason.TIMED_OUT), False, Answer.SILENT),
        (Failure(kind=FailureReason.DISPLACED), False, Answer.SILENT),
        (Failure(kind=FailureReason.TIMED_OUT), True, Answer.OVERLOADED),
        (Failure(kind=FailureReason.ENDED), True, Answer.OVERLOADED),
        (Failure(kind=FailureReason.CLOSED), True, Answer.OVERLOADED),
        (Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT), True, Answer.OVERLOADED),
        (FORCED.failure, True, Answer.PASSIVE),
        (closes("amqp:not-found").failure, True, Answer.PASSIVE),
        (redirects(E[1]).failure, True, Answer.PASSIVE),
        (Failure(kind=FailureReason.LOST_RACE), True, Answer.NONE),
    ],
)
def test_what_an_attempt_says_about_its_member(failure: Failure, connected: bool, answer: Answer) -> None:
    assert answer_of(failure, connected=connected) is answer


class TestTheFirstRounds:
    """One broken connection, or an outage."""

    @pytest.mark.parametrize("seed", range(20))
    def test_a_broker_that_is_alive_has_its_client_back_at_once(self, seed: int) -> None:
        """Only the connection broke; the broker is alive."""
        assert lost({E[0]: Serves()}, seed=seed).now <= 0.1 + 0.01

    def test_after_the_first_round_a_fleet_is_spread_over_a_whole_poll(self) -> None:
        """The second dials are spread evenly, from 0.4 to 0.96 s after the first."""
        spread = [gaps(times(lost({E[0]: Fails()}, seed=seed, until=2.0), E[0]))[0] for seed in range(400)]
        assert 0.4 <= min(spread) < 0.41
        assert 0.94 < max(spread) <= 0.96
        assert sum(spread) / len(spread) == pytest.approx(0.68, abs=0.03)

    def test_a_silent_member_is_left_after_a_stagger_and_dialled_again_at_a_time_of_its_own(self) -> None:
        """Otherwise the kernels of all clients would repeat their SYNs at the same time."""
        factory = lost({}, until=1.2)
        first, second = times(factory, E[0])
        assert factory.of_type(Abandon)[0].kind is FailureReason.TIMED_OUT
        assert 0.4 <= second - first <= 1.0


@pytest.mark.parametrize("seed", range(5))
def test_a_failover_every_four_seconds_has_the_delays_of_the_first(seed: int) -> None:
    """Two members serve in turn; the port of the former primary is closed."""

    def member(place: int, now: float) -> Behaviour:
        left = 4 - now % 4 - 0.01
        return Serves(drops_after=left + 0.001) if now // 4 % 2 == place and left > 0 else Fails()

    world: World = {E[place]: partial(member, place) for place in range(2)}
    factory = Factory(world, E[:2], policy=FOR_EVER, seed=seed)
    factory.connect()
    factory.run(until=200)
    after_losses = [wait.delay for wait in factory.of_type(BackOff) if wait.round == 0]
    assert len(after_losses) > 30
    assert {delay.base for delay in after_losses} == {0.1}


class TestRefusals:
    """The client keeps polling members that refuse."""

    def test_one_address_is_polled_every_second_when_the_outage_is_long(self) -> None:
        """The longer period begins after ten rounds; the first two of them follow other rules."""
        polls = gaps(times(lost({E[0]: Fails()}), E[0]))[1:]
        assert len(polls) > 50
        assert all(0.5 <= poll <= 0.57 for poll in polls[:9])
        assert all(0.9 <= poll <= 1.01 for poll in polls[9:])

    @pytest.mark.parametrize("seed", range(5))
    def test_each_of_two_that_refuse_is_polled_nearly_twice_a_second(self, seed: int) -> None:
        """A pair of Artemis brokers while the backup takes over."""
        factory = lost({E[0]: Fails(), E[1]: Fails()}, 2, until=20.0, seed=seed)
        for member in E[:2]:
            polls = gaps(times(factory, member))[1:]
            assert len(polls) > 25
            assert all(0.5 <= poll <= 0.62 for poll in polls)

    @pytest.mark.parametrize("answer", [Fails(), FORCED])
    @pytest.mark.parametrize("seed", range(5))
    def test_each_of_several_is_polled_so_often_that_its_primary_is_found_soon(
        self, answer: Fails, seed: int
    ) -> None:
        """The second of three members serves after 7 s."""
        world: World = {E[0]: Fails(), E[1]: lambda now: answer if now < 7 else Serves(), E[2]: FORCED}
        factory = lost(world, 3, seed=seed)
        assert 7.0 <= factory.dials()[-1][0] <= 7.6
        assert all(0.4 <= gap <= 1.2 for gap in gaps(times(factory, E[1])))

    @pytest.mark.parametrize("seed", range(20))
    def test_a_round_dials_passive_members_first(self, seed: int) -> None:
        """After the first rounds, members that answered by AMQP precede members that refuse TCP."""
        factory = lost({E[0]: Fails(), E[1]: FORCED, E[2]: FORCED}, 3, seed=seed, until=20.0)
        dialled = [endpoint for when, endpoint in factory.dials() if when > 2.5]
        dialled = dialled[dialled.index(E[1]) :]
        assert len(dialled) > 60
        assert dialled == [(E[1], E[2], E[0])[place % 3] for place in range(len(dialled))]

    def test_the_polls_of_a_full_member_fill_its_period(self) -> None:
        """A promoted member refuses with a full backlog: if all clients dialled in step, it would idle."""
        promoted = partial(lambda now: FORCED if now < 3 else Fails())
        world: World = {E[0]: Fails(), E[1]: promoted, E[2]: FORCED}
        dials = [times(lost(world, 3, seed=seed, until=6.0), E[1]) for seed in range(200)]
        first = [gaps([when for when in each if when >= 3])[0] for each in dials]
        assert 0.9 <= min(first) < 0.95
        assert 1.75 < max(first) <= 1.81

    @pytest.mark.parametrize("seed", range(5))
    def test_a_passive_member_that_answers_late_holds_the_others_for_a_full_period(self, seed: int) -> None:
        """Broker-J on a busy machine: TCP connects, and the Close arrives after half a second."""
        late = replace(FORCED, after=0.5, tcp=0.001)
        factory = lost({E[0]: Fails(), E[1]: late, E[2]: late}, 3, until=20.0, seed=seed)
        for member in E[:3]:
            # Its period, the rest of a round with both late members, and the pause after it.
            assert max(gaps(times(factory, member))[1:]) < 1.8 + 0.75 + 0.56

    def test_others_are_dialled_at_once_when_a_full_member_is_passive_again(self) -> None:
        """The member has lost an election, so another one may be promoted."""

        def full(now: float) -> Behaviour:
            return Fails() if 3 <= now < 6 else FORCED

        for seed in range(20):
            factory = lost({E[0]: Fails(), E[1]: full, E[2]: FORCED}, 3, until=9.0, seed=seed)
            again = next(when for when in times(factory, E[1]) if when >= 6)
            assert min(when for when in times(factory, E[2]) if when > again) <= again + 0.56 + 0.25

    @pytest.mark.parametrize("stagger", [0.25, 1.0])
    @pytest.mark.parametrize("seed", range(10))
    def test_failures_in_a_row_count_whatever_the_stagger(self, stagger: float, seed: int) -> None:
        """A distant member needs a SYN that is kept for long, and an overloaded member ever longer pauses."""
        policy = replace(FOR_EVER, stagger=stagger)
        silent = lost({E[0]: BlackHole()}, policy=policy, until=20.0, seed=seed)
        assert any("within 3.9 s" in each for each in kept(silent))
        dropped = lost({E[0]: closes("amqp:internal-error")}, policy=policy, seed=seed)
        assert max(gaps(times(dropped, E[0]))) > 2

    @pytest.mark.parametrize("seed", range(5))
    def test_the_time_that_members_take_to_answer_does_not_make_the_period_longer(self, seed: int) -> None:
        """Three nodes of Broker-J during an election: TCP connects, and the Close arrives after 150 ms."""
        late = replace(FORCED, after=0.15, tcp=0.001)
        factory = lost(dict.fromkeys(E[:3], late), 3, until=20.0, seed=seed)
        for member in E[:3]:
            assert max(gaps(times(factory, member))[1:]) <= 0.62

    def test_an_address_that_dns_finds_meanwhile_is_dialled_at_once(self) -> None:
        """The new address ends the pause between two rounds."""
        name = Endpoint("broker.example.com", 5672)
        factory = Factory({E[0]: Fails(), E[1]: Serves()}, [name], policy=Policy(backoff_base=5.0))
        factory.topology = update(factory.topology, Resolved(name, (E[0],)))
        search = factory.connect(first=False).search
        factory.run(until=5.2)
        assert search is not None
        after = update(factory.topology, Resolved(name, (E[0], E[1])))
        decisions = [search.next(factory.now + 0.001, after) for _ in range(2)]
        assert Dial(2, E[1]) in decisions or isinstance(decisions[-1], Dial)

    @pytest.mark.parametrize("seed", range(5))
    def test_a_name_that_is_resolved_slowly_does_not_keep_the_known_members_waiting(self, seed: int) -> None:
        """Each look-up takes five seconds; the literal address serves after 7 s."""
        name = Endpoint("broker.example.com", 5672)
        world: World = {E[0]: Fails(), E[1]: lambda now: Fails() if now < 7 else Serves()}
        factory = Factory(world, [name, E[1]], policy=FOR_EVER, seed=seed, names={name: (5.0, (E[0],))})
        factory.connect(first=False)
        factory.run(until=30)
        assert 7.0 <= factory.dials()[-1][0] <= 7.6
        assert len(times(factory, E[0])) >= 2

    def test_a_first_connect_waits_for_the_names(self) -> None:
        """A refusal by every member is known only when all names are resolved."""
        name = Endpoint("broker.example.com", 5672)
        missing = closes("amqp:not-found")
        factory = Factory({E[0]: Serves(), E[1]: missing}, [name, E[1]], names={name: (5.0, (E[0],))})
        factory.connect()
        factory.run(until=10)
        assert times(factory, E[0]) == [5.0]

    @pytest.mark.parametrize("count", [50])
    def test_many_new_addresses_are_dialled_once_each_in_a_round(self, count: int) -> None:
        """DNS returns one address before the round, and fifty later."""
        name = Endpoint("broker.example.com", 5672)
        many = tuple(Endpoint(f"10.1.0.{number}", 5672) for number in range(count))
        factory = Factory(
            dict.fromkeys((E[0], *many), Fails()), [name], policy=FOR_EVER, names={name: (0.2, many)}
        )
        factory.topology = update(factory.topology, Resolved(name, (E[0],)))
        factory.connect(first=False)
        factory.run(until=20)
        bound(factory)


def kept(factory: Factory) -> list[str]:
    """Return the details of the attempts that timed out at silent members."""
    return [each.detail for each in factory.of_type(Abandon) if each.kind is FailureReason.TIMED_OUT]


class TestSilence:
    """The client chooses the time of each SYN, and keeps every third SYN longer for slow networks."""

    def test_every_third_syn_is_kept_longer(self) -> None:
        """With one address, about one SYN a second is sent, by the client or by its kernel."""
        factory = lost({}, until=60)
        seconds = [detail.split(" s:")[0].rpartition(" ")[2] for detail in kept(factory)[1:]]
        assert seconds[:6] == ["0.85", "0.85", "3.9", "0.85", "0.85", "3.9"]
        for gap, keep in zip(gaps(times(factory, E[0]))[1:], seconds, strict=False):
            assert float(keep) <= gap <= float(keep) + 0.41

    def test_a_shorter_attempt_timeout_wins(self) -> None:
        factory = lost({}, until=30, policy=replace(FOR_EVER, attempt_timeout=2.0))
        assert "within 2 s" in kept(factory)[3]

    def test_a_dead_host_is_dialled_less_often_while_others_answer(self) -> None:
        """Every 3 to 4 s; the next dial after a SYN that was kept longer is later by as much."""
        factory = lost({E[1]: FORCED}, 2, until=60)
        polls = gaps(times(factory, E[0]))[1:]
        assert all(3.0 <= poll <= 4.0 + 0.56 or 6.0 <= poll <= 7.0 + 0.56 for poll in polls)
        assert any(poll > 5 for poll in polls)

    def test_the_other_members_are_dialled_meanwhile(self) -> None:
        """The host of the lost member is dead."""
        world: World = {E[1]: lambda now: FORCED if now < 9 else Serves(), E[2]: FORCED}
        factory = lost(world, 3)
        assert 9.0 <= factory.dials()[-1][0] <= 9.6

    @pytest.mark.parametrize("seed", range(5))
    def test_a_backlog_that_fills_up_gets_the_next_syn_before_the_kernel_repeats_it(self, seed: int) -> None:
        """One address refuses at first, and is silent from the time of 2 s on."""
        world: World = {E[0]: lambda now: Fails() if now < 2 else BlackHole()}
        dials = [when for when in times(lost(world, seed=seed, until=60), E[0]) if when >= 2]
        assert 0.9 <= gaps(dials)[0] <= 1.01
        assert all(0.9 <= gap <= 1.01 or 3.9 <= gap <= 4.31 for gap in gaps(dials))
        assert any(gap > 3 for gap in gaps(dials))

    @pytest.mark.parametrize("seed", range(5))
    def test_a_full_member_gets_its_next_syn_at_a_time_of_its_client(self, seed: int) -> None:
        """A passive member is promoted, and its backlog is full for 3 s."""

        def promoted(now: float) -> Behaviour:
            return FORCED if now < 3 else BlackHole() if now < 6 else Serves()

        factory = lost({E[0]: Fails(), E[1]: promoted, E[2]: FORCED}, 3, seed=seed)
        dials = [when for when in times(factory, E[1]) if when >= 3]
        assert all(0.9 <= gap <= 1.81 for gap in gaps(dials)[:2])
        assert sum(when >= dials[0] + 0.3 for when in times(factory, E[2])) <= 2

    @pytest.mark.parametrize("seed", range(5))
    def test_a_member_that_is_late_holds_the_others_for_a_full_period_at_most(self, seed: int) -> None:
        """The late member closes after 0.8 s.  A new primary that serves a hundred clients looks the same."""
        late = replace(FORCED, after=0.8, tcp=0.001)
        world: World = {E[0]: Fails(), E[1]: lambda now: FORCED if now < 3 else late, E[2]: FORCED}
        polls = gaps(times(lost(world, 3, seed=seed, until=20), E[2]))[1:]
        assert max(polls) <= 1.8 + 0.56 + 0.25  # Plus a poll and a stagger of its round.

    def test_the_syn_of_a_lone_member_survives_until_it_answers(self) -> None:
        """On a slow network the session is usable after one second."""
        factory = lost({E[0]: Serves(after=1.0)})
        assert factory.of_type(Found)

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("members", [1, 3])
    def test_a_primary_that_answered_before_and_is_far_away_now_is_reached(
        self, members: int, seed: int
    ) -> None:
        """Traffic takes a longer route now: a SYN that is closed after 0.85 s never connects."""
        far = Serves(tcp=1.2, after=4.8)
        world: World = {E[0]: lambda now: FORCED if now < 3 else far, E[1]: FORCED, E[2]: FORCED}
        factory = lost(world, members, seed=seed)
        assert factory.of_type(Found)
        assert factory.dials()[-1][0] <= 20

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("answer", [FORCED, Fails(), lambda now: FORCED if now < 1.5 else Fails()])
    def test_a_primary_that_is_more_than_a_second_away_is_reached(self, answer: Script, seed: int) -> None:
        """Only the connection broke.  The answers of the near backup must not shorten every SYN."""
        factory = lost({E[0]: Serves(tcp=1.2, after=4.8), E[1]: answer}, 2, seed=seed)
        assert factory.of_type(Found)
        assert factory.dials()[-1][0] <= 30


class TestOverload:
    """Members that are alive, but too busy."""

    @pytest.mark.parametrize(
        "answer", [closes(), Fails(Failure(kind=FailureReason.ENDED)), closes(RESOURCE_LIMIT)]
    )
    def test_the_pauses_grow_to_the_longest(self, answer: Fails) -> None:
        """Ten minutes of full jitter, with a ceiling of ten seconds."""
        polls = times(lost({E[0]: answer}, until=600), E[0])
        assert len(polls) < 180
        assert max(gaps(polls)) > 8

    def test_it_does_not_keep_the_client_from_the_others(self) -> None:
        world: World = {E[0]: closes(), E[1]: lambda now: Fails() if now < 30 else Serves()}
        assert lost(world, 2).dials()[-1][0] <= 30.6


def test_a_member_that_redirects_to_ever_new_ports_does_not_make_the_client_grow() -> None:
    """An outage of an hour, with another target in each round."""
    ports = iter(range(10_000, 65_000))
    targets = (Endpoint(E[0].host, port) for port in ports)

    class Redirecting(dict[Endpoint, Script]):
        """A world in which the first member redirects and every target refuses."""

        def get(self, where: Endpoint, default: object = None) -> Script:  # type: ignore[override]
            del default
            return (lambda _: redirects(next(targets))) if where == E[0] else Fails()

    factory = Factory(Redirecting(), E[:1], policy=FOR_EVER)
    searching = factory.connect(first=False).search
    factory.run(until=600)
    assert searching is not None
    assert isinstance(searching._polling, Polling)
    assert len(set(factory.dials())) > 500
    assert len(searching._polling._members) <= 256


class TestHints:
    """Members that give hints: the client is never slower than with full jitter."""

    def test_a_passive_member_is_asked_to_park_the_client_soon(self) -> None:
        for seed in range(20):
            factory = Factory({E[0]: Fails(), E[1]: FORCED}, E[:2], policy=FOR_EVER, seed=seed)
            factory.topology = update(factory.topology, Claimed(E[0], 1, "x", 0))
            factory.topology = update(factory.topology, PrimaryLost(E[0], 0))
            factory.connect(first=False)
            factory.run(until=0.31)
            assert len(times(factory, E[1])) >= 2

    @pytest.mark.parametrize("seed", range(20))
    def test_a_member_that_was_not_due_in_the_round_that_parked_the_client_is_dialled_when_it_is(
        self, seed: int
    ) -> None:
        """The member was overloaded.  The search waits for the parked attempt until the member is due."""
        world: World = {E[0]: lambda now: closes() if now < 0.3 else Serves(), E[1]: Parks(FORCED)}
        factory = lost(world, 2, seed=seed)
        assert factory.of_type(Found)
        assert factory.now < 3.0

    @pytest.mark.parametrize("seed", range(20))
    def test_a_virtual_address_that_drops_the_client_once_is_dialled_again_soon(self, seed: int) -> None:
        """A forwarder accepts TCP for a member that has just died; the backup serves after 0.3 s."""
        dropped = Fails(Failure(kind=FailureReason.ENDED), after=0.001, tcp=0.0005)
        world: World = {E[0]: lambda now: dropped if now < 0.3 else Serves()}
        factory = Factory(world, E[:1], policy=FOR_EVER, seed=seed)
        factory.topology = update(factory.topology, Claimed(E[0], 1, "x", 0))
        factory.topology = update(factory.topology, PrimaryLost(E[0], 0))
        factory.connect(first=False)
        factory.run(until=5)
        assert factory.dials()[-1][0] <= 0.71


SOON = st.sampled_from([0.0, 0.001, 0.2, 0.3, 2.0])
ANSWERS: st.SearchStrategy[Behaviour] = st.one_of(
    st.just(BlackHole()),
    st.builds(BlackHole, SOON),
    st.builds(Fails, st.just(REFUSED), SOON),
    st.sampled_from(
        [FORCED, closes(), closes("amqp:not-found"), closes(RESOURCE_LIMIT), redirects(E[0]), redirects(E[1])]
    ),
)
LIVES = st.lists(st.tuples(st.sampled_from([0.05, 0.3, 1.0, 3.0]), ANSWERS), min_size=1, max_size=6)


def script(life: list[tuple[float, Behaviour]]) -> list[tuple[float, Behaviour]]:
    """Return the answers of a member, each with the time from which it holds."""
    starts, now = [], 0.0
    for seconds, answer in life:
        starts.append((now, answer))
        now += seconds
    return starts


def bound(factory: Factory) -> None:
    """Check that one address gets at most two SYNs a second and never two within 0.4 s, repeats included."""
    for where in {endpoint for _, endpoint in factory.dials()}:
        syns = sorted(sent(factory, where))
        assert all(gap >= 0.4 - 1e-9 for gap in gaps(syns)), (where, syns)
        assert all(later - sooner >= 1 - 1e-9 for sooner, later in zip(syns, syns[2:], strict=False)), where


def sent(factory: Factory, where: Endpoint) -> list[float]:
    """Return the times of the SYNs to one address, with the repeats of the kernel for unanswered dials."""
    found: list[float] = []
    for step in factory.trace:
        if isinstance(step.decision, Dial) and step.decision.endpoint == where:
            end = factory.unanswered.get((step.connection, step.decision.attempt), -math.inf)
            repeats = [step.time + each for each in (0, 1, 2, 3, 4, 5, 7)]
            found += [each for each in repeats if each < end or each == step.time]
    return found


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    lives=st.lists(LIVES, min_size=1, max_size=4),
    seed=st.integers(0, 5),
    first=st.booleans(),
    connections=st.integers(1, 3),
    max_dials=st.sampled_from([1, 4]),
    attempt_timeout=st.sampled_from([0.5, 10.0]),
)
def test_whatever_members_answer_two_syns_a_second_are_the_most(
    *,
    lives: list[list[tuple[float, Behaviour]]],
    seed: int,
    first: bool,
    connections: int,
    max_dials: int,
    attempt_timeout: float,
) -> None:
    """Members change their answers, redirect in circles and hang while several connections search."""
    policy = replace(FOR_EVER, max_dials=max_dials, attempt_timeout=attempt_timeout)
    world: World = {E[place]: player(script(life)) for place, life in enumerate(lives)}
    factory = Factory(world, E[: len(lives)], policy=policy, seed=seed)
    for number in range(connections):
        factory.connect(str(number), first=first)
    factory.run(until=20.0)
    bound(factory)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    lives=st.lists(LIVES, min_size=2, max_size=4),
    place=st.integers(0, 3),
    seed=st.integers(0, 5),
    at=st.floats(2.0, 12.0),
)
def test_a_member_that_refused_is_dialled_soon_after_it_accepts(
    lives: list[list[tuple[float, Behaviour]]], place: int, seed: int, at: float
) -> None:
    """The others do anything.  The primary never spoke AMQP: beside a full member it is polled rarely."""
    primary = E[place % len(lives)]
    world: World = {E[each]: player(script(life)) for each, life in enumerate(lives)}
    world = {**world, primary: lambda now: Fails() if now < at else Serves()}
    factory = lost(world, len(lives), seed=seed, until=at + 30)
    (when, where) = factory.dials()[-1]
    assert factory.of_type(Found)
    assert where == primary
    rest = 6.0 + 1.5 if any(may_be_full(life) for life in lives) else 0.6
    assert when <= at + rest + 0.25 * len(lives)


def may_be_full(life: list[tuple[float, Behaviour]]) -> bool:
    """Return whether a member with this script answers by AMQP at times, and not at other times."""
    spoke = [isinstance(answer, Fails) and answer.failure is not REFUSED for _, answer in life]
    return len(set(spoke)) > 1


def player(starts: list[tuple[float, Behaviour]]) -> Callable[[float], Behaviour]:
    """Return the behaviour of a member that repeats this script for ever."""
    length = starts[-1][0] + 1.0

    def answer(now: float) -> Behaviour:
        return next(each for start, each in reversed(starts) if start <= now % length)

    return answer


def test_a_pause_is_announced_once() -> None:
    waits = lost({E[0]: Fails()}, until=30).of_type(BackOff)
    assert [wait.round for wait in waits] == list(range(len(waits)))


PLACES_OF: dict[str, tuple[World, int]] = {
    "one that refuses": ({E[0]: Fails()}, 1),
    "two that refuse": ({E[0]: Fails(), E[1]: Fails()}, 2),
    "one is silent": ({E[0]: Fails(), E[1]: BlackHole()}, 2),
    "passive": ({E[0]: FORCED, E[1]: Fails()}, 2),
    "overloaded": ({E[0]: closes(RESOURCE_LIMIT), E[1]: closes(RESOURCE_LIMIT)}, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("world", PLACES_OF)
def test_a_pause_that_was_drawn_lies_evenly_between_the_bounds_that_it_says(world: str) -> None:
    """The Kolmogorov-Smirnov test of scipy decides.  A pause without a floor was not drawn."""
    waits = [
        wait for seed in range(150) for wait in lost(*PLACES_OF[world], until=6.0, seed=seed).of_type(BackOff)
    ]
    drawn = [wait.delay for wait in waits if wait.delay.floor is not None]
    places = [(each.delay - (each.floor or 0)) / (each.base - (each.floor or 0)) for each in drawn]
    assert len(drawn) >= len(waits) / 3
    assert all(each.delay <= each.base for each in (wait.delay for wait in waits))
    assert kstest(places, "uniform").pvalue > 0.001
