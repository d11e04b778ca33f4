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

# Seconds in which a backup takes over on a busy machine.
_PATIENCE = 60.0


class EnvironmentUnavailable(RuntimeError):
    """The cluster cannot be used."""


class Environment(Protocol):
    """The cluster that clients connect to, and how to kill its primary."""

    @property
    def url(self) -> str:
        """The cluster URL for clients, without options."""

    def served(self, killed_at: float, over_at: float) -> Served | None:
        """Return the promoted member's admissions and refusals; ``None`` if unknown."""

    def primary(self) -> str:
        """Return ``host:port`` of the primary, empty if unknown."""

    def processes(self) -> Mapping[str, int]:
        """Return the known process ids of the members, by name."""

    def primary_process(self) -> int | None:
        """Return the primary's process id, if it is known."""

    def parked(self) -> int | None:
        """Count the connections that the passive members have parked; ``None`` if unknown."""

    def accept_rate(self) -> float | None:
        """Return the primary's admissions a second, from its status; ``None`` for no limit, or if unknown."""

    async def start(self) -> None:
        """Start the cluster; return when it accepts clients."""

    async def kill(self) -> float:
        """Kill the primary; return the monotonic time of its death."""

    async def follow(self) -> None:
        """Let another member become primary; return when one has."""

    async def stop(self) -> None:
        """Stop the cluster and remove everything that it started."""


class LocalPair:
    """A cluster of its own members, with the supervisor of ``broker-stub pair``.

    :param serve_arguments: more arguments for every member's ``serve``.
    :param restart: True to start the killed member again, as a backup.
    """

    def __init__(
        self, folder: Path, *, members: int = 2, serve_arguments: tuple[str, ...] = (), restart: bool = True
    ) -> None:
        self._telemetry = folder / "members"
        arguments = ("--telemetry", str(self._telemetry), "--log-level", "error", *serve_arguments)
        listen = (Endpoint("127.0.0.1", 0),) * members
        # If a dead member returned before another is promoted, it could be promoted itself.
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
        """Return the promoted member's admissions and refusals, from the members' telemetry."""
        return served_between(self._telemetry, killed_at, over_at)

    def primary(self) -> str:
        """Return ``host:port`` of the primary."""
        primary = self._pair.primary
        return "" if primary is None else primary.address.authority

    def processes(self) -> Mapping[str, int]:
        """Return the members' process ids by name."""
        return {member.name: member.pid for member in self._pair.members if member.pid is not None}

    def primary_process(self) -> int | None:
        """Return the primary's process id."""
        primary = self._pair.primary
        return None if primary is None else primary.pid

    def parked(self) -> int:
        """Count the parked connections of the passive members, as of the last probes."""
        others = (member for member in self._pair.members if member is not self._pair.primary)
        return sum(_entrance(member)["parked_now"] for member in others if member.status is not None)

    def accept_rate(self) -> float | None:
        """Return the primary's admissions a second, as of the last probe."""
        primary = self._pair.primary
        rate = None if primary is None or primary.status is None else _entrance(primary)["rate"]
        return None if rate is None else float(rate)

    async def start(self) -> None:
        """Start the members and wait until the backups are ready."""
        await self._pair.start()
        await self._pair.wait_ready(_PATIENCE)

    async def kill(self) -> float:
        """Kill the primary with SIGKILL; no member is promoted before ``follow``."""
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
    """Return a member's admission section of its status."""
    assert member.status is not None, "asked for members with a status only"
    facts: Mapping[str, Any] = member.status.facts["entrance"]
    return facts


class ExistingCluster:
    """A running cluster: its URL, and a shell command that kills its primary.

    The cluster itself decides which member follows, and when.
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
        """Do nothing: the cluster runs already."""

    async def kill(self) -> float:
        """Run the command and wait for its end.

        :raises EnvironmentUnavailable: if the command fails.
        """
        process = await asyncio.create_subprocess_shell(self._kill_command)
        if code := await process.wait():
            raise EnvironmentUnavailable(f"{self._kill_command!r} ended with exit code {code}")
        return time.monotonic()

    async def follow(self) -> None:
        """Do nothing: the cluster promotes a member itself."""

    async def stop(self) -> None:
        """Do nothing: the cluster keeps running."""


def folder() -> AbstractContextManager[Path]:
    """Make a temporary folder for the files of a storm."""
    return scratch_directory.temporary(f"{scratch_directory.PREFIX}storm-")
