"""The members of a cluster, of any product: faults, and waiting for a primary.

The product defines how a member starts and when it is in sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.peers.listening import Peer
from haclient.testing.proxy import Proxy, proxy
from tests.brokers import bare
from tests.brokers.topology import (
    BOTH_DOWN_SECONDS,
    PAUSE_SECONDS,
    ClusterError,
    Fault,
    Served,
    Stored,
)
from tests.brokers.vip import Vip

_POLL_SECONDS = 0.05
# Three JVMs on two busy cores elect in some 10 s. After BOTH_DOWN they must start as well.
_SERVING_SECONDS = BOTH_DOWN_SECONDS + 120.0
_VIP = "VIP"
# Seconds between a VIP's checks of its primary, as in managers of such addresses.
_VIP_SECONDS = 0.5
PROBE = "judge.probe"
"""The queue that ``serving`` attaches to."""
COMMON = frozenset({Fault.KILL, Fault.STOP, Fault.PAUSE, Fault.SILENCE, Fault.BOTH_DOWN, Fault.VIP})
"""The faults that ``Group.inject`` implements."""


class Process(Protocol):
    """A member's process; see ``member_process.MemberProcess``."""

    @property
    def name(self) -> str: ...

    @property
    def running(self) -> bool: ...

    def start(self) -> None: ...

    def send_kill(self) -> None: ...

    async def kill(self) -> None: ...

    async def stop(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def tail(self) -> str: ...


@dataclass(slots=True, eq=False)
class Member:
    """A process, its own address, and the address that clients use.

    :ivar route: a forwarder in front of the process, if the fault needs one.
    :ivar refusal: why the member last refused a sender.
    """

    process: Process
    endpoint: Endpoint
    route: Proxy | None = None
    refusal: str = ""

    @property
    def seen(self) -> Endpoint:
        """Return the address that clients and other members use."""
        return Endpoint(self.route.host, self.route.port) if self.route else self.endpoint


@dataclass(slots=True)
class Group:
    """The members of one cluster.

    :ivar probe: the address that ``serving`` attaches to.
    :ivar alone: whether the cluster has one member, which is restarted at once after a fault.
    :ivar vip: an address that follows the primary, if the fault needs one.
    :ivar sends: whether a member must also accept a message: a node without a majority attaches every
        sender.
    """

    members: Sequence[Member]
    account: bare.Account
    probe: str = PROBE
    alone: bool = False
    vip: Vip | None = None
    sends: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def addresses(self) -> str:
        """Return the ``host:port`` of the VIP, or of every member, as in a cluster URL."""
        if self.vip is not None:
            return self.vip.address
        return ",".join(member.seen.authority for member in self.members)

    async def open_routes(self, fault: Fault) -> None:
        """Open the forwarders that a fault needs, before the members are configured and started."""
        if fault is Fault.SILENCE:
            for member in self.members:
                target = Peer(member.endpoint.host, member.endpoint.port)
                member.route = await self._stack.enter_async_context(proxy(target))
        if fault is Fault.VIP:
            self.vip = Vip()
            self._stack.push_async_callback(self.vip.leave)
            self._later(self._follow(self.vip), _VIP)

    async def stop(self) -> None:
        """Stop every process and forwarder."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        for member in self.members:
            member.process.send_kill()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(member.process.kill() for member in self.members))
        finally:
            await self._stack.aclose()

    # -- the primary ------------------------------------------------------------------------------

    async def accepts(self, member: Member) -> bool:
        """Return whether a member accepts at its own address."""
        if not member.process.running:
            return False
        return await self._accepts_at(member, member.endpoint)

    async def _accepts_at(self, member: Member, endpoint: Endpoint) -> bool:
        ask = bare.send_refusal if self.sends else bare.refusal
        member.refusal = await ask(endpoint, self.account, self.probe)
        return not member.refusal

    async def primary(self) -> Member:
        """Wait for a member that accepts, and return it.

        :raises ClusterError: if none accepts in time.
        """
        return (await self._first_to_accept())[0]

    async def serving(self) -> Served:
        """See ``BrokerCluster.serving``. A VIP serves once it points at a primary."""
        member, served = await self._first_to_accept()
        if self.vip is None:
            return served
        endpoint = Endpoint(self.vip.host, self.vip.port)
        async with self._limit("the VIP does not accept"):
            while True:
                since = time.monotonic()
                if await self._accepts_at(member, endpoint):
                    return Served(time.monotonic(), since, endpoint)
                await asyncio.sleep(_POLL_SECONDS)

    async def refusing(self, member: Member) -> float:
        """Wait until a member no longer accepts, and return the moment."""
        async with self._limit(f"{member.process.name} still accepts"):
            while await self.accepts(member):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic()

    async def _first_to_accept(self) -> tuple[Member, Served]:
        tries = {asyncio.create_task(self._accepted(member)): member for member in self.members}
        try:
            async with self._limit("nobody accepts"):
                done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tries:
                task.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
        first = min(done, key=lambda task: task.result().at)
        return tries[first], first.result()

    async def _accepted(self, member: Member) -> Served:
        while True:
            since = time.monotonic()
            if await self.accepts(member):
                return Served(time.monotonic(), since, member.seen)
            if not self._scheduled() and not any(each.process.running for each in self.members):
                raise self.failed("every member has ended")
            await asyncio.sleep(_POLL_SECONDS)

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until a condition of the product holds.

        :raises ClusterError: if it does not hold in time.
        """
        async with self._limit(f"no {what}"):
            while not await condition():  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(_POLL_SECONDS)

    def failed(self, what: str) -> ClusterError:
        """Return an error with the tails of the members' logs."""
        tails = (f"{member.process.tail()}\n-- answered {member.refusal}" for member in self.members)
        return ClusterError("\n".join((what, *tails)))

    @asynccontextmanager
    async def _limit(self, what: str, seconds: float = _SERVING_SECONDS) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise self.failed(f"{what} after {seconds:g} s") from error

    # -- faults ---------------------------------------------------------------------------------

    async def inject(self, fault: Fault) -> float:
        """Inject one of the ``COMMON`` faults; see ``BrokerCluster.inject``."""
        primary = await self.primary()
        began = time.monotonic()
        if fault is Fault.PAUSE:
            primary.process.pause()
            self._later(_resume_later(primary.process), "SIGCONT")
        elif fault is Fault.STOP:
            await primary.process.stop()
        elif fault is Fault.BOTH_DOWN:
            # The primary first: the backup then has nothing to settle, and no time to take over.
            for member in sorted(self.members, key=lambda member: member is not primary):
                member.process.send_kill()
            await asyncio.gather(*(member.process.kill() for member in self.members))
            self._later(self._start_later(primary), "start after both were down")
        else:
            if primary.route is not None:
                primary.route.hold()
            await primary.process.kill()
            if self.vip is not None:
                await self.vip.leave()
        if self.alone and fault in (Fault.KILL, Fault.STOP, Fault.VIP):
            primary.process.start()
        return began

    def start_all(self) -> None:
        """Restart the members that are down, and reopen their routes."""
        for member in self.members:
            if member.route is not None:
                member.route.release()
            if not member.process.running:
                member.process.start()

    async def whole(self) -> None:
        """Do the part of ``BrokerCluster.whole`` that all products share: await the end of the faults, start
        all members.

        :raises ClusterError: if no member accepts in time.
        """
        await asyncio.gather(*self._scheduled())
        self.start_all()
        await self.primary()

    async def _start_later(self, last: Member) -> None:
        """Start all members, the last primary first as an operator would: no member has more messages."""
        await asyncio.sleep(BOTH_DOWN_SECONDS)
        last.process.start()
        self.start_all()

    async def _follow(self, vip: Vip) -> None:
        """Point the VIP at the primary, and close it while there is none."""
        while True:
            member = await self.primary()
            await vip.lead(Peer(member.endpoint.host, member.endpoint.port))
            while await self.accepts(member):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(_VIP_SECONDS)
            await vip.leave()

    def _scheduled(self) -> list[asyncio.Task[None]]:
        """Return the pending tasks of the faults."""
        return [task for task in self._tasks if task.get_name() != _VIP]

    def _later(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- stored messages ---------------------------------------------------------------------------

    async def drain(self, address: str) -> list[Stored]:
        """See ``BrokerCluster.drain``. Receives until a whole connection yields nothing."""
        stored: list[Stored] = []
        while True:
            primary = await self.primary()
            more = await bare.receive_all(primary.endpoint, self.account, address)
            if not more:
                return stored
            stored += more


async def _resume_later(process: Process) -> None:
    try:
        await asyncio.sleep(PAUSE_SECONDS)
    finally:
        process.resume()
