"""The warm standby: one parked connection at another member, beside the live one (DESIGN section 6).

While the connection is up, this keeps a second one at a member that is not its primary, with TCP, TLS,
SASL and Open done and the Begin not answered.  When the live one is lost, the next search begins with it;
if that member is promoted, all that is left to do is to answer a Begin.

Rules
-----
1. It carries no links and no messages, and it tells the topology nothing.  Its member is asked for
   nothing but to wait.
2. It holds a dial of the factory only until it is parked, and takes none when there is none free.
3. Tries are apart by the policy's backoff, a hint obeyed as everywhere.  A redirect is not followed: it
   says where the primary is, and the live connection is there.
4. A member that answers without parking is left alone for a long while: it is an ordinary broker, and it
   will not change.  So is one that refuses the credentials, for asking again would lock the account.
5. When the live connection is lost, the standby goes to the search as it is, or not at all.

A parked connection whose Begin is answered while the live one is up stays as it is, usable and unused.
Either the live primary is on its way out and does not know, or its end has not been noticed here yet; then
the usable session saves the whole search.  Or the promotion was wrong: then the member closes, and nothing
was lost.  Going over to it would be a guess, because the live one may be the true primary; using both
would be two primaries at once.  As nothing is sent over it before the live one has ended, there
is always one.  Its generation is not known before the first Attach; ``connection`` drops it when that tells
an older one than the topology knows.
"""

from __future__ import annotations

import asyncio
import random

from haclient.cluster_url.endpoint import Endpoint
from haclient.core.attempt import Attempt, Planner, Reports
from haclient.core.cluster import Cluster, Seat
from haclient.discovery.evidence import Failure, FailureReason
from haclient.retry.backoff import Backoff
from haclient.retry.policy import Policy

_HOPELESS = frozenset({FailureReason.AUTHENTICATION, FailureReason.TLS_VERIFICATION, FailureReason.NOT_AMQP})


class Standby:
    """Keeps the standby of one connection.  Belongs to its event loop.

    :param rng: the random source of its backoff.
    """

    def __init__(self, cluster: Cluster, policy: Policy, planner: Planner, rng: random.Random) -> None:
        self._cluster = cluster
        self._policy = policy
        self._planner = planner
        self._rng = rng
        self._backoff = Backoff(policy, rng)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._shunned: dict[Endpoint, float] = {}
        self._tried: Endpoint | None = None
        self._try: _Try | None = None

    def start(self, primary: Endpoint) -> None:
        """The connection is up, there."""
        if self._policy.standby == "warm":
            self._task = self._loop.create_task(
                self._keep(primary), name=f"haclient standby beside {primary}"
            )

    async def stop(self) -> Attempt | None:
        """The connection is lost: the parked attempt, if there is one; it is the caller's from now on."""
        held = self._try
        if held is None or not held.is_held:
            await self.close()
            return None
        held.given_away = True
        try:
            await self.close()
        except asyncio.CancelledError:
            held.attempt.cancel()
            raise
        return held.attempt if held.is_held else None

    async def close(self) -> None:
        """End it, wherever it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _keep(self, primary: Endpoint) -> None:
        hint: float | None = None
        while True:
            await asyncio.sleep(self._backoff.next(hint).delay)
            hint = None
            member = self._next(primary)
            if member is None:  # members come and go: look again now and then
                await asyncio.sleep(self._policy.backoff_max)
            elif self._cluster.room > 0:
                hint = await self._park_at(member)

    def _next(self, primary: Endpoint) -> Endpoint | None:
        """The candidate whose turn it is: they are tried one after the other."""
        now = self._loop.time()
        others = [each for each in self._cluster.topology.candidates() if each != primary]
        if self._tried in others:
            turn = others.index(self._tried) + 1
            others = others[turn:] + others[:turn]
        return next((each for each in others if self._shunned.get(each, now) <= now), None)

    async def _park_at(self, member: Endpoint) -> float | None:
        """One try, to its end.  Returns the hint that it ended with."""
        self._tried = member
        self._try = mine = _Try(self._cluster, self._planner, member)
        try:
            await self._dial(mine)
            if mine.is_held:
                await self._hold(mine)
        finally:
            self._try = None
            if not mine.given_away:
                mine.attempt.cancel()
        if mine.is_hopeless:
            self._shun(member)
        return None if mine.miss is None else mine.miss.retry_after

    async def _dial(self, mine: _Try) -> None:
        seat = Seat(lambda: None)
        self._cluster.take(seat, self._loop.time())
        try:
            async with asyncio.timeout(self._policy.attempt_timeout):
                await mine.attempt.run()
                await mine.settled.wait()
        except TimeoutError:
            return
        finally:
            self._cluster.release(seat)

    async def _hold(self, mine: _Try) -> None:
        since = self._loop.time()
        await mine.over.wait()
        if self._loop.time() - since >= self._policy.stable_after:
            self._backoff.reset()

    def _shun(self, member: Endpoint) -> None:
        long = max(self._policy.backoff_max, self._policy.park_timeout)
        # Spread: all clients of an ordinary broker would otherwise ask it in the same moment.
        self._shunned[member] = self._loop.time() + self._rng.uniform(long, 2 * long)


class _Try:
    """One attempt of the standby, and what came of it.

    :ivar settled: it is parked, or over; ``over``: it has ended.
    :ivar given_away: it belongs to the search.
    """

    def __init__(self, cluster: Cluster, planner: Planner, member: Endpoint) -> None:
        reports = Reports(self._ignore, self._opened, self._parked, self._usable, self._missed)
        self.attempt = Attempt(0, member, planner, cluster.resolver, reports, park=True)
        self.settled = asyncio.Event()
        self.over = asyncio.Event()
        self.miss: Failure | None = None
        self.given_away = False
        self._answered = False

    @property
    def is_held(self) -> bool:
        """Whether the member parks it now, or has let it in meanwhile."""
        return self.attempt.parked and not self.over.is_set()

    @property
    def is_hopeless(self) -> bool:
        """Whether asking again soon would bring the same answer."""
        refused = self.miss is not None and self.miss.kind in _HOPELESS
        return refused or (self._answered and not self.attempt.parked)

    def _ignore(self, _number: int) -> None:
        """That TCP stands is nothing yet."""

    def _opened(self, _number: int) -> None:
        self._answered = True

    def _parked(self, _number: int) -> None:
        self.settled.set()

    def _usable(self, _number: int) -> None:
        if not self.attempt.parked:
            self._end()

    def _missed(self, _number: int, miss: Failure) -> None:
        self.miss = miss
        self._end()

    def _end(self) -> None:
        self.settled.set()
        self.over.set()
