"""What the connections of one factory share: the topology, the dials, and who leads the search.

One of them finds the primary, the others follow (DESIGN section 4, rule 8).  The topology itself
is immutable and its update is pure (``discovery.topology``); this class holds the current one and
wakes the searches that a change concerns.

A thousand connections may wait here at once, so waking is frugal: everybody only when the answer
to "who is primary?" changes, otherwise one search for a freed dial or a freed lead.  For the same
reason nobody leads while a primary is known, but a search whose own dial to it hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.url import ClusterURL, second_site
from haclient.discovery.evidence import Evidence, Resolved
from haclient.discovery.topology import Topology, update
from haclient.resolver.resolve import ResolutionError, Resolver
from haclient.retry.policy import Policy


@dataclass(slots=True, eq=False)
class Seat:
    """The place of one search at the table.

    :ivar dials: its attempts in flight; ``dialled_at``: when the last one began.
    :ivar queued: waits for a free dial.
    :ivar idle: has nothing to do until it may lead.
    """

    wake: Callable[[], None]
    dials: int = 0
    dialled_at: float = 0.0
    queued: bool = False
    idle: bool = False


class Cluster:
    """The shared view.  Belongs to one event loop."""

    def __init__(self, url: ClusterURL, policy: Policy, resolver: Resolver) -> None:
        self.policy = policy
        self.resolver = resolver
        self.topology = Topology(
            seeds=tuple(seed.endpoint for seed in url.seeds),
            pushed_members=policy.pushed_members,
            dr=second_site(policy.dr, tls=url.seeds[0].endpoint.tls),
        )
        self._srv = url.srv
        self._seats: dict[Seat, None] = {}
        self._leader: Seat | None = None
        self._dials = 0
        self._waiting: deque[Seat] = deque()
        self._resolving: dict[Endpoint, asyncio.Task[None]] = {}

    # -- searches -----------------------------------------------------------------------------

    def join(self, seat: Seat) -> None:
        """A search begins."""
        self._seats[seat] = None

    def leave(self, seat: Seat) -> None:
        """A search ended: its lead and its dials are free."""
        self._seats.pop(seat, None)
        while seat.dials:
            self.release(seat)
        if self._leader is seat:
            self._leader = None
            successor = next((other for other in self._seats if other.idle), None)
            if successor is not None:
                successor.wake()

    def may_lead(self, seat: Seat, now: float) -> bool:
        """Whether this search may walk the list."""
        if self._leader is not None:
            return self._leader is seat
        hangs = seat.dials > 0 and now - seat.dialled_at >= self.policy.stagger
        return self.topology.primary is None or hangs

    def lead(self, seat: Seat) -> None:
        """This search walks the list from now on, until it leaves."""
        self._leader = seat

    # -- dials --------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Dials still free in the factory."""
        return self.policy.max_dials - self._dials

    def take(self, seat: Seat, now: float) -> None:
        """A search begins to dial."""
        seat.dials += 1
        seat.dialled_at = now
        self._dials += 1

    def release(self, seat: Seat) -> None:
        """An attempt is over, or parked."""
        seat.dials -= 1
        self._dials -= 1
        self.pass_on()

    def wait_for_room(self, seat: Seat) -> None:
        """Wake this search when a dial is free."""
        if not seat.queued:
            seat.queued = True
            self._waiting.append(seat)

    def pass_on(self) -> None:
        """Offer a free dial to the search that has waited longest."""
        while self._waiting and self.room > 0:
            seat = self._waiting.popleft()
            seat.queued = False
            if seat in self._seats:
                seat.wake()
                return

    # -- evidence -----------------------------------------------------------------------------

    def learn(self, evidence: Evidence) -> None:
        """Take evidence in, and wake the searches that it concerns."""
        before, after = self.topology, update(self.topology, evidence)
        self.topology = after
        if (before.primary, before.epoch) != (after.primary, after.epoch):
            self._wake_all()
        elif self._leader is not None and before is not after:
            self._leader.wake()

    @property
    def resolving(self) -> bool:
        """Whether names are being looked up."""
        return bool(self._resolving)

    def resolve(self, failed: Callable[[Endpoint, str], None]) -> None:
        """Look up every name anew; a lookup that is under way goes on.

        :param failed: told which name has no address, and why.
        """
        for name in self.topology.names():
            if name not in self._resolving:
                self._resolving[name] = asyncio.get_running_loop().create_task(
                    self._resolve(name, failed), name=f"haclient resolve {name.host}"
                )

    async def close(self) -> None:
        """End the lookups."""
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
            if self._leader is not None:
                self._leader.wake()

    def _wake_all(self) -> None:
        for seat in tuple(self._seats):
            seat.wake()


async def _cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
