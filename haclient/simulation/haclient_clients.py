"""Drives this package's own clients: the real ``Search``, ``Backoff`` and ``Topology``, in virtual time.

Rules
-----
1. A client runs ahead of the clock until its next step depends on others: an attempt at the primary, or at a
   member that parks.  All other steps, the whole outage of most clients, need no event.
2. While the end of an attempt is unknown (a lost SYN, a parked connection), the client advances with the
   clock.
3. The driver does the work of ``core.episode`` for a factory of one connection: it owns the search and may
   use all dials.  Names are addresses, so nothing is resolved.
4. Failures that are the same for all clients are one object, and the topology after one of them is
   computed once: most clients share theirs.
5. A warm client has been parked since before the loss; clients are distributed evenly over members that park.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.decision import Abandon, Dial, Found, GiveUp, Wait
from haclient.discovery.evidence import (
    RESOURCE_LIMIT,
    AttemptEnded,
    Claimed,
    Failure,
    FailureReason,
    PrimaryLost,
)
from haclient.discovery.refusals import Refusals
from haclient.discovery.search import Search
from haclient.discovery.topology import Topology, update
from haclient.retry.backoff import Backoff
from haclient.retry.fleet import NO_FLEET, FleetSize
from haclient.retry.policy import Policy
from haclient.simulation.clock import Kind
from haclient.simulation.primary import Verdict
from haclient.simulation.scenario import Scenario
from haclient.simulation.world import Role, World

_REPEATS = 32  # more repeats of a SYN than Linux makes; see ``syn``


class _Fact(NamedTuple):
    """The known end of an attempt; without a failure it becomes usable.

    With ``repeat`` the attempt continues: there was no answer, and the kernel repeats the SYN for the
    n-th time.
    """

    time: float
    attempt: int
    where: Endpoint
    failure: Failure | None
    repeat: int = 0


class _Client:
    """One searching client.

    :ivar facts: known future results of its attempts.
    :ivar open: attempts whose end is still unknown, with their members.
    :ivar dialling: an attempt that begins at the next event.
    :ivar step: number of the current step, by which events of earlier steps are ignored.
    """

    __slots__ = ("dialling", "facts", "open", "search", "step", "topology")

    def __init__(self, search: Search, topology: Topology) -> None:
        self.search = search
        self.topology = topology
        self.facts: tuple[_Fact, ...] = ()
        self.open: tuple[tuple[int, Endpoint], ...] = ()
        self.dialling: Dial | None = None
        self.step = 0

    def close(self, attempt: int) -> Endpoint | None:
        """Close an attempt and return its member; ``None`` if it was closed before."""
        where = dict(self.open).get(attempt)
        self.open = tuple(pair for pair in self.open if pair[0] != attempt)
        return where


def name_of(policy: Policy, scenario: Scenario) -> str:
    """Name the clients by their strategy and by the brokers' support for reconnecting clients."""
    if scenario.fleet_known:
        return f"{policy.backoff_strategy}, fleet known"
    extra = ", parked" if scenario.parking else ", retry-after" if scenario.retry_after else ""
    return f"{policy.backoff_strategy}{extra}"


class HaclientClients:
    """A fleet of this package's clients.

    :param rng: random source of the whole fleet; see ``fleet``.
    """

    def __init__(self, world: World, policy: Policy, rng: random.Random) -> None:
        self.name = name_of(policy, world.scenario)
        self._world = world
        self._policy = policy
        self._rng = rng
        # Shared and always empty: no member of the model answers not-found or invalid-field.
        self._refusals = Refusals()
        self._members = tuple(
            Endpoint(f"10.0.0.{place + 1}", 5672) for place in range(world.scenario.members)
        )
        self._places = {member: place for place, member in enumerate(self._members)}
        self._warm = self._members_that_park()
        self._clients: dict[int, _Client] = {}
        self._parked: list[tuple[int, int]] = []
        self._start = self._after_loss()
        self._shared = {id(self._start): self._start}
        self._learnt: dict[tuple[int, Endpoint, int], Topology] = {}
        target = self._members[world.serving].with_origin(Origin.REDIRECT)
        self._failures = {
            Role.DEAD: Failure(kind=FailureReason.REFUSED),
            Role.PASSIVE: Failure(kind=FailureReason.CLOSED, condition="amqp:connection:forced"),
            Role.REDIRECTS: Failure(
                kind=FailureReason.REDIRECTED, condition="amqp:connection:redirect", redirect=target
            ),
        }
        self._common = {id(failure) for failure in self._failures.values()}

    def begin(self, client: int, at: float) -> None:
        """Start a client's search when it notices the loss."""
        search = Search(
            policy=self._policy,
            backoff=Backoff(self._policy, self._rng),
            now=at,
            first=False,
            refusals=self._refusals,
        )
        state = self._clients[client] = _Client(search, self._start)
        if self._warm:
            where = self._warm[client % len(self._warm)]
            self._hold(client, state, search.resume(where, at), where)
        self._advance(client, state, at)

    def handle(self, client: int, kind: Kind, number: int) -> None:
        """Process an event of the clock."""
        if kind is Kind.PROMOTE:
            self._promote()
            return
        state = self._clients.get(client)
        if state is None or not self._happens(client, state, kind, number):
            return
        self._advance(client, state, self._world.clock.now)

    def _happens(self, client: int, state: _Client, kind: Kind, number: int) -> bool:
        """Process an event of a client; return whether it was still valid."""
        if kind is Kind.DIAL:
            self._dial(client, state)
        elif kind is Kind.SYN:
            return self._repeat(client, state, number)
        elif kind is Kind.RESERVATION:
            return self._use_reservation(client, state, number)
        else:
            return number == state.step
        return True

    def _after_loss(self) -> Topology:
        # A member that sends retry-after also announces a generation, which the policy checks.
        generation = 1 if self._world.scenario.retry_after else None
        scenario = self._world.scenario
        fleet = FleetSize(scenario.clients, scenario.setup_rate) if scenario.fleet_known else NO_FLEET
        claim = Claimed(self._members[0], generation, None, 0, fleet=fleet)
        topology = update(Topology(seeds=self._members), claim)
        return update(topology, PrimaryLost(self._members[0], topology.version))

    def _members_that_park(self) -> tuple[Endpoint, ...]:
        if self._policy.standby != "warm":
            return ()
        parks = (
            self._world.role(place, -1.0, may_park=True) is Role.PARKS for place in self._places.values()
        )
        return tuple(member for member, yes in zip(self._members, parks, strict=True) if yes)

    # -- one client ---------------------------------------------------------------------------

    def _advance(self, client: int, state: _Client, now: float) -> None:
        """Follow the search's decisions until the clock must advance first."""
        state.step += 1
        following: float | None = now
        while following is not None:
            now = following
            decision = state.search.next(now, state.topology)
            if isinstance(decision, Wait):
                following = self._wait(client, state, decision.until, now)
            elif isinstance(decision, Dial):
                following = self._set_off(client, state, decision, now)
            elif isinstance(decision, Abandon):
                self._abandon(state, decision)
            elif isinstance(decision, Found | GiveUp):
                self._end(client, decision, now)
                return

    def _wait(self, client: int, state: _Client, until: float | None, now: float) -> float | None:
        """Return the time at which the client continues; ``None`` if an event of the clock continues it."""
        fact = min(state.facts, default=None)
        at = math.inf if until is None else until
        if fact is not None and fact.time <= at:
            at = fact.time
        if state.open and at > now:
            if at < math.inf:
                self._world.clock.at(at, client, Kind.WAKE, state.step)
            return None
        if fact is not None and fact.time <= at:
            return at if self._report(client, state, fact) else None
        return at

    def _report(self, client: int, state: _Client, fact: _Fact) -> bool:
        """Report a fact to the search; return whether the client continues without the clock."""
        state.facts = tuple(each for each in state.facts if each is not fact)
        if fact.repeat:
            return self._repeat_early(client, state, fact)
        if fact.failure is None:
            state.search.usable(fact.attempt, fact.time)
        else:
            self._learn(state, fact.where, state.search.attempt_ended(fact.attempt, fact.time, fact.failure))
        return True

    def _abandon(self, state: _Client, abandon: Abandon) -> None:
        state.facts = tuple(fact for fact in state.facts if fact.attempt != abandon.attempt)
        state.close(abandon.attempt)
        record = state.search.record(abandon.attempt)
        assert record is not None
        self._learn(state, record.endpoint, abandon.failure)

    def _learn(self, state: _Client, where: Endpoint, failure: Failure) -> None:
        old = state.topology
        if id(failure) not in self._common or id(old) not in self._shared:
            state.topology = update(old, AttemptEnded(where, failure, old.version))
            return
        key = (id(old), where, id(failure))
        if key not in self._learnt:
            new = self._learnt[key] = update(old, AttemptEnded(where, failure, old.version))
            self._shared[id(new)] = new
        state.topology = self._learnt[key]

    def _end(self, client: int, decision: Found | GiveUp, now: float) -> None:
        if isinstance(decision, Found):
            self._world.usable(now)
        else:
            self._world.gave_up += 1
        del self._clients[client]

    # -- attempts -----------------------------------------------------------------------------

    def _set_off(self, client: int, state: _Client, dial: Dial, now: float) -> float | None:
        role = self._role(state, dial.endpoint, now)
        if role in self._failures or role is Role.SILENT:
            self._world.count(client, self._places[dial.endpoint], role, now)
            if role is Role.SILENT:
                self._expect_repeat(state, now, dial.attempt, dial.endpoint, 0)
            else:
                self._expect(state, now, dial.attempt, dial.endpoint, self._failures[role])
            return now
        state.dialling = dial
        if now > self._world.clock.now:
            self._world.clock.at(now, client, Kind.DIAL)
            return None
        self._dial(client, state)
        return now

    def _role(self, state: _Client, where: Endpoint, now: float) -> Role:
        return self._world.role(self._places[where], now, may_park=state.search.may_park)

    def _dial(self, client: int, state: _Client) -> None:
        dial, now = state.dialling, self._world.clock.now
        assert dial is not None
        state.dialling = None
        role = self._role(state, dial.endpoint, now)
        if role is Role.PRIMARY:
            self._at_primary(client, state, dial.attempt, dial.endpoint)
        else:
            self._world.count(client, self._places[dial.endpoint], role, now, accepted=True)
            self._hold(client, state, dial.attempt, dial.endpoint)
            state.search.parked(dial.attempt, now)

    def _at_primary(
        self, client: int, state: _Client, attempt: int, where: Endpoint, repeated: int = 0
    ) -> None:
        now = self._world.clock.now
        may_park = self._world.scenario.parking and state.search.may_park
        verdict, known, retry_after = self._world.primary.attempt(client, now, may_park=may_park)
        accepted = verdict not in (Verdict.LOST, Verdict.RESET)
        place = self._places[where]
        self._world.count(client, place, Role.PRIMARY, now, repeated=repeated, accepted=accepted)
        if verdict is Verdict.LOST:
            self._expect_repeat(state, now, attempt, where, repeated)
        elif verdict is Verdict.PARKED:
            self._world.parked += 1
            state.open += ((attempt, where),)
            state.search.parked(attempt, now)
            self._world.clock.at(now + retry_after, client, Kind.RESERVATION, attempt)
        elif verdict is Verdict.USABLE:
            state.search.tcp_connected(attempt, now)
            self._expect(state, known, attempt, where, None)
        else:
            failure = (
                self._failures[Role.DEAD] if verdict is Verdict.RESET else _retry_after_failure(retry_after)
            )
            self._expect(state, known, attempt, where, failure)

    def _expect(
        self, state: _Client, known: float, attempt: int, where: Endpoint, failure: Failure | None
    ) -> None:
        scenario = self._world.scenario
        refused = failure is self._failures[Role.DEAD]
        latency = scenario.round_trip if refused else scenario.setup_latency
        state.facts += (_Fact(known + latency, attempt, where, failure),)

    def _expect_repeat(
        self, state: _Client, now: float, attempt: int, where: Endpoint, repeated: int
    ) -> None:
        """Let the kernel repeat an unanswered SYN, or the dial fail after the last one."""
        gaps = self._world.syn_gaps
        last = repeated + 1 == len(gaps)
        failure = _TIMED_OUT if last else None
        state.facts += (_Fact(now + gaps[repeated], attempt, where, failure, 0 if last else repeated + 1),)

    def _repeat_early(self, client: int, state: _Client, fact: _Fact) -> bool:
        """Deliver a repeated SYN; if it is for the primary, the answer waits for the clock."""
        place = self._places[fact.where]
        role = self._world.role(place, fact.time)
        if role is Role.PRIMARY:
            state.open += ((fact.attempt, fact.where),)
            self._world.clock.at(fact.time, client, Kind.SYN, fact.attempt * _REPEATS + fact.repeat)
            return False
        self._world.count(client, place, role, fact.time, repeated=fact.repeat)
        self._expect_repeat(state, fact.time, fact.attempt, fact.where, fact.repeat)
        return True

    def _repeat(self, client: int, state: _Client, number: int) -> bool:
        attempt, repeated = divmod(number, _REPEATS)
        where = state.close(attempt)
        if where is None:
            return False
        self._at_primary(client, state, attempt, where, repeated)
        return True

    # -- parking ------------------------------------------------------------------------------

    def _hold(self, client: int, state: _Client, attempt: int, where: Endpoint) -> None:
        """Park the attempt at a passive member until a member is primary."""
        self._world.parked += 1
        state.open += ((attempt, where),)
        self._parked.append((client, attempt))

    def _promote(self) -> None:
        """Give the new primary's parked clients their reservations; redirect clients at other members."""
        parked, self._parked = self._parked, []
        for client, attempt in parked:
            state = self._clients.get(client)
            where = None if state is None else dict(state.open).get(attempt)
            if state is None or where is None:
                continue
            if self._places[where] == self._world.serving:
                self._give_reservation(client, state, attempt)
            else:
                state.close(attempt)
                self._expect(state, self._world.clock.now, attempt, where, self._failures[Role.REDIRECTS])
                self._advance(client, state, self._world.clock.now)

    def _give_reservation(self, client: int, state: _Client, attempt: int) -> None:
        now = self._world.clock.now
        delay = self._world.primary.reservation(client, now)
        if delay > 0:
            self._world.clock.at(now + delay, client, Kind.RESERVATION, attempt)
            return
        where = state.close(attempt)
        assert where is not None
        self._expect(state, self._world.primary.serve(now), attempt, where, None)
        self._advance(client, state, now)

    def _use_reservation(self, client: int, state: _Client, attempt: int) -> bool:
        where = state.close(attempt)
        if where is None:
            return False
        self._expect(
            state, self._world.primary.use_reservation(client, self._world.clock.now), attempt, where, None
        )
        return True


_TIMED_OUT = Failure(kind=FailureReason.TIMED_OUT, detail="the kernel has sent its last SYN")


def _retry_after_failure(retry_after: float) -> Failure:
    return Failure(kind=FailureReason.CLOSED, condition=RESOURCE_LIMIT, retry_after=retry_after)
