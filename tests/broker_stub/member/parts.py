"""One member and its parts, with a store and an arbiter that tests can make fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from broker_stub.election.arbiter.urls import MemoryArbiter
from broker_stub.election.generation import ArbiterRecord
from broker_stub.election.roles import Membership, Role
from broker_stub.member.member import ClusterOptions, Member, SiteSteps
from broker_stub.queueing.duplicate_detection import DEFAULT_WINDOW
from broker_stub.queueing.nodes import Addresses
from broker_stub.sites.backup_state import BackupState
from broker_stub.sites.reconcile import reconcile
from broker_stub.store import MemoryStore, StoreFailedError
from haclient.telemetry.schema import Kind


class Disk(MemoryStore):
    """A store whose disk hangs, or fails right after it wrote a generation."""

    hangs = False
    fails_after: int | None = None

    def _commit(self) -> None:
        if self.hangs:
            return
        super()._commit()
        if self.fails_after is not None and self._facts.generation == self.fails_after:
            self._commits.fail(StoreFailedError("the disk is gone"))


class Arbiter(MemoryArbiter):
    """An arbiter that is slow, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = asyncio.Event()
        self.error: Exception | None = None

    async def read(self) -> ArbiterRecord:
        if self.error is not None:
            raise self.error
        return await super().read()

    async def compare_and_set(self, expected: ArbiterRecord, new: ArbiterRecord) -> bool:
        self.asked.set()
        await self.answers.wait()
        return await super().compare_and_set(expected, new)


class Nowhere:
    """A factory of connections that finds no primary."""

    def __init__(self) -> None:
        self.searches = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        self.searches += 1
        await asyncio.Event().wait()
        yield None

    async def close(self) -> None: ...


class MemberHost:
    """A broker without a socket."""

    def __init__(self) -> None:
        self.shown: list[Membership] = []
        self.ended = ""
        self.sent_away = ""

    def become(self, membership: Membership) -> None:
        self.shown.append(membership)

    def close_client_connections(self, why: str) -> None:
        self.sent_away = why

    def record(self, kind: Kind, **facts: Any) -> None: ...

    def give_up(self, why: str) -> None:
        self.ended = why


class Parts:
    """One member and its parts, possibly after a restart."""

    def __init__(self, former: Parts | None = None, *, backup_timeout: float = 10.0) -> None:
        self.store = Disk(duplicates=DEFAULT_WINDOW) if former is None else former.store
        self.arbiter = Arbiter() if former is None else former.arbiter
        self.host = MemberHost()
        self.factory = Nowhere()
        self.addresses = Addresses(asyncio.get_running_loop().time)
        options = ClusterOptions(name="a", backup_timeout=backup_timeout)
        self.member = Member(
            options,
            self.host,
            self.addresses,
            self.store,
            self.arbiter,
            lambda _members, _broker_url: self.factory,  # type: ignore[arg-type, return-value]
            SiteSteps(state=BackupState, reconcile=reconcile),
        )

    @property
    def role(self) -> Role:
        return self.member.membership.role
