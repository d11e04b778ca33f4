"""The warm standby: one parked connection at another member, beside the live one (docs/storms.md).

While the connection is up, this keeps a second one at a member that is not its primary.  TCP, TLS, SASL and
Open are done, and the Begin is not answered.  When the live one is lost, the next search begins with it.  If
that member is promoted, it only has to answer the Begin.

Rules
-----
1. The standby has no links and no messages, and gives the topology no evidence.  It asks its member only to
   park the connection.
2. It uses a dial of the factory only until it is parked, and starts no attempt if no dial is free.
3. The policy's backoff separates its attempts, and ``retry-after`` counts as everywhere.  It follows no
   redirect: a redirect names the primary, and the live connection is there.
4. If a member answers without parking, the standby avoids it for a long time: it is an ordinary broker.  It
   also avoids a member that refuses the credentials: repeated attempts could lock the account.
5. It is replaced when its token expires.
6. When the live connection is lost, the standby goes to the search as it is, or not at all.

The Begin of the standby may be answered while the live connection is up.  The standby then stays as it is,
usable and unused.  There are two possible reasons:

* The live primary is about to end, or this client has not noticed its end yet.  The usable session then saves
  the whole search.
* The promotion was wrong.  The member then closes the standby, and nothing is lost.

Moving to the standby would be a guess, because the live primary may be the true one.  Using both would mean
two primaries at once.  So the client sends nothing over the standby before the live connection has ended.

The standby's generation is unknown before the first Attach.  If that reports a generation older than the
topology knows, ``connection`` drops the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time

from haclient.cluster_url.endpoint import Endpoint
from haclient.core.attempt import Attempt, AttemptCallbacks, ParamsProvider
from haclient.core.cluster import Cluster, PendingSearch
from haclient.discovery.evidence import Failure, FailureReason
from haclient.retry.backoff import Backoff
from haclient.retry.policy import Policy

_HOPELESS = frozenset({FailureReason.AUTHENTICATION, FailureReason.TLS_VERIFICATION, FailureReason.NOT_AMQP})


class Standby:
    """Maintains the standby of one connection.  Belongs to its event loop.

    :param rng: the random source of its backoff.
    """

    def __init__(
        self, cluster: Cluster, policy: Policy, params_provider: ParamsProvider, rng: random.Random
    ) -> None:
        self._cluster = cluster
        self._policy = policy
        self._params_provider = params_provider
        self._rng = rng
        self._backoff = Backoff(policy, rng)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._shunned: dict[Endpoint, float] = {}
        self._tried: Endpoint | None = None
        self._try: _StandbyAttempt | None = None

    def start(self, primary: Endpoint) -> None:
        """Start the standby beside a live connection to this primary, if the policy asks for one."""
        if self._policy.standby == "warm":
            self._task = self._loop.create_task(self._run(primary), name=f"haclient standby beside {primary}")

    async def stop(self) -> Attempt | None:
        """Stop after a loss, and return the parked attempt if any: the caller owns it now."""
        held = self._try
        if held is None or not held.is_held:
            await self.close()
            return None
        held.handed_over = True
        try:
            await self.close()
        except asyncio.CancelledError:
            held.attempt.cancel()
            raise
        return held.attempt if held.is_held else None

    async def close(self) -> None:
        """Stop, at any stage."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, primary: Endpoint) -> None:
        retry_after: float | None = None
        while True:
            await asyncio.sleep(self._backoff.next(retry_after).delay)
            retry_after = None
            member = self._next(primary)
            if member is None:  # members join and leave: check again from time to time
                await asyncio.sleep(self._policy.backoff_max)
            elif self._cluster.free_dials > 0:
                retry_after = await self._park_at(member)

    def _next(self, primary: Endpoint) -> Endpoint | None:
        """Return the next candidate, round-robin."""
        now = self._loop.time()
        others = [each for each in self._cluster.topology.candidates() if each != primary]
        if self._tried in others:
            turn = others.index(self._tried) + 1
            others = others[turn:] + others[:turn]
        return next((each for each in others if self._shunned.get(each, now) <= now), None)

    async def _park_at(self, member: Endpoint) -> float | None:
        """Make one attempt and wait for its end; return its ``retry_after``."""
        self._tried = member
        self._try = mine = _StandbyAttempt(self._cluster, self._params_provider, member)
        try:
            await self._dial(mine)
            if mine.is_held:
                await self._hold(mine)
        finally:
            self._try = None
            if not mine.handed_over:
                mine.attempt.cancel()
        if mine.is_hopeless:
            self._shun(member)
        return None if mine.failure is None else mine.failure.retry_after

    async def _dial(self, mine: _StandbyAttempt) -> None:
        search = PendingSearch(lambda: None)
        self._cluster.take_dial(search, self._loop.time())
        try:
            async with asyncio.timeout(self._policy.attempt_timeout):
                await mine.attempt.run()
                await mine.decided.wait()
        except TimeoutError:
            return
        finally:
            self._cluster.release_dial(search)

    async def _hold(self, mine: _StandbyAttempt) -> None:
        """Wait until the member ends it, or its token expires: the node ``$cbs`` would get that token."""
        since, params = self._loop.time(), mine.attempt.params
        left = math.inf if params is None or params.expires_at is None else params.expires_at - time.time()
        with contextlib.suppress(TimeoutError):
            # A token that has expired already shows that the clock here is wrong.
            async with asyncio.timeout(left if 0 < left < math.inf else None):
                await mine.ended.wait()
        if self._loop.time() - since >= self._policy.stable_after:
            self._backoff.reset()

    def _shun(self, member: Endpoint) -> None:
        long = max(self._policy.backoff_max, self._policy.park_timeout)
        # Random, so that not all clients of an ordinary broker ask it again at the same moment.
        self._shunned[member] = self._loop.time() + self._rng.uniform(long, 2 * long)


class _StandbyAttempt:
    """One attempt of the standby, and its result.

    :ivar decided: set when it is parked or has ended; ``ended``: set when it has ended.
    :ivar handed_over: it belongs to the search.
    """

    def __init__(self, cluster: Cluster, params_provider: ParamsProvider, member: Endpoint) -> None:
        callbacks = AttemptCallbacks(self._ignore, self._opened, self._parked, self._usable, self._failed)
        self.attempt = Attempt(0, member, params_provider, cluster.resolver, callbacks, park=True)
        self.decided = asyncio.Event()
        self.ended = asyncio.Event()
        self.failure: Failure | None = None
        self.handed_over = False
        self._answered = False

    @property
    def is_held(self) -> bool:
        """Return whether the member still parks it, or has admitted it."""
        return self.attempt.parked and not self.ended.is_set()

    @property
    def is_hopeless(self) -> bool:
        """Return whether another attempt soon would get the same answer."""
        refused = self.failure is not None and self.failure.kind in _HOPELESS
        return refused or (self._answered and not self.attempt.parked)

    def _ignore(self, _number: int) -> None:
        """Do nothing: a TCP connection alone decides nothing."""

    def _opened(self, _number: int) -> None:
        self._answered = True

    def _parked(self, _number: int) -> None:
        self.decided.set()

    def _usable(self, _number: int) -> None:
        if not self.attempt.parked:
            self._end()

    def _failed(self, _number: int, failure: Failure) -> None:
        self.failure = failure
        self._end()

    def _end(self) -> None:
        self.decided.set()
        self.ended.set()
