"""The cluster of a storm: a local pair of its own, or an existing one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from benchmarks.storm.member_lines import Served, served_between
from broker_stub import scratch_directory
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions, Member
from haclient.cluster_url.endpoint import Endpoint

# A backup that takes over, on a busy machine.
_PATIENCE = 60.0


class EnvironmentUnavailable(RuntimeError):
    """The cluster cannot be used."""


class Environment(Protocol):
    """The cluster that clients connect to, and how to kill its primary."""

    @property
    def url(self) -> str:
        """The cluster URL for clients, without options."""

    def served(self, killed_at: float, over_at: float) -> Served | None:
        """Who followed the killed primary, when, and whom it served; ``None`` for unknown."""

    def primary(self) -> str:
        """``host:port`` of the primary, empty for unknown."""

    def processes(self) -> Mapping[str, int]:
        """The members' process ids by name, as far as they are known."""

    def primary_process(self) -> int | None:
        """The primary's process id, if it is known."""

    def parked(self) -> int | None:
        """How many connections the passive members have parked; ``None`` for unknown."""

    def accept_rate(self) -> float | None:
        """Connections a second that the primary admits, by its status; ``None`` for no limit, or unknown."""

    async def start(self) -> None:
        """Ready for clients when it returns."""

    async def kill(self) -> float:
        """Kill the primary; when it was dead, by the monotonic clock."""

    async def follow(self) -> None:
        """Let another member become primary; returns when one is."""

    async def stop(self) -> None:
        """Leave nothing behind."""


class LocalPair:
    """Members of its own, with the supervisor that ``broker-stub pair`` uses.

    :param serve_arguments: more arguments for every member's ``serve``.
    :param restart: whether the killed member is started again, as a backup.
    """

    def __init__(
        self, folder: Path, *, members: int = 2, serve_arguments: tuple[str, ...] = (), restart: bool = True
    ) -> None:
        self._telemetry = folder / "members"
        arguments = ("--telemetry", str(self._telemetry), "--log-level", "error", *serve_arguments)
        listen = (Endpoint("127.0.0.1", 0),) * members
        # A dead member that is back before another is promoted could be promoted itself.
        self._pair = LocalCluster(
            LocalClusterOptions(listen=listen, serve_arguments=arguments, restart=False)
        )
        self._restart = restart
        self._held = False
        self._killed: Member | None = None

    @property
    def pair(self) -> LocalCluster:
        """The supervisor."""
        return self._pair

    @property
    def url(self) -> str:
        """The cluster URL for clients."""
        return self._pair.url

    def served(self, killed_at: float, over_at: float) -> Served | None:
        """Who followed, and whom it served, by the members' telemetry."""
        return served_between(self._telemetry, killed_at, over_at)

    def primary(self) -> str:
        """``host:port`` of the primary."""
        primary = self._pair.primary
        return "" if primary is None else primary.address.authority

    def processes(self) -> Mapping[str, int]:
        """The members' process ids by name."""
        return {member.name: member.pid for member in self._pair.members if member.pid is not None}

    def primary_process(self) -> int | None:
        """The primary's process id."""
        primary = self._pair.primary
        return None if primary is None else primary.pid

    def parked(self) -> int:
        """How many connections the passive members have parked, by the last probes."""
        others = (member for member in self._pair.members if member is not self._pair.primary)
        return sum(_entrance(member)["parked_now"] for member in others if member.status is not None)

    def accept_rate(self) -> float | None:
        """Connections a second that the primary admits, by the last probe."""
        primary = self._pair.primary
        rate = None if primary is None or primary.status is None else _entrance(primary)["rate"]
        return None if rate is None else float(rate)

    async def start(self) -> None:
        """Start the members and wait until the backups are ready."""
        await self._pair.start()
        await self._pair.wait_ready(_PATIENCE)

    async def kill(self) -> float:
        """SIGKILL; no member is promoted before ``follow``."""
        await self._pair.deciding.acquire()
        self._held = True
        self._killed = await self._pair.kill_primary()
        killed_at = time.monotonic()
        await self._pair.wait_until(lambda pair: pair.primary is None, _PATIENCE)
        return killed_at

    async def follow(self) -> None:
        """Let the supervisor select a primary, and start the dead member again."""
        self._let_go()
        await self._pair.wait_until(lambda pair: pair.primary is not None, _PATIENCE)
        if self._restart and self._killed is not None:
            self._pair.restart(self._killed)

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            self._pair.deciding.release()

    async def stop(self) -> None:
        """Stop the members."""
        self._let_go()
        await self._pair.stop()


def _entrance(member: Member) -> Mapping[str, Any]:
    """What a member reports of its admission."""
    assert member.status is not None, "asked for members with a status only"
    facts: Mapping[str, Any] = member.status.facts["entrance"]
    return facts


class ExistingCluster:
    """A cluster that runs already: its URL, and a shell command that kills its primary.

    Who follows, and when, is that cluster's business.
    """

    def __init__(self, url: str, kill_command: str) -> None:
        self.url = url
        self._kill_command = kill_command

    def served(self, killed_at: float, over_at: float) -> None:
        """Unknown."""

    def primary(self) -> str:
        """Unknown."""
        return ""

    def processes(self) -> Mapping[str, int]:
        """Unknown."""
        return {}

    def primary_process(self) -> None:
        """Unknown."""

    def parked(self) -> None:
        """Unknown."""

    def accept_rate(self) -> None:
        """Unknown."""

    async def start(self) -> None:
        """It runs already."""

    async def kill(self) -> float:
        """Run the command and wait for its end.

        :raises EnvironmentUnavailable: when it fails.
        """
        process = await asyncio.create_subprocess_shell(self._kill_command)
        if code := await process.wait():
            raise EnvironmentUnavailable(f"{self._kill_command!r} ended with exit code {code}")
        return time.monotonic()

    async def follow(self) -> None:
        """Not ours to do."""

    async def stop(self) -> None:
        """It goes on."""


def folder() -> AbstractContextManager[Path]:
    """Where a storm keeps its files while it runs."""
    return scratch_directory.temporary(f"{scratch_directory.PREFIX}storm-")
