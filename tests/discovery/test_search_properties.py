"""Laws that hold in any world.

The driver in ``virtual`` asserts at every decision of every world:

* no wait ends in the past,
* at most ``SPIN`` decisions at one instant,
* never more than ``max_dials`` pending, and no dial without a free dial,
* never ``Found`` on a primary that the topology knows to be stale.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import Abandon, BackOff, Decision, Dial, Found, GiveUp, StartRound, Wait
from haclient.discovery.evidence import (
    RESOURCE_LIMIT,
    AttemptEnded,
    Claimed,
    Evidence,
    Failure,
    FailureReason,
    PrimaryLost,
    Pushed,
)
from haclient.discovery.pending_attempts import Claim
from haclient.discovery.search import Search
from haclient.discovery.topology import Topology, update
from haclient.retry.backoff import Backoff, FixedDelays
from haclient.retry.policy import Policy

from .virtual import REFUSED, SPIN, Behaviour, BlackHole, Factory, Fails, Parks, Serves, endpoint

MEMBERS = [endpoint(number) for number in range(8)]
TARGETS = st.sampled_from(MEMBERS)
SHORT = st.sampled_from([0.0, 0.001, 0.1, 0.25, 0.3, 2.0])
CONDITIONS = st.sampled_from(
    [None, "amqp:not-found", "amqp:invalid-field", "amqp:connection:forced", RESOURCE_LIMIT]
)
DELAYS = st.sampled_from([None, None, None, 0.0, 0.5, 3.0, -1.0, float("nan"), 1e9])
FAILURES = st.builds(
    Failure,
    kind=st.sampled_from(FailureReason),
    condition=CONDITIONS,
    redirect=st.none() | TARGETS,
    retry_after=DELAYS,
)
BEHAVIOURS: st.SearchStrategy[Behaviour] = st.one_of(
    st.builds(BlackHole, st.none() | SHORT),
    st.builds(Fails, FAILURES, SHORT, st.lists(TARGETS, max_size=2).map(tuple)),
    st.builds(Fails, st.builds(Failure, kind=st.just(FailureReason.REDIRECTED), redirect=TARGETS), SHORT),
    st.builds(
        Serves,
        SHORT,
        st.none() | st.integers(1, 3),
        st.sampled_from([None, "x"]),
        st.sampled_from([None, None, 0.0, 0.2, 6.0]),
    ),
    st.builds(
        Parks,
        st.builds(Fails, FAILURES, SHORT) | st.builds(Serves, SHORT),
        st.sampled_from([0.0, 0.5, 3.0, math.inf]),
        SHORT,
    ),
)
WORLDS = st.lists(BEHAVIOURS, min_size=len(MEMBERS), max_size=len(MEMBERS))
POLICIES = st.builds(
    Policy,
    max_dials=st.integers(1, 5),
    attempt_timeout=st.sampled_from([0.2, 1.0, 5.0]),
    deadline=st.sampled_from([5.0, 12.0]),
    startup_deadline=st.sampled_from([5.0, 12.0]),
    max_attempts=st.none() | st.integers(1, 30),
    redirects=st.sampled_from(["members", "any", "none"]),
    pushed_members=st.sampled_from(["add", "replace", "ignore"]),
    backoff_base=st.sampled_from([0.05, 1.0]),
    backoff_strategy=st.sampled_from(["adaptive", "adaptive", "full"]),
    standby=st.sampled_from(["none", "outage"]),
    park_timeout=st.sampled_from([0.3, 60.0]),
)
FIXED = st.none() | st.builds(
    FixedDelays,
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 3.0]), min_size=1, max_size=4).map(tuple),
    rounds=st.sampled_from([1, 4]),
)
quick = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def run(
    behaviours: list[Behaviour],
    policy: Policy,
    *,
    seeds: int,
    connections: int,
    credentials: bool = False,
    fixed: FixedDelays | None = None,
) -> Factory:
    """Let several connections look for a primary in this world."""
    world = dict(zip(MEMBERS, behaviours, strict=True))
    factory = Factory(world, MEMBERS[:seeds], policy=policy, credentials=credentials, fixed=fixed)
    for number in range(connections):
        factory.connect(str(number))
    factory.run(until=20.0)
    return factory


@quick
@given(
    behaviours=WORLDS,
    policy=POLICIES,
    seeds=st.integers(0, 8),
    connections=st.integers(1, 4),
    credentials=st.booleans(),
    fixed=FIXED,
)
def test_every_search_ends_by_its_deadline(
    *,
    behaviours: list[Behaviour],
    policy: Policy,
    seeds: int,
    connections: int,
    credentials: bool,
    fixed: FixedDelays | None,
) -> None:
    """Each search ends with a session or a reason, and the seed list is unchanged."""
    factory = run(
        behaviours, policy, seeds=seeds, connections=connections, credentials=credentials, fixed=fixed
    )
    assert factory.topology.seeds == tuple(MEMBERS[:seeds])
    assert set(MEMBERS[:seeds]) <= set(factory.topology.candidates())
    if any(isinstance(b, Serves) and b.drops_after is not None for b in behaviours):
        return
    assert all(connection.search is None for connection in factory.connections)
    assert len(factory.of_type(Found)) + len(factory.of_type(GiveUp)) == connections
    assert factory.trace[-1].time <= (policy.startup_deadline or 0)


@quick
@given(behaviours=WORLDS, policy=POLICIES, seeds=st.integers(1, 8))
def test_every_attempt_ends_exactly_once(behaviours: list[Behaviour], policy: Policy, seeds: int) -> None:
    """Each dialled attempt is the session found, or is in the history once."""
    factory = Factory(dict(zip(MEMBERS, behaviours, strict=True)), MEMBERS[:seeds], policy=policy)
    search = factory.connect().search
    assume(not any(isinstance(b, Serves) and b.drops_after is not None for b in behaviours))
    factory.run()
    assert search is not None
    ended = [record.number for record in search.history] + [found.attempt for found in factory.of_type(Found)]
    assert sorted(ended) == [dial.attempt for dial in factory.of_type(Dial)]
    assert all(record.started <= record.ended for record in search.history)


@quick
@given(behaviours=WORLDS, policy=POLICIES, seeds=st.integers(1, 8))
def test_the_dials_of_a_round_are_bounded(behaviours: list[Behaviour], policy: Policy, seeds: int) -> None:
    """The list and the redirects allow each endpoint once."""
    factory = run(behaviours, policy, seeds=seeds, connections=1)
    dials = 0
    for step in factory.trace:
        if isinstance(step.decision, StartRound):
            dials = 0
        dials += isinstance(step.decision, Dial)
        # Each of the eight endpoints once by redirect and twice from the list: the list may change, or an
        # attempt of the previous round may end.  Plus the primary of the version that one search can cause.
        assert dials <= 3 * len(MEMBERS) + 1


@quick
@given(behaviours=WORLDS, policy=POLICIES, seeds=st.integers(1, 8), first=st.booleans())
def test_rounds_are_kept_apart_by_delays(
    *, behaviours: list[Behaviour], policy: Policy, seeds: int, first: bool
) -> None:
    """Every round of a search but the first begins after a wait has ended."""
    factory = Factory(dict(zip(MEMBERS, behaviours, strict=True)), MEMBERS[:seeds], policy=policy)
    factory.connect(first=first)
    factory.run(until=20.0)
    free, until = first, 0.0
    for step in factory.trace:
        if isinstance(step.decision, BackOff):
            free, until = True, step.decision.until
        if isinstance(step.decision, StartRound):
            assert free
            assert step.time >= until
            free = False
        if isinstance(step.decision, Found):
            free = False


@quick
@given(behaviours=WORLDS, policy=POLICIES, seeds=st.integers(1, 8), after=SHORT)
def test_wrong_credentials_are_refused_once_per_member(
    behaviours: list[Behaviour], policy: Policy, seeds: int, after: float
) -> None:
    """Every second member refuses them; the other members do anything."""
    wrong = Fails(Failure(kind=FailureReason.AUTHENTICATION), after)
    mixed = [wrong if number % 2 == 0 else b for number, b in enumerate(behaviours)]
    factory = Factory(dict(zip(MEMBERS, mixed, strict=True)), MEMBERS[:seeds], policy=policy)
    search = factory.connect().search
    factory.run(until=20.0)
    assert search is not None
    refusals = [r.endpoint for r in search.history if r.failure.kind is FailureReason.AUTHENTICATION]
    assert len(refusals) == len(set(refusals))


FATAL = {FailureReason.AUTHENTICATION, FailureReason.TLS_VERIFICATION}
PASSIVE: st.SearchStrategy[Behaviour] = st.one_of(
    st.just(BlackHole()),
    st.builds(Fails, FAILURES.filter(lambda failure: failure.kind not in FATAL), SHORT),
    st.builds(Fails, st.builds(Failure, kind=st.just(FailureReason.REDIRECTED), redirect=TARGETS), SHORT),
    st.builds(Parks, st.builds(Fails, st.just(REFUSED), SHORT), st.sampled_from([0.5, math.inf]), SHORT),
)


@quick
@given(
    passive=st.lists(PASSIVE, min_size=len(MEMBERS) - 1, max_size=len(MEMBERS) - 1),
    primary=st.integers(0, len(MEMBERS) - 1),
    policy=POLICIES.map(lambda policy: replace(policy, max_attempts=None, max_retry_after=1.0)),
)
def test_a_listed_primary_is_found_whatever_the_passive_members_do(
    passive: list[Behaviour], primary: int, policy: Policy
) -> None:
    """They hang, refuse, park, redirect in circles and ask for delays; a round still reaches the primary.

    With a reservation or a delayed redirect, a passive member can cost ``max_retry_after`` at most.
    """
    behaviours = [*passive[:primary], Serves(after=0.01), *passive[primary:]]
    factory = run(behaviours, policy, seeds=len(MEMBERS), connections=2)
    assert len(factory.of_type(Found)) == 2


def test_a_passive_member_that_asks_for_no_delay_is_not_dialled_for_ever() -> None:
    """The member always claims to be full, with a reservation of zero seconds."""
    full = Fails(Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT, retry_after=0.0), 0.1)
    policy = Policy(
        max_dials=1, attempt_timeout=0.2, startup_deadline=2.0, backoff_base=0.05, max_retry_after=1.0
    )
    dead = [Fails(REFUSED, 0.0)] * (len(MEMBERS) - 2)
    factory = run([full, Serves(after=0.01), *dead], policy, seeds=2, connections=2)
    assert len(factory.of_type(Found)) == 2


ENDPOINTS = st.sampled_from(MEMBERS[:4])
EVIDENCE: st.SearchStrategy[Evidence] = st.one_of(
    st.builds(
        Claimed, ENDPOINTS, st.none() | st.integers(1, 4), st.sampled_from([None, "x"]), st.integers(0, 9)
    ),
    st.builds(PrimaryLost, ENDPOINTS, st.integers(0, 9)),
    st.builds(AttemptEnded, ENDPOINTS, FAILURES, st.integers(0, 9)),
    st.builds(Pushed, st.lists(TARGETS, max_size=3).map(tuple), st.integers(0, 9)),
)
ACTIONS = st.one_of(
    EVIDENCE,
    st.tuples(st.just("failure"), st.integers(1, 12), FAILURES),
    st.tuples(st.just("usable"), st.integers(1, 12), st.none() | st.integers(1, 4)),
    st.tuples(st.just("tcp"), st.integers(1, 12), st.none()),
    st.tuples(st.just("parked"), st.integers(1, 12), st.none()),
    st.tuples(st.just("time"), SHORT, st.none()),
)


class Fuzzed:
    """A search and a topology that receive facts which may contradict each other."""

    def __init__(self, policy: Policy, *, first: bool) -> None:
        self.policy = policy
        self.now = 0.0
        self.topology = Topology(seeds=tuple(MEMBERS[:3]), pushed_members=policy.pushed_members)
        self.search = Search(policy=policy, backoff=Backoff(policy, random.Random(1)), now=0.0, first=first)
        self.claims: dict[int, int | None] = {}
        self.flying: dict[int, Endpoint] = {}
        self.parked: set[int] = set()

    def act(self, action: Evidence | tuple[str, float, object]) -> None:
        """Report one fact, or advance the time."""
        match action:
            case ("failure", int(attempt), Failure() as failure):
                self.search.attempt_ended(attempt, self.now, failure)
                self.flying.pop(attempt, None)
            case ("usable", int(attempt), generation):
                assert generation is None or isinstance(generation, int)
                self.search.usable(attempt, self.now, Claim(generation, "x"))
                self.claims[attempt] = generation
            case ("parked", int(attempt), _):
                self.search.parked(attempt, self.now)
                if attempt in self.flying:
                    self.parked.add(attempt)
            case ("tcp", int(attempt), _):
                self.search.tcp_connected(attempt, self.now)
            case ("time", float(step), _):
                self.now += step
            case Claimed() | PrimaryLost() | AttemptEnded() | Pushed():
                self.topology = update(self.topology, action)

    @property
    def dialled(self) -> set[int]:
        """The attempts that hold a dial."""
        return set(self.flying) - self.parked

    def pump(self, *, search_owner: bool, free_dials: int | None, resolving: bool) -> Decision:
        """Ask for decisions until the search waits or ends, and check each of them."""
        for _ in range(SPIN):
            free = None if free_dials is None else free_dials - len(self.dialled)
            decision = self.search.next(
                self.now, self.topology, search_owner=search_owner, free_dials=free, resolving=resolving
            )
            if isinstance(decision, Dial):
                assert free is None or free > 0
                self.flying[decision.attempt] = decision.endpoint
                assert len(self.dialled) == self.search.dials <= self.policy.max_dials
            if isinstance(decision, Abandon):
                del self.flying[decision.attempt]
            if isinstance(decision, Found):
                assert not self.topology.is_stale(self.claims[decision.attempt], "x")
            if isinstance(decision, Wait):
                assert decision.until is None or decision.until > self.now
            if isinstance(decision, Wait | Found | GiveUp):
                return decision
        msg = "a spin"
        raise AssertionError(msg)


@quick
@given(
    policy=POLICIES,
    first=st.booleans(),
    search_owner=st.lists(st.booleans(), min_size=40, max_size=40),
    together=st.lists(st.booleans(), min_size=40, max_size=40),
    free_dials=st.none() | st.integers(0, 4),
    actions=st.lists(ACTIONS, max_size=40),
)
def test_no_sequence_of_facts_makes_a_search_spin_or_exceed_its_room(
    *,
    policy: Policy,
    first: bool,
    search_owner: list[bool],
    together: list[bool],
    free_dials: int | None,
    actions: list[Evidence | tuple[str, float, object]],
) -> None:
    """Facts are late, wrong or simultaneous, and the owner changes; the search still ends in time."""
    fuzzed = Fuzzed(policy, first=first)
    for is_owner, at_once, action in zip(search_owner, together, actions, strict=False):
        fuzzed.act(action)
        if at_once:
            continue
        decision = fuzzed.pump(search_owner=is_owner, free_dials=free_dials, resolving=is_owner and not first)
        if isinstance(decision, Found | GiveUp):
            return
    fuzzed.now += 12.0
    assert isinstance(fuzzed.pump(search_owner=False, free_dials=free_dials, resolving=True), GiveUp)
