"""A cluster of real member processes with faults that a test controls, asynchronous; ``pair`` has its APIs.

Theory of operation
-------------------
A ``broker_stub.local_cluster.supervisor`` promotes a backup when the primary is dead.  It does nothing else
by itself, neither fencing nor restarts: the test decides on these, and on their time.  Every route to a
member leads through a proxy that can be cut.  Clients get the proxies' addresses (URL, redirects,
``failover-server-list``).

Rules
-----
* A member that the test has killed for good, stopped or cut off is *out of service*; ``whole`` waits for the
  others only.
* A killed member is restarted only when another one is primary: before that it could be promoted itself.
* Nothing outlives the cluster: processes are killed, files removed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from broker_stub import scratch_directory
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.amqp.node_names import EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.local_cluster.supervisor import (
    LocalCluster,
    LocalClusterEvent,
    LocalClusterOptions,
    Member,
    MemberState,
)
from broker_stub.management_client import AdminClient, AdminError
from haclient.testing.network import CLIENTS, Cut, DirectoryRoutes, ProxyNetwork, proxies

# Seconds between two probes of a member: how soon a change that the supervisor did not make is seen.
_PROBE = 0.1
_NEVER = 10**9
# Options of the members' own connections: only the routes that can be cut, and short delays.
_PEER_OPTIONS = (
    "redirects=none&pushed_members=ignore&backoff_base=0.02&backoff_max=0.25&attempt_timeout=2&heartbeat=2"
)
# Seconds to wait for a takeover, which takes milliseconds; after that the dead member restarts anyway.
_TAKEOVER = 10.0
PATIENCE = 30.0
FIRST = "member-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetup:
    """The configuration of a cluster.

    :param members: the number of members.
    :param users: names and passwords of clients.
    :param anonymous: whether clients may connect without a name; ``None`` allows it only without ``users``.
    :param backup_timeout: seconds until the primary continues without a backup that acknowledges nothing.
    :param serve_arguments: more arguments for each member's ``broker-stub serve``.
    """

    members: int = 2
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    anonymous: bool | None = None
    backup_timeout: float = 2.0
    serve_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ValueError(f"members={self.members}: a cluster has one at least")


class Cluster:
    """A running cluster, made by ``cluster``."""

    def __init__(self, setup: ClusterSetup, folder: Path, network: ProxyNetwork, names: list[str]) -> None:
        self._network = network
        self._arbiter = DirectoryRoutes(folder, names)
        self._killed: set[str] = set()
        self._stopped: set[str] = set()
        self._cut: set[str] = set()
        self._returning: set[asyncio.Task[None]] = set()
        self._failed: list[str] = []
        addresses = network.client_addresses()
        listen = tuple(parse_endpoint(address) for address in addresses)
        options = LocalClusterOptions(
            listen=listen,
            passwords=setup.users,
            anonymous=setup.anonymous,
            restart=False,
            probe_interval=_PROBE,
            probes_missed=_NEVER,
            store=folder,
            backup_timeout=setup.backup_timeout,
            serve_arguments=setup.serve_arguments,
            member_arguments={
                name: (*self._arguments(name), "--advertise", address)
                for name, address in zip(names, addresses, strict=True)
            },
        )
        self.pair = LocalCluster(options, on_event=self._heard)

    def _arguments(self, name: str) -> tuple[str, ...]:
        arguments = ("--listen", self._network.listen(name), "--arbiter", self._arbiter.member_url(name))
        others = self._network.peer_addresses(name)
        if not others:
            return arguments
        return (*arguments, "--broker-url", f"amqp://{','.join(others)}/?{_PEER_OPTIONS}")

    def _heard(self, event: LocalClusterEvent) -> None:
        if event.kind == "failed":
            self._failed.append(f"{event.member}: {event.detail}")

    # -- looking --------------------------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        """Return ``host:port`` of each member, for clients."""
        return [member.address.authority for member in self.pair.members]

    @property
    def primary(self) -> Member | None:
        """Return the primary, or ``None`` if it is out of service."""
        primary = self.pair.primary
        return None if primary is None or self._is_out(primary) else primary

    def member(self, name: str) -> Member:
        """Return a member by its name.

        :raises ValueError: when there is none of that name.
        """
        for member in self.pair.members:
            if member.name == name:
                return member
        names = ", ".join(member.name for member in self.pair.members)
        raise ValueError(f"there is no member {name!r}; there are {names}")

    def the_primary(self) -> Member:
        """Return the primary.

        :raises RuntimeError: when there is none.
        """
        if (primary := self.primary) is None:
            raise RuntimeError(f"there is no primary now: {self.states()}")
        return primary

    def _chosen(self, name: str | None) -> Member:
        return self.member(name) if name else self.the_primary()

    def states(self) -> str:
        """Return every member's state as readable text."""
        return ", ".join(f"{member.name} {self._state(member)}" for member in self.pair.members)

    def _state(self, member: Member) -> str:
        notes = {"stopped": self._stopped, "cut off": self._cut}
        return " and ".join((str(member.state), *(note for note, who in notes.items() if member.name in who)))

    @property
    def _out(self) -> set[str]:
        return self._killed | self._stopped | self._cut

    def _is_out(self, member: Member) -> bool:
        return member.name in self._out

    async def whole(self, timeout: float = PATIENCE) -> None:
        """Wait until there is a primary, and every other member in service is a ready backup of it.

        :raises TimeoutError: when the time limit ends before; the text has every member's state.
        """
        try:
            async with asyncio.timeout(timeout):
                await self.pair.wait_until(lambda _: self._agreed(), timeout)
                while not await self._replicated():  # noqa: ASYNC110 - it is asked over the wire
                    await asyncio.sleep(_PROBE)
        except TimeoutError:
            failed = f"; {self._failed[-1]}" if self._failed else ""
            raise TimeoutError(f"not ready after {timeout:g} s: {self.states()}{failed}") from None

    def _agreed(self) -> bool:
        """Return whether all members have their roles and know the primary.

        With members out of service the second check is skipped: a waiting supervisor informs no other member.
        """
        primary = self.primary
        return (
            primary is not None
            and primary.alive
            and all(member.state is MemberState.READY for member in self._others(primary))
            and (
                bool(self._out) or all(member.follows == primary.address for member in self._others(primary))
            )
        )

    def _others(self, primary: Member) -> list[Member]:
        return [member for member in self.pair.members if member is not primary and not self._is_out(member)]

    async def _replicated(self) -> bool:
        """Return whether the primary confirms it: one that was stopped has missed all changes meanwhile."""
        with suppress(AdminError):
            if not self._agreed():
                return False
            primary = self.the_primary()
            async with await self._admin(primary) as admin:
                status = await admin.status()
            replicas = status.facts["replication"]["replicas"]
            ready = {replica["name"] for replica in replicas if replica["phase"] == "ready"}
            return ready >= {member.name for member in self._others(primary)}
        return False

    def log(self, name: str) -> str:
        """Return the output of a member so far."""
        path = self.pair.directory / f"{self.member(name).name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- actions on a member by name, or on the primary; most return the name ---------------------

    async def kill(self, name: str | None, *, restart: bool) -> str:
        """Send SIGKILL; return when the member is dead.

        :param restart: start it again when another member is primary.
        """
        member = self._chosen(name)
        self._killed.add(member.name)
        self._stopped.discard(member.name)
        await member.process.kill()
        await self.pair.wait_until(lambda _: member.state is MemberState.DEAD, PATIENCE)
        if restart:
            self._killed.discard(member.name)
            task = asyncio.create_task(self._bring_back(member), name=f"bring back {member.name}")
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)
        return member.name

    async def _bring_back(self, member: Member) -> None:
        def settled(pair: LocalCluster) -> bool:
            return pair.primary is not None or not any(each.alive for each in pair.members)

        with suppress(TimeoutError):
            await self.pair.wait_until(settled, _TAKEOVER)
        self.pair.restart(member)

    async def restart(self) -> None:
        """Start every dead member that is not cut off; return when they run."""
        await self._leave_dead()
        members = self.pair.members
        dead = [each for each in members if each.state is MemberState.DEAD and each.name not in self._cut]
        for member in dead:
            self._killed.discard(member.name)
            self.pair.restart(member)
        await self.pair.wait_until(lambda _: all(member.alive for member in dead), PATIENCE)

    async def pause(self, name: str | None) -> str:
        """Send SIGSTOP; return when the member is stopped."""
        member = self._chosen(name)
        pid = member.pid
        if pid is None:
            raise RuntimeError(f"{member.name} is {member.state}: only one that runs can be stopped")
        self._stopped.add(member.name)
        member.process.signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        return member.name

    def resume(self) -> None:
        """Send SIGCONT to every stopped member."""
        for name in self._stopped:
            self.member(name).process.signal(signal.SIGCONT)
        self._stopped.clear()

    def cut_off(self, name: str | None, how: Cut) -> str:
        """Cut a member off from clients, the other members, the arbiter and the supervisor."""
        member = self._chosen(name)
        self._cut.add(member.name)
        for other in (CLIENTS, *(each.name for each in self.pair.members if each is not member)):
            self._network.cut(member.name, other, how)
        self._arbiter.cut(member.name, how)
        return member.name

    def heal(self) -> None:
        """Undo every ``cut_off``."""
        self._arbiter.heal()
        self._network.heal()
        self._cut.clear()

    async def promote(self, name: str | None) -> str:
        """Make a member primary; a current primary hands over, one that is out of service is not asked.

        :param name: ``None`` for the first backup in service.
        :raises RuntimeError: when there is none.
        :raises broker_stub.management_client.AdminError: when the member refuses, or does not answer.
        """
        backup = self.member(name) if name else self._first_backup()
        if self.primary is not None:
            await self.pair.promote(backup)
        else:
            await self._promote_unasked(backup)
        return backup.name

    async def _promote_unasked(self, backup: Member) -> None:
        async with self.pair.deciding:
            if not backup.state.serves:
                async with await self._admin(backup) as admin:
                    await admin.promote(at_least=self.pair.generation + 1)
        await self.pair.wait_until(lambda _: backup.state is MemberState.PRIMARY, PATIENCE)

    def _first_backup(self) -> Member:
        for member in self.pair.members:
            if member is not self.pair.primary and member.alive and not self._is_out(member):
                return member
        raise RuntimeError(f"there is no backup to promote: {self.states()}")

    async def restore(self) -> None:
        """Reset the cluster: every member in service and ready, no queues, no exchanges."""
        self.heal()
        self.resume()
        await self.restart()
        await self.whole()
        async with await self._admin(self.the_primary()) as admin:
            for kind in (QUEUE_TYPE, EXCHANGE_TYPE):
                for each in await admin.query(kind):
                    if not each.get("temporary"):
                        await admin.delete(kind, each["name"])

    async def close(self) -> None:
        """End every process."""
        await self._leave_dead()
        await asyncio.gather(*(member.process.kill() for member in self.pair.members))
        await self.pair.stop()

    async def _leave_dead(self) -> None:
        for task in self._returning:
            task.cancel()
        await asyncio.gather(*self._returning, return_exceptions=True)

    async def _admin(self, member: Member) -> AdminClient:
        return await AdminClient.connect(member.address, self.pair.credentials)


@asynccontextmanager
async def cluster(setup: ClusterSetup) -> AsyncIterator[Cluster]:
    """Start a cluster; it is whole when the body starts."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(scratch_directory.temporary(f"{scratch_directory.PREFIX}testing-"))
        names = _names(setup.members)
        network = await stack.enter_async_context(proxies(names))
        made = Cluster(setup, folder, network, names)
        stack.push_async_callback(made.close)
        await made.pair.start()
        await made.whole()
        yield made


def _names(count: int) -> list[str]:
    """Return the names that the supervisor gives its members."""
    return [f"member-{number}" for number in range(1, count + 1)]
