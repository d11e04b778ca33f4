"""What every launcher does with its members, whatever the product: faults, and the wait for a primary.

The product says how a member starts, and what "in sync" means; the rest is here.
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
# A group of three JVMs on two busy cores elects in some 10 s; after both were down, they start as well.
_SERVING_SECONDS = BOTH_DOWN_SECONDS + 120.0
_VIP = "VIP"
# How often a VIP looks whether its primary is there, as the managers of such addresses do.
_VIP_SECONDS = 0.5
PROBE = "judge.probe"
"""The queue that ``serving`` attaches to."""
COMMON = frozenset({Fault.KILL, Fault.STOP, Fault.PAUSE, Fault.SILENCE, Fault.BOTH_DOWN, Fault.VIP})
"""The faults that ``Group.inject`` makes."""


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
    """A process, where it listens, and where clients look for it.

    :ivar route: a forwarder in front of it, where the fault needs one.
    :ivar refusal: why it last took no sender.
    """

    process: Process
    endpoint: Endpoint
    route: Proxy | None = None
    refusal: str = ""

    @property
    def seen(self) -> Endpoint:
        """Where clients and other members look for it."""
        return Endpoint(self.route.host, self.route.port) if self.route else self.endpoint


@dataclass(slots=True)
class Group:
    """Members of one cluster.

    :ivar probe: the address that ``serving`` attaches to.
    :ivar alone: whether nobody takes over, so that a member that went down is started again at once.
    :ivar vip: an address that follows the primary, where the fault needs one.
    :ivar sends: whether a member that takes the sender still has to accept a message: a node without a
        majority takes every sender.
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
        """The members' or the VIP's ``host:port``, as in a cluster URL."""
        if self.vip is not None:
            return self.vip.address
        return ",".join(member.seen.authority for member in self.members)

    async def open_routes(self, fault: Fault) -> None:
        """Make the forwarders that a fault needs; before the members are configured and started."""
        if fault is Fault.SILENCE:
            for member in self.members:
                target = Peer(member.endpoint.host, member.endpoint.port)
                member.route = await self._stack.enter_async_context(proxy(target))
        if fault is Fault.VIP:
            self.vip = Vip()
            self._stack.push_async_callback(self.vip.leave)
            self._later(self._follow(self.vip), _VIP)

    async def stop(self) -> None:
        """End every process and forwarder."""
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

    # -- who serves -----------------------------------------------------------------------------

    async def accepts(self, member: Member) -> bool:
        """Whether a member takes a sender, at its own address."""
        if not member.process.running:
            return False
        return await self._accepts_at(member, member.endpoint)

    async def _accepts_at(self, member: Member, endpoint: Endpoint) -> bool:
        ask = bare.send_refusal if self.sends else bare.refusal
        member.refusal = await ask(endpoint, self.account, self.probe)
        return not member.refusal

    async def primary(self) -> Member:
        """The member that accepts, sooner or later.

        :raises ClusterError: when none does in time.
        """
        return (await self._first_to_accept())[0]

    async def serving(self) -> Served:
        """See ``BrokerCluster.serving``; a VIP serves once it leads to a primary."""
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
        """Wait until a member that accepted does so no longer; the moment at which it did not."""
        async with self._limit(f"{member.process.name} still accepts"):
            while await self.accepts(member):  # noqa: ASYNC110 - nobody tells
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
        """Wait until what the product says of its members is so.

        :raises ClusterError: when it is not in time.
        """
        async with self._limit(f"no {what}"):
            while not await condition():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_POLL_SECONDS)

    def failed(self, what: str) -> ClusterError:
        """An error with the tails of the members' logs."""
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
        """Make one of the ``COMMON`` faults; see ``BrokerCluster.inject``."""
        primary = await self.primary()
        began = time.monotonic()
        if fault is Fault.PAUSE:
            primary.process.pause()
            self._later(_resume_later(primary.process), "SIGCONT")
        elif fault is Fault.STOP:
            await primary.process.stop()
        elif fault is Fault.BOTH_DOWN:
            # The primary first: without it the other has nothing to settle, and no time to take over.
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
        """Start the members that are down; the way to them is open again."""
        for member in self.members:
            if member.route is not None:
                member.route.release()
            if not member.process.running:
                member.process.start()

    async def whole(self) -> None:
        """The part of ``BrokerCluster.whole`` that is the same for all: faults have ended, members run.

        :raises ClusterError: when nobody serves in time.
        """
        await asyncio.gather(*self._scheduled())
        self.start_all()
        await self.primary()

    async def _start_later(self, last: Member) -> None:
        """Start all, the last primary first, as an operator would: nobody has more than it."""
        await asyncio.sleep(BOTH_DOWN_SECONDS)
        last.process.start()
        self.start_all()

    async def _follow(self, vip: Vip) -> None:
        """Lead the VIP to the primary, and nowhere while there is none."""
        while True:
            member = await self.primary()
            await vip.lead(Peer(member.endpoint.host, member.endpoint.port))
            while await self.accepts(member):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_VIP_SECONDS)
            await vip.leave()

    def _scheduled(self) -> list[asyncio.Task[None]]:
        """What is still to happen of the faults."""
        return [task for task in self._tasks if task.get_name() != _VIP]

    def _later(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what is stored -------------------------------------------------------------------------

    async def drain(self, address: str) -> list[Stored]:
        """See ``BrokerCluster.drain``: receive until a whole connection brought nothing."""
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
