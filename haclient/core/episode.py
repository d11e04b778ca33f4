"""Drives one search, from the start or a loss until a session is usable or the search gives up.

The search decides (``discovery.search``, pure).  ``Episode`` executes its decisions, feeds it the results,
and reports both as events.  It owns the attempts: when ``run`` returns or is cancelled, every attempt except
the adopted one has ended.

A parked attempt frees its dial at once and claims no generation: the one in its Open may be outdated when the
peer answers the Begin.  Its links are attached while it is parked, and the peer answers them together with
the Begin.  So ``Episode`` adopts it in the call that reports the Begin, before the answers reach the links.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from haclient import errors
from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.core import failures
from haclient.core.attempt import Attempt, AttemptCallbacks, ParamsProvider
from haclient.core.cluster import Cluster, PendingSearch
from haclient.discovery import decision as decide
from haclient.discovery.evidence import (
    AttemptEnded,
    AttemptRecord,
    Claimed,
    Failure,
    FailureReason,
    Pushed,
)
from haclient.discovery.pending_attempts import Claim
from haclient.discovery.refusals import condition_of
from haclient.discovery.search import Search
from haclient.discovery.topology import SELF_INFLICTED
from haclient.errors import ConnectionGaveUp
from haclient.retry.fleet import FleetSize, announced_fleet

# No member can serve in a generation from 2^23 on: it numbers messages with its generation above 40 bits of
# sequence, in the 63 bits of its store (``broker_stub.queueing.message``).
_GENERATIONS = 2**23


class Observer(Protocol):
    """Interface for the reports of an episode.  Calls must not block or raise."""

    def attempt_started(self, number: int, endpoint: Endpoint) -> None:
        """Report a dial."""

    def attempt_failed(self, record: AttemptRecord) -> None:
        """Report an attempt that failed."""

    def attempt_parked(self, number: int, endpoint: Endpoint) -> None:
        """Report an attempt that a member parks until it serves."""

    def redirected(self, record: AttemptRecord) -> None:
        """Report that a passive member redirected to another endpoint."""

    def member_refused(self, by: Endpoint, member: Endpoint) -> None:
        """Report that ``by`` announced a member that must not be given the credentials."""

    def backing_off(self, decision: decide.BackOff) -> None:
        """Report the wait before the next round: no member served."""

    def unresolved(self, name: Endpoint, reason: str) -> None:
        """Report that a name has no address to dial."""

    def generations_forgotten(
        self, endpoint: Endpoint, generation: int | None, cluster: str | None, highest: int | None
    ) -> None:
        """Report that this stale primary may serve: for a long time only stale primaries have answered."""


class Owner(Protocol):
    """Interface of the connection that adopts the session.  Belongs to the same event loop."""

    def attach_ahead(self, attempt: Attempt) -> None:
        """Attach links over an attempt that a member parks; the member parks them, too."""

    def adopt(self, attempt: Attempt) -> None:
        """Take over the attempt whose session is usable."""


class GaveUpError(Exception):
    """The search ended without a session."""

    def __init__(self, verdict: decide.GiveUp) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


class Episode:
    """One search under way."""

    def __init__(
        self,
        cluster: Cluster,
        search: Search,
        params_provider: ParamsProvider,
        observer: Observer,
        owner: Owner,
    ) -> None:
        self.search = search
        self._cluster = cluster
        self._params_provider = params_provider
        self._observer = observer
        self._owner = owner
        self._running = False
        self._adopted: Attempt | None = None
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._pending = PendingSearch(self._woken.set)
        self._attempts: dict[int, Attempt] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._topology_versions: dict[int, int] = {}
        self._parked: set[int] = set()
        self._ended: list[int] = []
        self._callbacks = AttemptCallbacks(
            self._tcp_connected,
            self._opened,
            self._attempt_parked,
            self._usable,
            self._failed,
            self._dialling,
            self._answered,
        )

    def resume(self, attempt: Attempt) -> None:
        """Add an attempt that is parked already, and may be usable by now."""
        number = self.search.resume(attempt.endpoint, self._loop.time())
        self._observer.attempt_started(number, attempt.endpoint)
        self._attempts[number] = attempt
        self._topology_versions[number] = self._cluster.topology.version
        self._parked.add(number)
        attempt.hand_over(number, self._callbacks)
        if attempt.session is not None:
            self._usable(number)
        else:
            self._owner.attach_ahead(attempt)

    async def run(self) -> Attempt:
        """Search until a session is usable.

        :returns: the attempt that was adopted.
        :raises GaveUpError: if the search gives up.
        """
        self._cluster.join(self._pending)
        self._running = True
        try:
            while True:
                decision = self._advance()
                if self._adopted is not None:
                    return self._adopted
                if isinstance(decision, decide.GiveUp):
                    raise GaveUpError(decision)
                assert isinstance(decision, decide.Wait)
                await self._wait(decision)
        finally:
            self._running = False
            self._cluster.leave(self._pending)
            for attempt in self._attempts.values():
                attempt.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- decisions ----------------------------------------------------------------------------

    def _advance(self) -> decide.Decision:
        """Execute decisions up to one that waits or ends the search, and return that one."""
        while True:
            decision = self._next()
            self._report_ended()
            match decision:
                case decide.Wait() | decide.GiveUp():
                    return decision
                case decide.Found():
                    if self._adopted is None:
                        self._found(decision)
                    return decision
                case _:
                    self._execute(decision)

    def _next(self) -> decide.Decision:
        self._woken.clear()
        now = self._loop.time()
        owns_search = self._cluster.may_own_search(self._pending, now)
        self._pending.idle = not owns_search
        return self.search.next(
            now,
            self._cluster.topology,
            search_owner=owns_search,
            free_dials=self._cluster.free_for(self._pending),
            resolving=self._cluster.resolving,
        )

    def _execute(self, decision: decide.Decision) -> None:
        match decision:
            case decide.StartRound():
                self._cluster.own_search(self._pending)
                self._cluster.resolve(self._observer.unresolved)
            case decide.Dial():
                self._dial(decision)
            case decide.Abandon():
                self._abandon(decision)
            case decide.BackOff():
                self._observer.backing_off(decision)

    def _dial(self, decision: decide.Dial) -> None:
        self._cluster.take_dial(self._pending, self._loop.time())
        self._topology_versions[decision.attempt] = self._cluster.topology.version
        self.search.syn_sent(decision.attempt, math.inf)
        self._observer.attempt_started(decision.attempt, decision.endpoint)
        attempt = Attempt(
            decision.attempt,
            decision.endpoint,
            self._params_provider,
            self._cluster.resolver,
            self._callbacks,
            park=self.search.may_park and not self._pending.idle,
        )
        task = self._loop.create_task(attempt.run(), name=f"haclient attempt {decision.endpoint}")
        task.add_done_callback(lambda _: self._tasks.pop(decision.attempt))
        self._attempts[decision.attempt], self._tasks[decision.attempt] = attempt, task

    def _abandon(self, decision: decide.Abandon) -> None:
        attempt = self._attempts[decision.attempt]
        if decision.kind is FailureReason.STALE_PRIMARY:
            self._note_stale(attempt.endpoint, _announced(attempt))
        attempt.cancel()
        if decision.attempt in self._tasks:
            self._tasks[decision.attempt].cancel()
        self._attempt_ended(decision.attempt, attempt.endpoint, decision.failure)

    def _note_stale(self, endpoint: Endpoint, announced: Claim) -> None:
        highest = self._cluster.topology.highest(announced.cluster, proven=announced.proven)
        if self._cluster.stale_served(self._loop.time()):
            self._observer.generations_forgotten(endpoint, announced.generation, announced.cluster, highest)

    def _found(self, decision: decide.Found) -> None:
        self._adopted = attempt = self._attempts.pop(decision.attempt)
        try:
            announced, version = _announced(attempt), self._cluster.topology.version
            self._cluster.learn(
                Claimed(
                    attempt.endpoint,
                    announced.generation,
                    announced.cluster,
                    version,
                    fleet=_announced_fleet(attempt),
                    proven=announced.proven,
                )
            )
            self._owner.adopt(attempt)
        except BaseException:
            attempt.cancel()
            raise

    async def _wait(self, decision: decide.Wait) -> None:
        if decision.for_dial:
            self._cluster.wait_for_dial(self._pending)
        else:
            self._cluster.wake_next(self._pending)
        if decision.until is None:
            await self._woken.wait()
            return
        try:
            async with asyncio.timeout_at(decision.until):
                await self._woken.wait()
        except TimeoutError:
            return

    # -- reports of attempts ------------------------------------------------------------------

    def _dialling(self, number: int) -> None:
        self.search.syn_sent(number, self._loop.time())
        self._woken.set()

    def _tcp_connected(self, number: int) -> None:
        self.search.tcp_connected(number, self._loop.time())

    def _opened(self, number: int) -> None:
        """Learn the members that the peer's Open lists, whatever the role of the peer."""
        attempt = self._attempts[number]
        members = pushed_members(attempt)
        if members:
            self._cluster.learn(Pushed(members, self._topology_versions[number]))
            for member in self._cluster.newly_refused(members):
                self._observer.member_refused(attempt.endpoint, member)

    def _answered(self, number: int) -> None:
        attempt = self._attempts[number]
        self._cluster.answers.note(attempt.endpoint, attempt.dialled_at, self._loop.time())

    def _attempt_parked(self, number: int) -> None:
        self.search.parked(number, self._loop.time())
        attempt = self._attempts[number]
        self._parked.add(number)
        self._cluster.release_dial(self._pending)
        self._observer.attempt_parked(number, attempt.endpoint)
        if len(self._parked) == 1:  # the search abandons a second one; a link is attached at one member only
            self._owner.attach_ahead(attempt)
        self._woken.set()

    def _usable(self, number: int) -> None:
        attempt = self._attempts[number]
        self._answered(number)
        self.search.usable(number, self._loop.time(), _announced(attempt))
        if attempt.parked and self._running:
            self._advance()
        self._woken.set()

    def _failed(self, number: int, failure: Failure) -> None:
        attempt = self._attempts.get(number)
        if attempt is None:  # it broke just after its adoption: the owner handles that
            return
        failure = self.search.attempt_ended(number, self._loop.time(), failure)
        if failure.is_reservation:  # the member reserved a time for the next attempt
            self._pending.dialled = False
        self._attempt_ended(number, attempt.endpoint, failure)
        self._woken.set()

    def _attempt_ended(self, number: int, endpoint: Endpoint, failure: Failure) -> None:
        self._ended.append(number)
        self._cluster.learn(AttemptEnded(endpoint, failure, self._topology_versions[number]))
        if number in self._parked:
            self._parked.remove(number)
        else:
            self._cluster.release_dial(self._pending)
        del self._attempts[number]

    def _report_ended(self) -> None:
        ended, self._ended = self._ended, []
        for number in ended:
            record = self.search.record(number)
            if record is None:
                continue
            if record.failure.redirect is not None:
                self._observer.redirected(record)
            if record.failure.kind is not FailureReason.REDIRECTED:
                self._observer.attempt_failed(record)


def give_up_error(verdict: decide.GiveUp, now: float) -> ConnectionGaveUp:
    """Return the error for the application, with the reason and time of giving up."""
    error = _error_of(verdict)
    error.gave_up_at = now
    error.condition = condition_of(verdict.reason)
    return error


def _error_of(verdict: decide.GiveUp) -> ConnectionGaveUp:
    reason, attempts = verdict.reason, verdict.attempts
    if reason is decide.GiveUpReason.AUTHENTICATION:
        refused = [record for record in attempts if record.failure.kind is FailureReason.AUTHENTICATION]
        record = refused[-1] if refused else None
        mechanism = record.failure.mechanism if record else None
        text = f"authentication failed{_at(record, verdict)}"
        error: ConnectionGaveUp = errors.AuthenticationFailed(
            text, attempts, mechanism, record.endpoint if record else None
        )
        return _with_code(error, (record,) if record else ())
    if reason is decide.GiveUpReason.TLS_VERIFICATION:
        return errors.TLSVerificationFailed(f"the certificate was not accepted: {verdict.detail}", attempts)
    if reason is decide.GiveUpReason.DEADLINE:
        error = errors.DeadlineExceeded(f"no primary was found in time: {verdict.detail}", attempts)
    elif reason is decide.GiveUpReason.NOT_ALLOWED:
        error = errors.ConnectionNotAllowed(f"the connection is not allowed: {verdict.detail}", attempts)
    else:
        error = ConnectionGaveUp(f"no primary was found: {verdict.detail}", attempts)
    return _with_code(error, {record.endpoint: record for record in _of_members(attempts)}.values())


def last_failure(attempts: Sequence[AttemptRecord]) -> Failure | None:
    """Return why the last attempt failed that the client did not end itself, if there is one."""
    said = _of_members(attempts) or attempts
    return said[-1].failure if said else None


def _of_members(attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    return [record for record in attempts if record.failure.kind not in SELF_INFLICTED]


def _at(record: AttemptRecord | None, verdict: decide.GiveUp) -> str:
    """Describe the endpoint of the refusal and its reason."""
    if record is None:
        return f": {verdict.detail}"
    failure = record.failure
    if failure.mechanism is None:
        return f" at {record.endpoint}: {failure.detail}"
    by_close = failure.exact_code == failures.REFUSED_BY_CLOSE
    because = "it refuses this user" if by_close else "it does not accept the user and the password"
    if failure.exact_code == failures.TOKEN_REFUSED:
        because = "it does not accept the token"
    text = f" at {record.endpoint} ({failure.mechanism}): {_REFUSALS.get(failure.mechanism, because)}"
    return f"{text}: {failure.detail}" if by_close else text


# Reason of a refusal, for mechanisms without a password.
_REFUSALS = {
    "ANONYMOUS": "it requires a user and a password",
    "EXTERNAL": "it does not accept the certificate of this client",
}


def _with_code(error: ConnectionGaveUp, last: Collection[AttemptRecord]) -> ConnectionGaveUp:
    """Set the more exact code on the error if the last attempts at all endpoints share one."""
    codes = {record.failure.exact_code for record in last}
    if len(codes) == 1 and (code := codes.pop()):
        error.code = code
    return error


def _announced(attempt: Attempt) -> Claim:
    """Return the claim in the peer's Open; without a generation if parked, since that may be outdated."""
    if attempt.engine is None or attempt.parked:
        return Claim(proven=attempt.proven)
    properties = attempt.engine.peer_properties
    return Claim(generation_of(properties), cluster_of(properties), attempt.proven)


def _announced_fleet(attempt: Attempt) -> FleetSize | None:
    """Return the fleet size that the peer's Open announces; ``None`` if parked: it was no primary then."""
    if attempt.engine is None or attempt.parked:
        return None
    return announced_fleet(attempt.engine.peer_properties)


def generation_of(properties: Mapping[str, Any]) -> int | None:
    """Return the generation in the properties of an Open or Attach; ``None`` if missing or impossible."""
    generation = properties.get("haclient:generation")
    if not isinstance(generation, int) or isinstance(generation, bool):
        return None
    return int(generation) if 0 <= generation < _GENERATIONS else None


def cluster_of(properties: Mapping[str, Any]) -> str | None:
    """Return the cluster id in the properties of an Open or an Attach."""
    cluster = properties.get("haclient:cluster")
    return None if cluster is None else str(cluster)


def pushed_members(attempt: Attempt) -> tuple[Endpoint, ...]:
    """Return the ``failover-server-list`` of the peer's Open: a list of maps, as in Qpid JMS."""
    if attempt.engine is None:
        return ()
    listed = attempt.engine.peer_properties.get("failover-server-list")
    if not isinstance(listed, list):
        return ()
    found = (_member(entry, attempt.endpoint) for entry in listed if isinstance(entry, Mapping))
    return tuple(endpoint for endpoint in found if endpoint is not None)


def _member(entry: Mapping[Any, Any], source: Endpoint) -> Endpoint | None:
    endpoint = failures.redirect_target(entry, source)
    return None if endpoint is None else endpoint.with_origin(Origin.PUSHED)
