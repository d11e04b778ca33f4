"""Probe all members of a cluster at the same time, briefly, for ``haclient members``.

Rules
-----
* Probed are the members in the URL and of its second site, at all addresses from DNS; members that
  another member's Open lists; and targets of redirects, if they may receive credentials.  These are the
  candidates of a search.
* A probe ends with the usable session.  It uses the credentials of a normal connection, and never asks the
  member to park it.  A usable session is closed in order.
* One deadline holds for all.  A member that has not answered by then is described by its last step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.core import episode
from haclient.core.attempt import Attempt, AttemptCallbacks
from haclient.core.cluster import PendingSearch, Shared
from haclient.discovery.evidence import Claimed, Failure, FailureReason, Pushed
from haclient.engine import peer_fields

SOLE_CONNECTION = "sole-connection-for-container"
"""A capability that a broker offers in its Open, and that a client may request (``identity``)."""
# Seconds to wait for the answer to the Close of a usable session.
_PEER_CLOSE_TIMEOUT = 0.25
_FOREIGN = "it would be given the credentials, and the URL does not name it (redirects=any allows it)"
_ANSWERS = frozenset(
    {
        FailureReason.AUTHENTICATION,
        FailureReason.AUTHENTICATION_TEMPORARY,
        FailureReason.CLOSED,
        FailureReason.REDIRECTED,
        FailureReason.REDIRECT_REFUSED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The facts about one endpoint.

    :param reachable: whether it answered in AMQP.
    :param primary: whether it serves, and not as a stale primary.
    :param second_site: whether it belongs to the second site (``dr``).
    :param role: role that it reports.
    :param container: container id of its Open: the identity of the broker, or of its data.
    :param sole_connection: whether it offers to enforce unique connections.
    :param tcp_seconds: from the dial to the TCP connection.
    :param open_seconds: from the dial to its Open.
    :param tls: version of TLS.
    :param mechanism: SASL mechanism.
    :param kind: reason that it is not usable, see ``FailureReason``.
    :param why: the same as a sentence.
    """

    endpoint: Endpoint
    reachable: bool = False
    primary: bool = False
    second_site: bool = False
    role: str | None = None
    generation: int | None = None
    cluster: str | None = None
    container: str | None = None
    sole_connection: bool = False
    product: str | None = None
    version: str | None = None
    tls: str | None = None
    mechanism: str | None = None
    tcp_seconds: float | None = None
    open_seconds: float | None = None
    kind: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class NotAsked:
    """An endpoint that a member named, but that was not probed.

    :param reason: the reason, as a sentence.
    """

    endpoint: Endpoint
    source: Endpoint
    reason: str


class _Probe:
    """One attempt at one endpoint, and its result."""

    def __init__(
        self, number: int, endpoint: Endpoint, shared: Shared, notify: Callable[[_Probe], None]
    ) -> None:
        self.endpoint = endpoint
        self.failure: Failure | None = None
        self.usable = self.finished = self.opened = False
        self.announced: dict[str, object] = {}
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._tcp: float | None = None
        self._open: float | None = None
        self._tls: str | None = None
        self._mechanism: str | None = None
        self._container: str | None = None
        self._sole_connection = False
        reports = AttemptCallbacks(self._connected, self._opened, lambda _: None, self._usable, self._failed)
        self.attempt = Attempt(number, endpoint, shared.params_provider, shared.cluster.resolver, reports)
        self.task = self._loop.create_task(self.attempt.run(), name=f"haclient probe {endpoint}")

    def _connected(self, _: int) -> None:
        self._tcp = self._loop.time() - self._began

    def _opened(self, _: int) -> None:
        engine = self.attempt.engine
        assert engine is not None
        self.opened = True
        self._open = self._loop.time() - self._began
        self._tls, self._mechanism = engine.transport.ssl().protocol_name(), engine.incoming.mechanism
        self.announced = dict(engine.peer_properties)
        self._container = peer_fields.container_id(engine.connection)
        self._sole_connection = SOLE_CONNECTION in peer_fields.offered_capabilities(engine.connection)
        self._notify(self)

    def _usable(self, _: int) -> None:
        assert self.attempt.engine is not None
        self.usable = True
        self.attempt.engine.close()
        self._loop.call_later(_PEER_CLOSE_TIMEOUT, self._finish)

    def _failed(self, _: int, failure: Failure) -> None:
        if not self.usable:
            self.failure = failure
            self._mechanism = failure.mechanism or self._mechanism
        self._finish()

    def _finish(self) -> None:
        if not self.finished:
            self.finished = True
            self._notify(self)

    def give_up(self, seconds: float) -> None:
        """Mark the probe as timed out."""
        if not self.usable:
            self.failure = Failure(
                kind=FailureReason.TIMED_OUT,
                detail=f"{self._silence()} within {seconds:g} s: {self._guess()}",
            )
        self.finished = True

    def _silence(self) -> str:
        engine = self.attempt.engine
        if self._tcp is None:
            return "TCP is not answered"
        if self.opened:
            return "it sent Open, but no answer to the Begin"
        if engine is None or engine.close_reason is not None:
            return "TCP connects, but the TLS handshake is not answered"
        if engine.incoming.mechanism is None:
            return "TCP connects, but the AMQP header is not answered"
        return "SASL has begun, but no Open came"

    def _guess(self) -> str:
        return "is the host down?" if self._tcp is None else "is the process stopped?"

    async def end(self) -> None:
        """Cancel the rest of the attempt."""
        self.attempt.cancel()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def generation(self) -> int | None:
        """The generation that it reported."""
        return episode.generation_of(self.announced)

    @property
    def cluster(self) -> str | None:
        """The cluster id that it reported."""
        return episode.cluster_of(self.announced)

    def finding(self, stale: str | None, *, second_site: bool) -> Finding:
        """Return the collected facts.

        :param stale: reason that a serving member is no primary.
        """
        failure = self.failure
        if stale is not None:
            failure = Failure(kind=FailureReason.STALE_PRIMARY, detail=stale)
        return Finding(
            endpoint=self.endpoint,
            reachable=self.opened or (failure is not None and failure.kind in _ANSWERS),
            primary=stale is None and (self.usable or (failure is not None and failure.is_reservation)),
            second_site=second_site,
            role=_text(self.announced.get("haclient:role")),
            generation=self.generation,
            cluster=self.cluster,
            container=self._container,
            sole_connection=self._sole_connection,
            product=_text(self.announced.get("product")),
            version=_text(self.announced.get("version")),
            tls=self._tls,
            mechanism=self._mechanism,
            tcp_seconds=self._tcp,
            open_seconds=self._open,
            kind=None if failure is None else failure.kind.value,
            why=None if failure is None else failure.detail or failure.condition,
        )


class ClusterProbe:
    """Probes all members of a cluster."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._cluster = shared.cluster
        self._woken = asyncio.Event()
        self._search = PendingSearch(self._woken.set)
        self._probes: dict[Endpoint, _Probe] = {}
        self._asked: set[Endpoint] = set()
        self._unresolved: dict[Endpoint, str] = {}
        self._not_asked: dict[Endpoint, NotAsked] = {}

    @property
    def not_asked(self) -> tuple[NotAsked, ...]:
        """Endpoints that members named, but the redirect policy excluded."""
        return tuple(each for each in self._not_asked.values() if each.endpoint not in self._probes)

    async def run(self, timeout: float) -> tuple[Finding, ...]:
        """Probe all members and return the findings.

        :param timeout: seconds for all of them together.
        """
        self._cluster.join(self._search)
        self._cluster.own_search(self._search)
        try:
            async with asyncio.timeout(timeout):
                await self._until_answered()
        except TimeoutError:
            self._give_up(timeout)
        finally:
            self._cluster.leave(self._search)
            for probe in self._probes.values():  # a late answer would start another probe
                probe.attempt.cancel()
            await asyncio.gather(*(probe.end() for probe in self._probes.values()))
        return self._findings()

    async def _until_answered(self) -> None:
        while True:
            self._woken.clear()
            names = set(self._cluster.topology.names())
            if names - self._asked:
                self._asked |= names
                self._cluster.resolve(self._not_resolved)
            for endpoint in self._cluster.topology.candidates(other_site=True):
                if endpoint not in names:
                    self._ask(endpoint)
            if not self._cluster.resolving and all(probe.finished for probe in self._probes.values()):
                return
            await self._woken.wait()

    def _ask(self, endpoint: Endpoint) -> None:
        if endpoint not in self._probes:
            number = len(self._probes) + 1
            self._probes[endpoint] = _Probe(number, endpoint, self._shared, self._on_change)

    def _not_resolved(self, name: Endpoint, reason: str) -> None:
        self._unresolved[name] = reason

    def _on_change(self, probe: _Probe) -> None:
        topology = self._cluster.topology
        if not probe.finished:
            members = episode.pushed_members(probe.attempt)
            if members:
                for refused in self._cluster.newly_refused(members):
                    self._note_refused(probe.endpoint, refused, _FOREIGN)
                self._cluster.learn(Pushed(members, topology.version))
        elif probe.usable:
            facts = probe.generation, probe.cluster, topology.version
            self._cluster.learn(Claimed(probe.endpoint, *facts, proven=probe.attempt.proven))
        elif probe.failure is not None and probe.failure.redirect is not None:
            self._follow(probe.endpoint, probe.failure.redirect)
        self._woken.set()

    def _follow(self, source: Endpoint, target: Endpoint) -> None:
        topology, policy = self._cluster.topology, self._shared.options.policy()
        refusal = topology.may_follow(source, target, policy, credentials=self._shared.credentials)
        if refusal is not None:
            self._note_refused(source, target, refusal)
        elif not topology.is_member(target):
            self._ask(target)

    def _note_refused(self, source: Endpoint, target: Endpoint, reason: str) -> None:
        self._not_asked.setdefault(target, NotAsked(target, source, reason))

    def _give_up(self, seconds: float) -> None:
        for probe in self._probes.values():
            if not probe.finished:
                probe.give_up(seconds)
        topology = self._cluster.topology
        for name in topology.names():
            if not topology.addresses(name):
                self._unresolved.setdefault(name, f"no address within {seconds:g} s")

    def _findings(self) -> tuple[Finding, ...]:
        names = tuple(
            Finding(endpoint=name, kind=FailureReason.UNRESOLVED.value, why=reason)
            for name, reason in self._unresolved.items()
        )
        probes = (
            probe.finding(
                self._stale(probe), second_site=self._cluster.topology.is_dr(probe.endpoint) is True
            )
            for probe in self._probes.values()
        )
        return (*probes, *names)

    def _stale(self, probe: _Probe) -> str | None:
        topology = self._cluster.topology
        proven = probe.attempt.proven
        if not probe.usable or not topology.is_stale(probe.generation, probe.cluster, proven=proven):
            return None
        highest = topology.highest(probe.cluster, proven=proven)
        return f"serves with generation {probe.generation}, and another member with {highest}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
