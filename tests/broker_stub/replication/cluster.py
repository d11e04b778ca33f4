"""A manually operated cluster: real member processes, stores and an arbiter, and no supervisor.

    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await a.kill()
        await b.promote()

Only the test starts, promotes or fences a member.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

import pytest
from proton import Message

from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.local_cluster.member_process import free_addresses
from broker_stub.management_client import (
    AdminClient,
    AdminError,
    MemberRefusedError,
    MemberStatus,
    MemberUnreachableError,
)
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from tests import stores
from tests.broker_stub.statuses import status_with_queues
from tests.forked import ForkedMember

T = TypeVar("T")

ADMIN = Credentials(user=DEFAULT_ADMIN, password="the password of the cluster's admin")
USER = ("alice", "the password of alice")
PATIENCE = 30.0
_LOOK_AGAIN = 0.02


class Member:
    """One member; ``start`` it, and start it again after its end."""

    def __init__(
        self,
        name: str,
        address: Endpoint,
        folder: Path,
        arguments: Iterable[str],
        wrapper: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.address = address
        self.arguments = tuple(arguments)
        self.store = folder / name
        self.log_file = folder / f"{name}.log"
        own = ("--listen", address.authority, "--name", name, "--store", str(self.store))
        self.process = ForkedMember((*own, *self.arguments), self.log_file, wrapper=wrapper)
        self._admin: AdminClient | None = None

    @property
    def url(self) -> str:
        """The URL of this member alone."""
        return f"amqp://{self.address.authority}"

    @property
    def log(self) -> str:
        """The log of all its lives."""
        return self.log_file.read_text()

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process; it then looks for a primary."""
        await self.process.start()

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._hang_up()
        await self.process.kill()

    async def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        self._hang_up()
        await self.process.stop()

    def pause(self) -> None:
        """Send SIGSTOP; return when the process is stopped."""
        self.process.pause()

    def resume(self) -> None:
        """Send SIGCONT."""
        self.process.signal(signal.SIGCONT)

    def _hang_up(self) -> None:
        if self._admin is not None:
            self._admin.abort()
            self._admin = None

    # -- management -----------------------------------------------------------------------------

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Send a management request."""
        return await self._ask(lambda admin: admin.call(operation, **arguments))

    async def _ask(self, question: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Send a request over a connection that is reopened after a loss."""
        if self._admin is None:
            self._admin = await AdminClient.connect(self.address, ADMIN, timeout=PATIENCE)
        try:
            return await question(self._admin)
        except MemberUnreachableError:
            self._hang_up()
            raise

    async def status(self) -> MemberStatus:
        """Return its status with its queues."""
        return await self._ask(status_with_queues)

    async def promote(self, *, force: bool = False) -> MemberStatus:
        """:raises MemberRefusedError: with the reason."""
        status = MemberStatus.of(await self.call("PROMOTE", generation=0, force=force))
        return status if status.role == "primary" else await self.until("primary")

    async def refused(self, reason: str) -> None:
        """Try to promote it; assert that it refuses with this reason (a regular expression)."""
        with pytest.raises(MemberRefusedError, match=reason):
            await self.promote()

    async def demote(self) -> None:
        await self.call("DEMOTE", primary=None)

    async def until(self, what: str | Callable[[MemberStatus], bool]) -> MemberStatus:
        """Wait for a role, or for another condition of the status."""
        status = None
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        status = await self.status()
                    except AdminError:
                        self._hang_up()
                    else:
                        if status.role == what if isinstance(what, str) else what(status):
                            return status
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            facts = None if status is None else status.facts
            raise AssertionError(f"{self.name} is not {what}: {facts}\n{self.log[-3000:]}") from None

    async def said(self, text: str, times: int = 1) -> None:
        """Wait until its log has a text ``count`` times."""
        try:
            async with asyncio.timeout(PATIENCE):
                while self.log.count(text) < times:  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(_LOOK_AGAIN)
        except TimeoutError:
            raise AssertionError(f"{self.name} has not said {text!r}:\n{self.log[-3000:]}") from None

    async def depth(self, queue: str) -> int | None:
        """Return the number of messages in a queue, ``None`` if there is no such queue."""
        return depth(await self.status(), queue)


def depth(status: MemberStatus, queue: str) -> int | None:
    return next((each["depth"] for each in status.facts["queues"] if each["name"] == queue), None)


class Cluster:
    """Members with those names; none runs before it is started.

    :param arbiter: its URL; by default a directory's.
    :param wrappers: by member name, a command that executes the member.
    """

    def __init__(
        self,
        folder: Path,
        names: tuple[str, ...] = ("a", "b"),
        *,
        arbiter: str | None = None,
        backup_timeout: float = 10.0,
        arguments: tuple[str, ...] = (),
        wrappers: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        (folder / "arbiter").mkdir()
        self.password_file = folder / "cluster-admin.password"
        self.password_file.write_text(ADMIN.password)
        addresses = free_addresses((Endpoint("127.0.0.1", 0),) * len(names))
        shared = ["--users", str(folder / "users"), "--anonymous", "--password-file", str(self.password_file)]
        shared += ["--arbiter", arbiter or f"directory:{folder / 'arbiter'}"]
        shared += ["--backup-timeout", str(backup_timeout), *arguments]
        for address in addresses:
            shared += ["--member", address.authority]
        self.members = tuple(
            Member(n, address, folder, shared, wrappers.get(n, ()))
            for n, address in zip(names, addresses, strict=True)
        )

    @property
    def url(self) -> str:
        return "amqp://" + ",".join(member.address.authority for member in self.members)

    async def pair(self) -> tuple[Member, Member]:
        """Start the first two: a primary in generation 1, and a backup that is ready."""
        first, second, *_ = self.members
        await asyncio.gather(first.start(), second.start())
        await first.promote()
        await second.until("ready")
        return first, second

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(
            write_users, self._folder / "users", {DEFAULT_ADMIN: ADMIN.password, USER[0]: USER[1]}
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            await member.kill()


# -- clients ----------------------------------------------------------------------------------------


async def send(member: Member, queue: str, *bodies: Any, **properties: Any) -> None:
    """Send to one member; return when all messages are settled."""
    async with asyncio.timeout(PATIENCE), aio.connect(member.url) as connection:
        sender = await connection.create_sender(queue)
        await asyncio.gather(*[await sender.submit(Message(body=b, **properties)) for b in bodies])


async def take(member: Member, queue: str) -> list[Message]:
    """Receive and accept all messages of a queue."""
    count = await member.depth(queue)
    async with asyncio.timeout(PATIENCE), aio.connect(member.url) as connection:
        receiver = await connection.create_receiver(queue)
        taken = []
        for _ in range(count or 0):
            delivery = await receiver.receive()
            taken.append(delivery.message)
            await delivery.accept()
    await member.until(lambda status: not depth(status, queue))
    return taken


async def bodies(member: Member, queue: str) -> list[Any]:
    """Receive and accept all messages of a queue; return their bodies."""
    return [message.body for message in await take(member, queue)]


async def stop_equal(*members: Member) -> dict[str, list[stores.Row]]:
    """Stop the members, the primary first; return their stores' contents, which must be equal."""
    for member in members:
        await member.stop()
    first, *others = [await stores.contents(member.store) for member in members]
    for other in others:
        assert other == first
    return first
