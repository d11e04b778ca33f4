"""A cluster of real member processes in which everything can be made to fail.

    async with cluster(folder) as pair:
        await pair.kill(pair.primary)
        pair.start(...)
        await pair.whole()

It is a ``LocalCluster`` (``broker_stub.local_cluster.supervisor``) whose supervisor promotes and never
restarts or fences: a fault decides which member is killed, and when it returns.

Rules
-----
* Clients use ``url``, members each other's proxies: redirects and pushed member lists, which give the
  members' own addresses, are not followed.
* A member that ends without having been killed by a fault is a failure (``whole`` says so).
* ``store_of`` and the logs outlive the cluster; the caller removes its folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from broker_stub.election.arbiter import open_arbiter
from broker_stub.election.generation import ArbiterRecord
from broker_stub.local_cluster.supervisor import (
    LocalCluster,
    LocalClusterEvent,
    LocalClusterOptions,
    Member,
    MemberState,
)
from broker_stub.management_client import AdminClient, AdminError, MemberRefusedError, MemberStatus
from haclient.testing.network import Cut, DirectoryRoutes, proxies
from tests.broker_stub.statuses import status_with_queues
from tests.faults.namespaces import namespaces
from tests.faults.network import ARBITER, ArbiterRoutes, Network, zookeeper_routes

# Seconds.  A fault that is held for longer than LONGEST has outlasted each of them.
HEARTBEAT = 1.0
BACKUP_TIMEOUT = 1.5
ATTEMPT_TIMEOUT = 1.5
LONGEST = 2.5

_CLIENT_OPTIONS = (
    f"redirects=none&pushed_members=ignore&attempt_timeout={ATTEMPT_TIMEOUT}"
    "&backoff_base=0.02&backoff_max=0.25"
)
# A machine with two cores that does other things too starts a member in seconds.
PATIENCE = 60.0
_PROBE = 0.1
_NEVER = 10**9
# The database, its write-ahead log (32 MB at most), and the same again, set aside as damaged.
_DISK = "256m"


class NotWholeError(AssertionError):
    """The cluster did not recover from its faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The options of a cluster.

    :param small_disks: a tmpfs of ``_DISK`` for each store, which can be filled (root only).
    :param heartbeat: of every connection, in seconds; with ``backup_timeout``, the longest allowed silence.
    """

    members: int = 2
    arbiter: Literal["directory", "zookeeper"] = "directory"
    network: Literal["proxy", "namespace"] = "proxy"
    small_disks: bool = False
    heartbeat: float = HEARTBEAT
    backup_timeout: float = BACKUP_TIMEOUT


PLAIN = ClusterOptions()


class Cluster:
    """The cluster that ``cluster`` makes."""

    def __init__(
        self,
        folder: Path,
        options: ClusterOptions,
        names: Sequence[str],
        network: Network,
        routes: ArbiterRoutes,
    ) -> None:
        self.folder = folder
        self.options = options
        self.network = network
        self.arbiter = routes
        self.events: list[LocalClusterEvent] = []
        self.promoted = 0
        self._killed: set[str] = set()
        self.pair = LocalCluster(self._options(names), on_event=self._event)

    def _options(self, names: Sequence[str]) -> LocalClusterOptions:
        return LocalClusterOptions(
            listen=self.network.addresses,
            restart=False,
            probe_interval=_PROBE,
            probes_missed=_NEVER,
            store=self.folder,
            backup_timeout=self.options.backup_timeout,
            serve_arguments=(
                *("--heartbeat", str(self.options.heartbeat)),
                *("--handshake-timeout", str(ATTEMPT_TIMEOUT)),
            ),
            member_arguments={name: self._arguments(name) for name in names},
            wrappers={name: self.network.wrapper(name) for name in names},
        )

    def _arguments(self, name: str) -> tuple[str, ...]:
        peers = f"amqp://{','.join(self.network.peer_addresses(name))}/?{self._client_options}"
        arguments = ("--arbiter", self.arbiter.member_url(name), "--broker-url", peers)
        return (*arguments, "--listen", self.network.listen(name))

    @property
    def _client_options(self) -> str:
        return f"{_CLIENT_OPTIONS}&heartbeat={self.options.heartbeat}"

    def _event(self, event: LocalClusterEvent) -> None:
        self.events.append(event)
        self.promoted += event.kind == "promoted"

    # -- looking --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"amqp://{','.join(self.network.client_addresses())}/?{self._client_options}"

    @property
    def names(self) -> dict[str, str]:
        """The members' names by the addresses that clients use."""
        return dict(zip(self.network.client_addresses(), (m.name for m in self.members), strict=True))

    @property
    def members(self) -> tuple[Member, ...]:
        """Every member."""
        return self.pair.members

    @property
    def primary(self) -> Member:
        """The primary; a whole cluster always has one."""
        primary = self.pair.primary
        if primary is None:
            raise NotWholeError(f"there is no primary: {self.states()}")
        return primary

    @property
    def backups(self) -> list[Member]:
        """The members that are not primary."""
        return [member for member in self.members if member is not self.pair.primary]

    def store_of(self, member: Member) -> Path:
        """The directory of a member's store."""
        return self.folder / member.name

    def states(self) -> str:
        """Describe every member's state."""
        return ", ".join(f"{m.name} {m.state} generation {m.generation}" for m in self.members)

    async def whole(self, timeout: float = PATIENCE) -> None:
        """Wait until there is one primary, and every other member a ready replica of it.

        :raises NotWholeError: when it is not in time, or a member has ended by itself.
        """
        try:
            async with asyncio.timeout(timeout):
                while not (self.pair.ready and await self._replicas_ready()):
                    self._check_deaths()
                    await asyncio.sleep(_PROBE)
        except TimeoutError:
            raise NotWholeError(f"not whole after {timeout:g} s: {self.states()}") from None

    async def _replicas_ready(self) -> bool:
        with suppress(AdminError):
            replicas = (await self.status(self.primary)).facts["replication"]["replicas"]
            phases = {replica["name"]: replica["phase"] for replica in replicas}
            return phases == {member.name: "ready" for member in self.backups}
        return False

    def _check_deaths(self) -> None:
        for member in self.members:
            dead = member.state is MemberState.DEAD and not member.restart_requested.is_set()
            if dead and member.name not in self._killed:
                raise NotWholeError(f"{member.name} ended by itself: {self.folder / member.name}.log")

    async def until(self, member: Member, *states: MemberState, timeout: float = PATIENCE) -> None:
        """Wait until a member is in one of these states."""
        await self.pair.wait_until(lambda _: member.state in states, timeout)

    async def until_promoted(self, than: int, timeout: float = PATIENCE) -> None:
        """Wait for a primary of a newer generation."""
        await self.pair.wait_until(lambda p: p.primary is not None and p.primary.generation > than, timeout)

    async def status(self, member: Member) -> MemberStatus:
        """Return a member's status with its queues."""
        async with await AdminClient.connect(member.address, self.pair.credentials) as admin:
            return await status_with_queues(admin)

    async def record(self) -> ArbiterRecord:
        """Return the arbiter's record."""
        arbiter = open_arbiter(self.arbiter.url)
        try:
            return await arbiter.read()
        finally:
            await arbiter.close()

    async def until_disk(self, member: Member, level: str, timeout: float = PATIENCE) -> None:
        """Wait until a member reports this disk state."""
        async with asyncio.timeout(timeout):
            while True:
                found = (await self.status(member)).facts["replication"]["disk"]
                if found is not None and found["level"] == level:
                    return
                await asyncio.sleep(_PROBE)

    # -- acting ---------------------------------------------------------------------------------

    def expect_end(self, *members: Member) -> None:
        """Expect the end of these members, so that it is no failure."""
        self._killed.update(member.name for member in members)

    async def kill(self, *members: Member) -> None:
        """SIGKILL, all at once; the manager may promote another at once."""
        self.expect_end(*members)
        for member in members:
            member.process.signal(signal.SIGKILL)
        for member in members:
            await self.until(member, MemberState.DEAD)

    async def stop(self, *members: Member) -> None:
        """SIGTERM, one after the other."""
        for member in members:
            self.expect_end(member)
            await member.process.stop()
            await self.until(member, MemberState.DEAD)

    def start(self, member: Member) -> None:
        """Start a dead member."""
        self._killed.discard(member.name)
        self.pair.restart(member)

    async def started(self, member: Member) -> None:
        """Start a dead member, and wait until the manager reaches it."""
        self.start(member)
        await self.pair.wait_until(lambda _: member.alive, PATIENCE)

    def pause(self, member: Member) -> None:
        """SIGSTOP."""
        member.process.signal(signal.SIGSTOP)

    def resume(self, member: Member) -> None:
        """SIGCONT."""
        member.process.signal(signal.SIGCONT)

    async def move(self, heir: Member) -> str:
        """Demote the primary and promote another member; the refusal, empty when there is none.

        :raises AdminError: when one of them does not answer.
        """
        async with await AdminClient.connect(self.primary.address, self.pair.credentials) as admin:
            await admin.demote()
        return await self.promote(heir)

    async def promote(self, member: Member) -> str:
        """Promote by hand; the refusal, empty when there is none.

        :raises AdminError: when the member does not answer.
        """
        try:
            async with await AdminClient.connect(member.address, self.pair.credentials) as admin:
                await admin.promote()
        except MemberRefusedError as refused:
            return str(refused)
        self.promoted += 1
        return ""

    def cut(self, one: str, other: str, how: Cut) -> None:
        """Cut the route between two members, a member and ``CLIENTS``, or a member and ``ARBITER``."""
        if other == ARBITER:
            self.arbiter.cut(one, how)
        else:
            self.network.cut(one, other, how)

    def heal(self) -> None:
        """Heal every route."""
        self.arbiter.heal()
        self.network.heal()

    # -- life -----------------------------------------------------------------------------------

    def keep_logs(self) -> None:
        """Copy the members' logs into the folder."""
        for member in self.members:
            with suppress(FileNotFoundError):
                shutil.copy(self.pair.directory / f"{member.name}.log", self.folder)

    def wake(self) -> None:
        """Resume every paused process and heal every route, so that the end can proceed."""
        self.heal()
        for member in self.members:
            self.resume(member)


@asynccontextmanager
async def cluster(folder: Path, options: ClusterOptions = PLAIN) -> AsyncIterator[Cluster]:
    """Start a cluster whose stores and arbiter are in a folder; it is whole when the body starts."""
    names = [f"member-{number}" for number in range(1, options.members + 1)]
    async with AsyncExitStack() as stack:
        network: Network
        if options.network == "proxy":
            network = await stack.enter_async_context(proxies(names))
        else:
            network = stack.enter_context(namespaces(names))
        routes: ArbiterRoutes = (
            DirectoryRoutes(folder, names)
            if options.arbiter == "directory"
            else (await stack.enter_async_context(zookeeper_routes(folder, names)))
        )
        if options.small_disks:
            for name in names:
                _mount(stack, folder / name)
        made = Cluster(folder, options, names, network, routes)
        try:
            await made.pair.start()
            await made.whole()
            yield made
        finally:
            made.wake()
            made.keep_logs()
            await made.pair.stop()


def may_mount() -> bool:
    """Return whether this machine allows small disks."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


def _mount(stack: AsyncExitStack, path: Path) -> None:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=10)
    stack.callback(_unmount, path)


def _unmount(path: Path) -> None:
    """Unmount the small disk, and keep its files."""
    kept = path.with_name(f"{path.name}.kept")
    shutil.copytree(path, kept, dirs_exist_ok=True)
    subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True, timeout=10)
    path.rmdir()
    kept.rename(path)
