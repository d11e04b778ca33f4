"""Supervises a local cluster: keeps its members running, and one of them primary.

Theory of operation
-------------------
One task per member keeps its process running and probes it. One more task (``primary_selector``) keeps one
member primary.

Rules
-----
* A member counts as dead only when its process has ended. The supervisor kills a member that does not answer
  (fencing), so that there are never two primaries.
* The kernel kills the members when the supervisor ends for any reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import shutil
import signal
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from broker_stub import scratch_directory
from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.local_cluster.certificates import CertificateFiles, prepare
from broker_stub.local_cluster.managed_members import ManagedMembers
from broker_stub.local_cluster.member_process import MemberProcess, MemberStartError, free_addresses
from broker_stub.local_cluster.primary_selector import PrimarySelector
from broker_stub.local_cluster.state import (
    DEFAULT_OPTIONS,
    LocalClusterEvent,
    LocalClusterOptions,
    Member,
    MemberState,
)
from broker_stub.management_client import (
    DEFAULT_TIMEOUT,
    AdminClient,
    AdminError,
    MemberStatus,
)
from broker_stub.permissions import DIRECTORY_MODE
from haclient import Credentials
from haclient.cluster_url.endpoint import Endpoint
from haclient.printable.log import get_logger

__all__ = ["LocalCluster", "LocalClusterEvent", "LocalClusterOptions", "Member", "MemberState", "describe"]

logger = get_logger("broker_stub.local_cluster.supervisor")

# Seconds between two attempts to start a member.
_RETRY_PAUSE = 0.5


class LocalCluster:
    """Runs the members; ``async with LocalCluster() as cluster`` is ready when the body starts."""

    def __init__(
        self,
        options: LocalClusterOptions = DEFAULT_OPTIONS,
        *,
        on_event: Callable[[LocalClusterEvent], None] | None = None,
    ) -> None:
        self.options = options
        self._managed = ManagedMembers(on_event)
        self._selector = PrimarySelector(self._managed, self._refresh)
        self._directory: Path | None = None
        self._credentials: Credentials | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None
        self.certificate: CertificateFiles | None = None
        """The certificates of a cluster with TLS."""

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every member and promote the first one that is running.

        :raises broker_stub.local_cluster.certificates.CertificateError: if it cannot make certificates.
        :raises OSError: if the directory of the stores cannot be written.
        """
        self._directory = await asyncio.to_thread(scratch_directory.make, "broker-stub-pair-")
        password = secrets.token_urlsafe(24)
        self._credentials = Credentials(user=DEFAULT_ADMIN, password=password)
        self.password_file.touch(mode=0o600)
        self.password_file.write_text(password)
        users = {**self.options.passwords, DEFAULT_ADMIN: password}
        self._users_file.touch(mode=0o600)
        if self.options.users_file is not None:
            self._users_file.write_bytes(self.options.users_file.read_bytes())
        await asyncio.to_thread(write_users, self._users_file, users)
        if self.options.tls:
            await asyncio.to_thread(self._prepare_tls)
        addresses = free_addresses(self.options.listen)
        if self.options.tls:
            addresses = tuple(replace(address, tls=True) for address in addresses)
        names = (f"member-{number}" for number in range(1, len(addresses) + 1))
        members = (self._member(n, a, addresses) for n, a in zip(names, addresses, strict=False))
        self._managed.members = tuple(members)
        self._supervisor = asyncio.create_task(self._supervise(), name="broker_stub local cluster")
        self._supervisor.add_done_callback(lambda _task: self._managed.notify())

    def _prepare_tls(self) -> None:
        hosts = [address.host for address in self.options.listen]
        self.certificate = prepare(self._data / "tls", hosts)
        self._tls = ssl.create_default_context(cafile=self.certificate.ca)

    def _member(self, name: str, address: Endpoint, addresses: tuple[Endpoint, ...]) -> Member:
        options = self.options
        arguments = ["--listen", str(address), "--name", name, "--cluster", options.cluster]
        arguments += ["--users", str(self._users_file), "--loop", options.loop]
        arguments += self._replication(name)
        for other in addresses:
            arguments += ["--member", str(other)]
        if (files := self.certificate) is not None:
            arguments += ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
            arguments += ["--tls-ca", str(files.ca)]
        # Every member has users, at least the cluster-admin, so ``serve`` would refuse anonymous clients.
        arguments.append("--anonymous" if options.lets_anonymous_in else "--no-anonymous")
        arguments += [*options.serve_arguments, *options.member_arguments.get(name, ())]
        log = self.directory / f"{name}.log"
        process = MemberProcess(arguments, log, wrapper=options.wrappers.get(name, ()))
        return Member(name, address, process)

    def _replication(self, name: str) -> list[str]:
        options = self.options
        if options.arbiter is None:
            self._data.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            (self._data / "arbiter").mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        store = self.store if options.memory else str(self._data / name)
        arguments = ["--arbiter", self.arbiter, "--store", store]
        arguments += ["--password-file", str(self.password_file)]
        return [*arguments, "--backup-timeout", str(options.backup_timeout)]

    async def stop(self) -> None:
        """Stop the members and remove their temporary files."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        for member in self.members:
            if member.admin is not None:
                member.admin.abort()
        await asyncio.gather(*(member.process.stop() for member in self.members))
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
            await self.wait_ready()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    # -- reading --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The cluster URL for clients."""
        addresses = ",".join(member.address.authority for member in self.members)
        if self.certificate is None:
            return f"amqp://{addresses}"
        return f"amqps://{addresses}/?tls_ca={quote(str(self.certificate.ca))}"

    @property
    def directory(self) -> Path:
        """The directory of the user database and the members' logs, until ``stop``."""
        assert self._directory is not None, "start comes first"
        return self._directory

    @property
    def _data(self) -> Path:
        """The directory of the stores and the arbiter."""
        return self.options.store or self.directory

    @property
    def store(self) -> str:
        """The directory that holds every member's store, or ``memory``."""
        return "memory" if self.options.memory else str(self._data)

    @property
    def arbiter(self) -> str:
        """The URL of the arbiter."""
        return self.options.arbiter or f"directory:{self._data / 'arbiter'}"

    @property
    def _users_file(self) -> Path:
        return self.directory / "users"

    @property
    def password_file(self) -> Path:
        """The file with the cluster-admin's password."""
        return self.directory / "cluster-admin.password"

    @property
    def credentials(self) -> Credentials:
        """The cluster-admin's credentials."""
        assert self._credentials is not None, "start comes first"
        return self._credentials

    @property
    def members(self) -> tuple[Member, ...]:
        """Every member, once started."""
        return self._managed.members

    @property
    def events(self) -> list[LocalClusterEvent]:
        """The events so far."""
        return self._managed.events

    @property
    def generation(self) -> int:
        """The highest generation seen."""
        return self._managed.generation

    @property
    def primary(self) -> Member | None:
        """The primary, or ``None`` while no member is primary."""
        return self._managed.primary

    @property
    def deciding(self) -> asyncio.Lock:
        """A lock that blocks promotions while a test holds it, for an outage of any length."""
        return self._selector.deciding

    @property
    def ready(self) -> bool:
        """Return whether one member is primary and all others are ready and follow it."""
        return self._managed.ready

    async def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the cluster is ``ready``."""
        await self.wait_until(lambda pair: pair.ready, timeout)

    async def wait_until(self, condition: Callable[[LocalCluster], bool], timeout: float = 30.0) -> None:
        """Wait until a condition is true of the cluster.

        :param timeout: seconds; they restart whenever a member reports progress in reading a large store.
        :raises TimeoutError: if it is not true in time; the text has every member's state.
        """
        loop, progress = asyncio.get_running_loop(), self._managed.start_reports
        try:
            async with asyncio.timeout(timeout) as limit:
                while not condition(self):
                    if self._supervisor is not None and self._supervisor.done():
                        self._supervisor.result()
                    await self._managed.wait_for_change()
                    if progress != self._managed.start_reports:
                        progress = self._managed.start_reports
                        limit.reschedule(loop.time() + timeout)
        except TimeoutError:
            states = ", ".join(f"{member.name} {member.state}" for member in self.members)
            raise TimeoutError(f"condition not met within {timeout:g} s: {states}") from None

    # -- acting ---------------------------------------------------------------------------------

    async def promote(self, member: Member, timeout: float = 30.0) -> None:
        """Replace the primary by a member that is ready: a planned switch-over.

        :param timeout: seconds until it serves.
        :raises broker_stub.management_client.AdminError: if it is not ready, or one of the two does not
            answer.
        :raises TimeoutError: if it is promoted, but does not serve in time.
        """
        await self._selector.promote(member)
        await self.wait_until(lambda _pair: member.state is MemberState.PRIMARY, timeout)

    async def kill_primary(self) -> Member:
        """Send SIGKILL to the primary; return when it is dead, before another one is promoted."""
        primary = self._the_primary()
        await primary.process.kill()
        return primary

    def _the_primary(self) -> Member:
        primary = self.primary
        if primary is None:
            raise RuntimeError("there is no primary now")
        return primary

    def restart(self, member: Member) -> None:
        """Start a dead member again (if ``LocalClusterOptions.restart`` is off)."""
        member.restart_requested.set()

    # -- keeping members running ----------------------------------------------------------------

    async def _supervise(self) -> None:
        async with asyncio.TaskGroup() as group:
            for member in self.members:
                group.create_task(self._run_member(member), name=f"run {member.name}")
            group.create_task(self._selector.run(), name="select the primary")

    async def _run_member(self, member: Member) -> None:
        """Start a member, watch it until it ends, and start it again."""
        while True:
            self._managed.set_state(member, MemberState.STARTING)
            member.process.on_progress = functools.partial(self._managed.emit, "starting", member)
            try:
                await member.process.start()
                await self._connect(member)
            except (MemberStartError, AdminError, TimeoutError, OSError) as error:
                await member.process.kill()
                self._managed.emit("failed", member, str(error))
            else:
                await self._watch(member)
            self._managed.set_state(member, MemberState.DEAD)
            if self.options.restart:
                await asyncio.sleep(_RETRY_PAUSE)
            else:
                await member.restart_requested.wait()
            member.restart_requested.clear()

    async def _connect(self, member: Member) -> None:
        member.follows = member.status = None
        # The first connection of a process is slow, because it loads modules: a probe would time out.
        timeout = max(self.options.probe_timeout, DEFAULT_TIMEOUT)
        member.admin = await self._admin_client(member, timeout)
        member.status = await member.admin.status()
        self._managed.emit("started", member, f"process {member.pid}")
        self._managed.set_state(member, MemberState(member.status.role))

    async def _watch(self, member: Member) -> None:
        """Probe the member until its process ends."""
        watches = [
            asyncio.create_task(self._probe(member), name=f"probe {member.name}"),
            asyncio.create_task(self._watch_roles(member), name=f"watch the role of {member.name}"),
        ]
        try:
            code = await member.process.wait()
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.wait(watches)
            if member.admin is not None:
                member.admin.abort()
                member.admin = None
        self._managed.emit("died", member, f"signal {-code}" if code < 0 else f"exit code {code}")

    async def _probe(self, member: Member) -> None:
        missed = 0
        while missed < self.options.probes_missed:
            await asyncio.sleep(self.options.probe_interval)
            try:
                await self._refresh(member)
                missed = 0
            except AdminError as error:
                missed += 1
                self._managed.emit("silent", member, str(error))
        self._managed.emit("fenced", member, f"{missed} probes without an answer: killed")
        member.process.signal(signal.SIGKILL)

    async def _refresh(self, member: Member) -> None:
        """Read a member's status; an operator may have promoted or demoted it."""
        if member.admin is None:
            return  # the member has just died
        try:
            status = await member.admin.status()
        except AdminError:
            if member.admin is not None:
                member.admin.abort()
            member.admin = await self._admin_client(member)
            status = await member.admin.status()
        self._take(member, status)

    async def _admin_client(self, member: Member, connect_timeout: float | None = None) -> AdminClient:
        return await AdminClient.connect(
            member.address,
            self.credentials,
            timeout=self.options.probe_timeout,
            connect_timeout=connect_timeout,
            tls=self._tls,
        )

    async def _watch_roles(self, member: Member) -> None:
        """Read a member's status as soon as it reports a change of its role, before the next probe."""
        async for _role in member.process.role_changes():
            if member.admin is not None:
                with contextlib.suppress(AdminError):  # the probes will report it
                    self._take(member, await member.admin.status())

    def _take(self, member: Member, status: MemberStatus) -> None:
        if status.generation < member.generation:
            return  # this status was read before a promotion, and arrived after it
        member.status = status
        if member.state != status.role:
            self._managed.set_state(member, MemberState(status.role))


def describe(pair: LocalCluster) -> list[dict[str, Any]]:
    """Return every member as plain facts, for printing."""
    return [
        {
            "name": member.name,
            "address": member.address.authority,
            "state": str(member.state),
            "generation": member.generation,
            "pid": member.pid,
            "connections": member.status.connections if member.status is not None else 0,
        }
        for member in pair.members
    ]
