"""A driver for ``Search`` in virtual time, and the scripted members that it dials.

Like the real driver, it keeps the topology of a factory and names the search owner and the number of free
dials.  It resolves names, reports facts and carries out decisions.  At every decision it also checks the
invariants of all worlds: see ``Factory._check``.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.decision import Abandon, BackOff, Decision, Dial, Found, GiveUp, StartRound, Wait
from haclient.discovery.evidence import (
    RESOURCE_LIMIT,
    AttemptEnded,
    Claimed,
    Failure,
    FailureReason,
    PrimaryLost,
    Pushed,
    Resolved,
)
from haclient.discovery.pending_attempts import Claim
from haclient.discovery.polling.dial_times import DialTimes
from haclient.discovery.refusals import Refusals
from haclient.discovery.search import Search
from haclient.discovery.topology import Topology, update
from haclient.retry.backoff import Backoff, FixedDelays
from haclient.retry.policy import Policy
from haclient.retry.stability import Stability

# Far above the decisions that any world here needs at one instant, far below a busy loop.
SPIN = 2000

REFUSED = Failure(kind=FailureReason.REFUSED)
WRONG_PASSWORD = Failure(kind=FailureReason.AUTHENTICATION, detail="SASL PLAIN failed")
WRONG_CERTIFICATE = Failure(kind=FailureReason.TLS_VERIFICATION, detail="the certificate is for another name")


@dataclass(frozen=True)
class Fails:
    """Ends the attempt; by default TCP is refused at once.

    :param after: seconds until the attempt ends.
    :param tcp: seconds until TCP connects; ``None`` if it does not.
    """

    failure: Failure = REFUSED
    after: float = 0.001
    pushes: tuple[Endpoint, ...] = ()
    tcp: float | None = None


@dataclass(frozen=True)
class BlackHole:
    """Never answers.

    :param tcp: seconds until TCP connects; ``None`` if it does not.
    """

    tcp: float | None = None


@dataclass(frozen=True)
class Serves:
    """Opens a session, which may be lost again.

    :param after: seconds until the session is usable.
    :param tcp: seconds until TCP connects; ``None``: not reported before the session.
    :param drops_after: seconds from the usable session to its loss; ``None`` for never.
    """

    after: float = 0.01
    tcp: float | None = None
    generation: int | None = None
    cluster: str | None = None
    drops_after: float | None = None


@dataclass(frozen=True)
class Parks:
    """Parks a client that asks for it, and then behaves like ``then``; skips the parking for other clients.

    :param stays: seconds that the client stays parked.
    :param after: seconds until the client is parked.
    """

    then: Fails | Serves
    stays: float = math.inf
    after: float = 0.01


Behaviour = Fails | BlackHole | Serves | Parks
Script = Behaviour | Callable[[float], Behaviour]
T = TypeVar("T", bound=Decision)
World = Mapping[Endpoint, Script]


def endpoint(number: int) -> Endpoint:
    """Return the address of member ``number``."""
    return Endpoint(f"10.0.{number // 256}.{number % 256}", 5672)


E = [endpoint(number) for number in range(32)]


def redirects(target: Endpoint, after: float = 0.001) -> Fails:
    """A passive member that redirects to the primary."""
    return Fails(Failure(kind=FailureReason.REDIRECTED, redirect=target), after)


def reservation(seconds: float) -> Fails:
    """A full primary that reserves a time for this client, so many seconds from now."""
    return closes(RESOURCE_LIMIT, seconds)


def closes(condition: str | None = None, retry_after: float | None = None) -> Fails:
    """A passive member that closes the connection without a redirect."""
    return Fails(Failure(kind=FailureReason.CLOSED, condition=condition, retry_after=retry_after))


@dataclass(frozen=True)
class Step:
    """One decision, with its time and its connection."""

    time: float
    connection: str
    decision: Decision


@dataclass
class Connection:
    """One connection of the factory: its search, or the session that the search found."""

    name: str
    backoff: Backoff
    search: Search | None = None
    wake: float | None = None
    dialled: dict[int, tuple[Endpoint, int]] = field(default_factory=dict)
    parked: set[int] = field(default_factory=set)
    usable_since: float | None = None
    stability: Stability | None = None

    def claim(self, attempt: int, session: Serves) -> tuple[int | None, str | None]:
        """Return the claim of a session; none after parking, since that Open is outdated."""
        return (None, None) if attempt in self.parked else (session.generation, session.cluster)


class Factory:
    """Several connections that share a topology, in virtual time.

    :ivar unanswered: the time up to which the SYN of an attempt had no answer, by connection and attempt.
    """

    def __init__(
        self,
        world: World,
        seeds: Sequence[Endpoint],
        *,
        policy: Policy | None = None,
        seed: int = 0,
        credentials: bool = False,
        names: Mapping[Endpoint, tuple[float, tuple[Endpoint, ...]]] | None = None,
        fixed: FixedDelays | None = None,
    ) -> None:
        self.world = world
        self.policy = policy or Policy()
        self.topology = Topology(seeds=tuple(seeds), pushed_members=self.policy.pushed_members)
        self.connections: list[Connection] = []
        self.refusals = Refusals()
        self.dial_times = DialTimes()
        self.unanswered: dict[tuple[str, int], float] = {}
        self.trace: list[Step] = []
        self.now = 0.0
        self._seed = seed
        self._credentials = credentials
        self._names = names or {}
        self._fixed = fixed
        self._resolving = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    def connect(self, name: str = "c", *, first: bool = True) -> Connection:
        """Start the search of a new connection."""
        rng = random.Random(f"{self._seed}/{name}")
        connection = Connection(name, Backoff(self.policy, rng, self._fixed))
        if not first:  # The previous connection was stable.
            connection.backoff.reset()
        self.connections.append(connection)
        self._search(connection, first=first)
        return connection

    def run(self, until: float = 1000.0) -> list[Step]:
        """Run until no event is left, or until the time ``until``; return the trace so far."""
        while True:
            self._pump_all()
            times = [c.wake for c in self.connections if c.search is not None and c.wake is not None]
            times += [self._events[0][0]] if self._events else []
            if not times or min(times) > until:
                return self.trace
            self.now = min(times)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()

    def dials(self, name: str | None = None) -> list[tuple[float, Endpoint]]:
        """Return the time and the endpoint of each dial, of one connection or of all."""
        steps = [s for s in self.trace if name in {None, s.connection}]
        return [(s.time, s.decision.endpoint) for s in steps if isinstance(s.decision, Dial)]

    def of_type(self, kind: type[T]) -> list[T]:
        """Return all decisions of one type."""
        return [s.decision for s in self.trace if isinstance(s.decision, kind)]

    def _search(self, connection: Connection, *, first: bool) -> None:
        connection.search = Search(
            policy=self.policy,
            backoff=connection.backoff,
            now=self.now,
            first=first,
            credentials=self._credentials,
            refusals=self.refusals,
            dial_times=self.dial_times,
        )
        connection.dialled, connection.parked = {}, set()

    def _pump_all(self) -> None:
        decided = True
        while decided:
            decided = sum(self._pump(c) for c in self.connections if c.search is not None) > 0

    def _pump(self, connection: Connection) -> int:
        for count in range(SPIN):
            search = connection.search
            if search is None:
                return count
            free_dials = self._free_dials()
            decision = search.next(
                self.now,
                self.topology,
                search_owner=self._owns_search(connection),
                free_dials=free_dials,
                resolving=self._resolving > 0,
            )
            if isinstance(decision, Wait):
                self._check(decision, free_dials)
                connection.wake = decision.until
                return count
            self.trace.append(Step(self.now, connection.name, decision))
            self._check(decision, free_dials)
            self._handle(connection, decision)
        msg = f"{SPIN} decisions at {self.now}"
        raise AssertionError(msg)

    def _free_dials(self) -> int:
        return self.policy.max_dials - sum(c.search.dials for c in self.connections if c.search)

    def _owns_search(self, connection: Connection) -> bool:
        return connection is next(c for c in self.connections if c.search is not None)

    def _check(self, decision: Decision, free_dials: int) -> None:
        if isinstance(decision, Wait):
            assert decision.until is None or decision.until > self.now, "a wait that is over: a spin"
        if isinstance(decision, Dial):
            assert free_dials > 0, "a dial without a free dial"
            assert self._free_dials() >= 0, "more than max_dials pending"

    def _handle(self, connection: Connection, decision: Decision) -> None:
        match decision:
            case StartRound():
                self._resolve()
            case Dial():
                self._dial(connection, decision)
            case Abandon():
                self._attempt_ended(connection, decision.attempt, decision.failure)
            case Found():
                self._found(connection, decision)
            case GiveUp():
                connection.search = None
                if not any(c.search for c in self.connections):
                    self.refusals.reset()
            case BackOff() | Wait():
                pass

    def _resolve(self) -> None:
        for name in self.topology.names():
            delay, addresses = self._names.get(name, (0.0, ()))
            self._resolving += 1
            self._at(delay, partial(self._resolved, name, addresses))

    def _resolved(self, name: Endpoint, addresses: tuple[Endpoint, ...]) -> None:
        self._resolving -= 1
        self.topology = update(self.topology, Resolved(name, addresses))

    def _behaviour(self, where: Endpoint) -> Behaviour:
        script = self.world.get(where, BlackHole())
        return script if isinstance(script, Fails | BlackHole | Serves | Parks) else script(self.now)

    def _dial(self, connection: Connection, dial: Dial) -> None:
        connection.dialled[dial.attempt] = (dial.endpoint, self.topology.version)
        search, behaviour = connection.search, self._behaviour(dial.endpoint)
        if isinstance(behaviour, BlackHole):
            until = math.inf if behaviour.tcp is None else self.now + behaviour.tcp
            self.unanswered[connection.name, dial.attempt] = until
        assert search is not None
        # As in the real driver, the SYN is sent when the address and the credentials are known.
        search.syn_sent(dial.attempt, math.inf)
        search.syn_sent(dial.attempt, self.now)

        def later(delay: float, fact: Callable[[Search], None]) -> None:
            self._at(delay, lambda: fact(search) if connection.search is search else None)

        wait = 0.0
        if isinstance(behaviour, Parks):
            if search.may_park:
                connection.parked.add(dial.attempt)
                wait = behaviour.after + behaviour.stays
                later(behaviour.after, lambda s: s.parked(dial.attempt, self.now))
            behaviour = behaviour.then
        if wait == math.inf:
            return
        if isinstance(behaviour, BlackHole | Serves) and behaviour.tcp is not None:
            later(behaviour.tcp, lambda s: s.tcp_connected(dial.attempt, self.now))
        match behaviour:
            case Fails():
                ended = behaviour
                if behaviour.tcp is not None:
                    later(wait + behaviour.tcp, lambda s: s.tcp_connected(dial.attempt, self.now))
                later(wait + behaviour.after, lambda _: self._ended(connection, dial.attempt, ended))
            case Serves():
                claim = connection.claim(dial.attempt, behaviour)
                later(wait + behaviour.after, lambda s: s.usable(dial.attempt, self.now, Claim(*claim)))

    def _ended(self, connection: Connection, attempt: int, behaviour: Fails) -> None:
        if attempt not in connection.dialled:
            return
        self.topology = update(self.topology, Pushed(behaviour.pushes, self.topology.version))
        assert connection.search is not None
        seen = connection.search.attempt_ended(attempt, self.now, behaviour.failure)
        self._attempt_ended(connection, attempt, seen)

    def _attempt_ended(self, connection: Connection, attempt: int, failure: Failure) -> None:
        where, version = connection.dialled.pop(attempt)
        key = connection.name, attempt
        self.unanswered[key] = min(self.now, self.unanswered.get(key, -math.inf))
        self.topology = update(self.topology, AttemptEnded(where, failure, version))

    def _found(self, connection: Connection, found: Found) -> None:
        where, _ = connection.dialled[found.attempt]
        behaviour = self._behaviour(where)
        connection.search, connection.usable_since = None, self.now
        connection.stability = connection.stability or Stability(self.policy.stable_after)
        connection.stability.usable(where, self.now)
        if isinstance(behaviour, Parks):
            behaviour = behaviour.then
        if not isinstance(behaviour, Serves):
            return
        claim = connection.claim(found.attempt, behaviour)
        assert not self.topology.is_stale(*claim), "found a stale primary"
        self.topology = update(self.topology, Claimed(where, *claim, self.topology.version))
        if behaviour.drops_after is not None:
            version = self.topology.version
            self._at(behaviour.drops_after, lambda: self._lost(connection, where, version))

    def _lost(self, connection: Connection, where: Endpoint, version: int) -> None:
        self.topology = update(self.topology, PrimaryLost(where, version))
        assert connection.stability is not None
        if connection.stability.begins_anew(self.now):
            connection.backoff.reset()
        self._search(connection, first=False)

    def _at(self, delay: float, event: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay, self._sequence, event))


def ran(
    world: World,
    members: int,
    policy: Policy | None = None,
    *,
    until: float = 100.0,
    credentials: bool = False,
) -> Factory:
    """Run one connection in this world, with the first endpoints as its seed list."""
    factory = Factory(world, E[:members], policy=policy, credentials=credentials)
    factory.connect()
    factory.run(until)
    return factory


def search(policy: Policy | None = None, *, first: bool = True, **facts: Any) -> Search:
    """Return a search at time 0 that a test drives itself; ``facts`` are further arguments of ``Search``."""
    policy = policy or Policy()
    backoff = Backoff(policy, random.Random(1))
    return Search(policy=policy, backoff=backoff, now=0.0, first=first, **facts)


def first_round(searching: Search, topology: Topology, now: float = 0.0) -> list[int]:
    """Return the members that the search dials in its first round; all of them refuse."""
    order = list[int]()
    while not (isinstance(decision := searching.next(now, topology), BackOff) and decision.round == 1):
        if isinstance(decision, Dial):
            order.append(E.index(decision.endpoint))
            searching.attempt_ended(decision.attempt, now, REFUSED)
        elif isinstance(decision, Wait):
            assert decision.until is not None
            now = decision.until
    return order


def dialled(factory: Factory) -> list[int]:
    """Return the dialled members, by their position in ``E``."""
    return [E.index(where) for _, where in factory.dials()]


def verdict(factory: Factory) -> GiveUp:
    """Return the verdict of the only search."""
    (end,) = factory.of_type(GiveUp)
    return end
