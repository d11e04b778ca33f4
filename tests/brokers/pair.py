"""The broker pair of this repository as a cluster of the matrix: two members and a local cluster's
supervisor.

Rules
-----
* The supervisor acts as a resource manager: it promotes a member when the primary is dead, restarts a dead
  member, and kills one that is silent for some seconds.
* Stores and the arbiter are in the cluster's folder, the members' logs in the supervisor's own folder.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions, Member
from broker_stub.management_client import AdminClient, AdminError
from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.peers.listening import Peer
from haclient.testing.proxy import Proxy, proxy
from haclient.version import package_version
from tests.brokers import bare
from tests.brokers.topology import (
    BOTH_DOWN_SECONDS,
    PAUSE_SECONDS,
    ClusterError,
    Fault,
    Launch,
    Served,
    Stored,
)
from tests.brokers.vip import Vip

T = TypeVar("T")

# Seconds. A busy machine with two cores needs several to start a member.
_PATIENCE = 120.0
_POLL = 0.05
_PROBE = "judge.probe"
_NOBODY = bare.Account()
_LOG_TAIL = 1500
# Redirects and pushed members would lead clients around the forwarder.
_BEHIND_FORWARDERS = "redirects=none&pushed_members=ignore"


class Pair:
    """See ``topology.BrokerCluster``."""

    name = "pair"
    version = package_version()
    detects_duplicates = True
    faults = frozenset(Fault)

    def __init__(self, how: Launch) -> None:
        self._how = how
        # After BOTH_DOWN, ``_start_again`` restarts the members, not the supervisor.
        restart = how.fault is not Fault.BOTH_DOWN
        self._cluster = LocalCluster(LocalClusterOptions(store=how.folder, restart=restart))
        self._routes: dict[str, Proxy] = {}
        self._vip: Vip | None = None
        self._following: asyncio.Task[None] | None = None
        self._pending: set[asyncio.Task[object]] = set()
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """See ``BrokerCluster``."""
        if self._vip is not None:
            return f"amqp://{self._vip.address}/?{_BEHIND_FORWARDERS}"
        if self._routes:
            addresses = ",".join(route.address for route in self._routes.values())
            return f"amqp://{addresses}/?{_BEHIND_FORWARDERS}"
        return self._cluster.url

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See ``BrokerCluster``."""
        self._how.folder.mkdir(parents=True, exist_ok=True)
        await self._cluster.start()
        await self._within("the first primary", self._cluster.wait_ready(_PATIENCE))
        members = self._cluster.members
        if self._how.fault is Fault.SILENCE:
            for member in members:
                route = await self._stack.enter_async_context(proxy(_peer(member)))
                self._routes[member.name] = route
        if self._how.fault is Fault.VIP:
            self._vip = Vip()
            self._stack.push_async_callback(self._vip.leave)
            self._following = asyncio.create_task(self._follow(self._vip), name="the VIP")
        await self.whole()

    async def stop(self) -> None:
        """See ``BrokerCluster``."""
        tasks = (*self._pending, *((self._following,) if self._following else ()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._cluster.stop()
        finally:
            await self._stack.aclose()

    async def _follow(self, vip: Vip) -> None:
        """Point the VIP at the primary, and cut connections to any other member."""
        while True:
            primary = self._cluster.primary
            if primary is None:
                await vip.leave()
            else:
                await vip.lead(_peer(primary))
            await asyncio.sleep(_POLL)

    # -- faults -----------------------------------------------------------------------------------

    async def inject(self, fault: Fault) -> float:
        """See ``BrokerCluster``."""
        if fault is Fault.FAILBACK:
            await self._primary().process.kill()
            await self.serving()
            await self.whole()
        primary, began = self._primary(), time.monotonic()
        match fault:
            case Fault.KILL | Fault.VIP:
                await primary.process.kill()
            case Fault.STOP:
                self._do(primary.process.stop(), "stop")
                await self._until_refused(primary)
            case Fault.MOVE | Fault.FAILBACK:
                other = next(member for member in self._cluster.members if member is not primary)
                self._do(self._cluster.promote(other, _PATIENCE), "move")
                await self._until_refused(primary)
            case Fault.PAUSE:
                primary.process.signal(signal.SIGSTOP)
                self._do(_later(PAUSE_SECONDS, self._resume, primary, primary.pid), "resume")
            case Fault.SILENCE:
                self._routes[primary.name].hold()
                await primary.process.kill()
            case Fault.BOTH_DOWN:
                await asyncio.gather(*(member.process.kill() for member in self._cluster.members))
                self._do(_later(BOTH_DOWN_SECONDS, self._start_again), "start again")
        return began

    async def _until_refused(self, primary: Member) -> None:
        async def refused() -> None:
            while not await bare.refusal(primary.address, _NOBODY, _PROBE):  # noqa: ASYNC110 - it can only be asked
                await asyncio.sleep(_POLL)

        await self._within("end of the primary", refused())

    def _resume(self, member: Member, pid: int | None) -> None:
        if member.pid == pid is not None:
            member.process.signal(signal.SIGCONT)

    def _start_again(self) -> None:
        for member in self._cluster.members:
            self._cluster.restart(member)

    def _do(self, work: Coroutine[Any, Any, object], what: str) -> None:
        """Run this in the background after ``inject``; ``whole`` raises its error."""
        self._pending.add(asyncio.create_task(work, name=f"{what} the primary"))

    # -- observing --------------------------------------------------------------------------------

    async def serving(self) -> Served:
        """See ``BrokerCluster``."""
        return await self._within("a primary that accepts", self._until_accepted())

    async def _until_accepted(self) -> Served:
        tries = [asyncio.create_task(_accepted(*each)) for each in self._seen()]
        try:
            done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
            return min((each.result() for each in done), key=lambda served: served.at)
        finally:
            for each in tries:
                each.cancel()
            await asyncio.gather(*tries, return_exceptions=True)

    def _seen(self) -> list[tuple[Endpoint, Endpoint]]:
        """Return pairs of addresses: one to probe, one that clients use. A VIP serves once it points at a
        primary.
        """
        if self._vip is not None:
            vip = Endpoint(self._vip.host, self._vip.port)
            return [(vip, vip)]
        return [(member.address, self._route(member)) for member in self._cluster.members]

    def _route(self, member: Member) -> Endpoint:
        route = self._routes.get(member.name)
        return member.address if route is None else Endpoint(route.host, route.port)

    async def whole(self) -> None:
        """See ``BrokerCluster``."""
        pending, self._pending = self._pending, set()
        await self._within("end of the fault", asyncio.gather(*pending))
        await self._within("redundancy", self._until_whole())
        for route in self._routes.values():
            route.release()

    async def _until_whole(self) -> None:
        while not (self._cluster.ready and await self._is_backed_up()):  # noqa: ASYNC110 - it can only be asked
            await asyncio.sleep(_POLL)

    async def _is_backed_up(self) -> bool:
        primary = self._cluster.primary
        if primary is None:
            return False
        with suppress(AdminError):
            async with await AdminClient.connect(primary.address, self._cluster.credentials) as admin:
                status = await admin.status()
            phases = [replica["phase"] for replica in status.facts["replication"]["replicas"]]
            return phases == ["ready"] * (len(self._cluster.members) - 1)
        return False

    def queue(self, name: str) -> str:
        """See ``BrokerCluster``."""
        return name

    async def drain(self, name: str) -> list[Stored]:
        """See ``BrokerCluster``."""
        try:
            return await bare.receive_all(self._primary().address, _NOBODY, self.queue(name))
        except (bare.BareError, OSError, TimeoutError) as error:
            raise ClusterError(f"{name} cannot be drained: {error}{self._tails()}") from error

    def _primary(self) -> Member:
        primary = self._cluster.primary
        if primary is None:
            raise ClusterError(f"there is no primary{self._tails()}")
        return primary

    async def _within(self, what: str, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await work
        except (TimeoutError, AdminError) as error:
            raise ClusterError(f"no {what} in {_PATIENCE:g} s: {error}{self._tails()}") from error

    def _tails(self) -> str:
        tails = []
        for member in self._cluster.members:
            log = self._cluster.directory / f"{member.name}.log"
            text = log.read_text(errors="replace")[-_LOG_TAIL:] if log.exists() else ""
            tails.append(f"\n-- {member.name} {member.state}:\n{text}")
        return "".join(tails)


async def _accepted(asked: Endpoint, seen: Endpoint) -> Served:
    """Wait until a member accepts a probe that begins from now on."""
    while True:
        since = time.monotonic()
        if not await bare.refusal(asked, _NOBODY, _PROBE):
            return Served(time.monotonic(), since, seen)
        await asyncio.sleep(_POLL)


async def _later(seconds: float, call: Callable[..., None], *arguments: object) -> None:
    await asyncio.sleep(seconds)
    call(*arguments)


def _peer(member: Member) -> Peer:
    return Peer(member.address.host, member.address.port)
