"""State shared by the connections of one factory: the topology, the dials, and the owner of the search.

One connection finds the primary and the others follow (docs/internals/discovery.md, rule 8).  The topology is
immutable and its update is pure (``discovery.topology``).  ``Cluster`` holds the current topology and wakes
the searches that a change concerns.

A thousand connections may wait here at once, so ``Cluster`` wakes few of them.  It wakes all of them only
when the known primary changes; otherwise it wakes one search for a free dial or a free ownership.  For the
same reason no search becomes the owner while a primary is known, unless its own dial to that primary hangs.

A free dial is reserved for the search that is woken for it.  Searches without an attempt so far go first, and
so do searches with a member's reservation.  On a busy machine attempts time out, and repeated attempts would
leave them no dial.  The search owner goes before all: every search waits for its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from haclient import events
from haclient.cluster_url.domain import is_literal
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import Options
from haclient.cluster_url.url import ClusterURL, second_site
from haclient.core.attempt import ParamsProvider
from haclient.discovery.evidence import Claimed, Evidence, OnlyStaleServed, Resolved
from haclient.discovery.polling.dial_times import DialTimes
from haclient.discovery.polling.setup_answers import SetupAnswers
from haclient.discovery.refusals import Refusals
from haclient.discovery.stale_primaries import StalePrimaries
from haclient.discovery.topology import Topology, update
from haclient.resolver.resolve import ResolutionError, Resolver
from haclient.retry.backoff import FixedDelays
from haclient.retry.policy import Policy

# Limit of the refused members to report: no peer can make a client grow without bound.
_MAX_REPORTED = 64


@dataclass(slots=True, eq=False)
class PendingSearch:
    """The state of one running search, as the cluster sees it.

    :ivar wake: called when the search may have something to do.
    :ivar dials: number of its pending attempts; ``dialled_at``: when the last one began.
    :ivar dialled: it has made an attempt since the last one that ended with a reservation.
    :ivar queued: it waits for a free dial; ``offered``: a dial is reserved for it.
    :ivar idle: it has nothing to do until it may own the search.
    """

    wake: Callable[[], None]
    dials: int = 0
    dialled_at: float = 0.0
    dialled: bool = False
    queued: bool = False
    offered: bool = False
    idle: bool = False


class Cluster:
    """The shared state of one factory's connections.  Belongs to one event loop.

    :param credentials: whether attempts at endpoints that the URL does not list send credentials.
    :param answers: the setup answers shared by all factories of the process.
    """

    def __init__(
        self,
        url: ClusterURL,
        policy: Policy,
        resolver: Resolver,
        *,
        credentials: bool,
        answers: SetupAnswers | None = None,
    ) -> None:
        self.policy = policy
        self.resolver = resolver
        self.topology = Topology(
            seeds=tuple(seed.endpoint for seed in url.seeds),
            pushed_members=policy.pushed_members,
            only_trusted=credentials and policy.redirects != "any",
            redirects=policy.redirects,
            dr=second_site(policy.dr, tls=url.seeds[0].endpoint.tls),
        )
        self.refusals = Refusals()
        self.dial_times = DialTimes(self._wake_all)
        self.answers = SetupAnswers() if answers is None else answers
        self.stale_primaries = StalePrimaries(policy)
        self._srv = url.srv
        self._searches: dict[PendingSearch, None] = {}
        self._search_owner: PendingSearch | None = None
        self._dials = 0
        self._offered = 0
        # Searches without an attempt so far, and the other searches.
        self._waiting: tuple[deque[PendingSearch], deque[PendingSearch]] = (deque(), deque())
        self._resolving: dict[Endpoint, asyncio.Task[None]] = {}
        self._refused: set[Endpoint] = set()

    # -- searches -----------------------------------------------------------------------------

    def join(self, search: PendingSearch) -> None:
        """Add a search that begins."""
        self._searches[search] = None

    def leave(self, search: PendingSearch) -> None:
        """Remove a search that ended, and free its ownership and its dials."""
        self._searches.pop(search, None)
        if not self._searches:
            self.refusals.reset()
        self.wake_next(search)
        while search.dials:
            self.release_dial(search)
        if self._search_owner is search:
            self._search_owner = None
            successor = next((other for other in self._searches if other.idle), None)
            if successor is not None:
                successor.wake()

    def may_own_search(self, search: PendingSearch, now: float) -> bool:
        """Return whether this search may go through the list of candidates."""
        if self._search_owner is not None:
            return self._search_owner is search
        hangs = search.dials > 0 and now - search.dialled_at >= self.policy.stagger
        return self.topology.primary is None or hangs

    def own_search(self, search: PendingSearch) -> None:
        """Make this search the owner, until it leaves."""
        self._search_owner = search

    # -- dials --------------------------------------------------------------------------------

    @property
    def free_dials(self) -> int:
        """Number of further attempts that the factory allows now, without the reserved dials."""
        return self.policy.max_dials - self._dials - self._offered

    def free_for(self, search: PendingSearch) -> int:
        """Return the number of attempts that this search may begin now."""
        if search is self._search_owner:
            return self.policy.max_dials - self._dials
        return self.free_dials + search.offered

    def take_dial(self, search: PendingSearch, now: float) -> None:
        """Count an attempt that a search begins."""
        self._withdraw_offer(search)
        search.dials += 1
        search.dialled_at = now
        search.dialled = True
        self._dials += 1

    def release_dial(self, search: PendingSearch) -> None:
        """Free the dial of an attempt that ended or is parked."""
        search.dials -= 1
        self._dials -= 1
        self._offer_dials()

    def wait_for_dial(self, search: PendingSearch) -> None:
        """Queue this search for a free dial; in front if the owner took the dial reserved for it."""
        lost_to_owner = self._withdraw_offer(search)
        if search.queued:
            return
        search.queued = True
        queue = self._waiting[search.dialled]
        if lost_to_owner:
            queue.appendleft(search)
        else:
            queue.append(search)

    def wake_next(self, search: PendingSearch) -> None:
        """Offer the dial reserved for this search, which does not need it, to the next search."""
        if self._withdraw_offer(search):
            self._offer_dials()

    def _withdraw_offer(self, search: PendingSearch) -> bool:
        offered, search.offered = search.offered, False
        self._offered -= offered
        return offered

    def _offer_dials(self) -> None:
        """Reserve each free dial for the next search in the queue."""
        while self.free_dials > 0 and (search := self._pop_waiting()) is not None:
            search.queued = False
            if search in self._searches:
                search.offered = True
                self._offered += 1
                search.wake()

    def _pop_waiting(self) -> PendingSearch | None:
        """Remove and return the next search to get a dial, if any.

        The owner comes first, then searches without an attempt so far, then the longest waiting one.
        """
        owner, (new, others) = self._search_owner, self._waiting
        if owner is not None and owner.queued:
            (new if owner in new else others).remove(owner)
            return owner
        while new:
            search = new.popleft()
            if not search.dialled:
                return search
            others.append(search)  # as the owner it dialled without waiting
        return others.popleft() if others else None

    # -- evidence -----------------------------------------------------------------------------

    def learn(self, evidence: Evidence) -> None:
        """Update the topology with evidence, and wake the searches that it concerns."""
        before, after = self.topology, update(self.topology, evidence)
        self.topology = after
        if isinstance(evidence, Claimed) and before is not after:
            self.stale_primaries.accepted(evidence)
        if (before.primary, before.version) != (after.primary, after.version):
            self._wake_all()
        elif self._search_owner is not None and before is not after:
            self._search_owner.wake()

    def stale_served(self, now: float) -> bool:
        """Record that a stale primary has served.

        :returns: whether the topology therefore forgot the known generations (``stale_primaries``).
        """
        forget = self.stale_primaries.served(now)
        if forget:
            self.learn(OnlyStaleServed(self.topology.version))
        return forget

    def newly_refused(self, announced: Iterable[Endpoint]) -> list[Endpoint]:
        """Return the announced members that the topology refuses and that were not reported yet."""
        topology = self.topology
        # An address may belong to a listed name whose lookup still runs: wait for the next Open to repeat it.
        unknown = any(not (is_literal(e.host) or topology.addresses(e)) for e in topology.listed)
        found = [
            endpoint
            for endpoint in dict.fromkeys(topology.refused_members(announced))
            if endpoint not in self._refused and not (unknown and is_literal(endpoint.host))
        ][: _MAX_REPORTED - len(self._refused)]
        self._refused.update(found)
        return found

    @property
    def resolving(self) -> bool:
        """Return whether name lookups are running."""
        return bool(self._resolving)

    def resolve(self, failed: Callable[[Endpoint, str], None]) -> None:
        """Start a lookup of every name, except names whose lookup is running.

        :param failed: called with a name that has no address, and the reason.
        """
        for name in self.topology.names():
            if name not in self._resolving:
                self._resolving[name] = asyncio.get_running_loop().create_task(
                    self._resolve(name, failed), name=f"haclient resolve {name.host}"
                )

    async def close(self) -> None:
        """Cancel the lookups and close the resolver."""
        tasks = list(self._resolving.values())
        await _cancel_all(tasks)
        await self.resolver.close()

    async def _resolve(self, name: Endpoint, failed: Callable[[Endpoint, str], None]) -> None:
        try:
            srv = self._srv and name in self.topology.seeds
            endpoints = await self.resolver.resolve(name, srv=srv)
        except ResolutionError as error:
            failed(name, str(error))
        else:
            self.learn(Resolved(name, endpoints))
        finally:
            del self._resolving[name]
            if self._search_owner is not None:
                self._search_owner.wake()

    def _wake_all(self) -> None:
        for search in sorted(self._searches, key=lambda each: each.dialled):
            search.wake()


async def _cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Facts and services that a factory shares with each of its connections.

    :param params_provider: returns the parameters to connect to an endpoint.
    :param publish: receives the events.
    :param name_prefix: prefix of link names that the application does not choose.
    :param credentials: whether attempts at endpoints that the URL does not list send credentials.
    :param fixed_delays: delays of the drop-in, instead of those in ``options``.
    """

    options: Options
    cluster: Cluster
    params_provider: ParamsProvider
    publish: Callable[[int, events.Event], None]
    client_id: str
    name_prefix: str
    credentials: bool
    rng: random.Random
    fixed_delays: FixedDelays | None = None
