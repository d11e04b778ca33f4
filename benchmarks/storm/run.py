"""Runs a storm: connect all clients, kill the primary, wait for all clients, count every message."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from benchmarks.storm import environment, processors
from benchmarks.storm.drain import take_all
from benchmarks.storm.environment import Environment, ExistingCluster, LocalPair
from benchmarks.storm.figures import Facts, Figures, figures
from benchmarks.storm.fleet import Fleet, FleetError, FleetPlan, Kind
from benchmarks.storm.flood import Flood, FloodPlan, Layout, newcomers
from benchmarks.storm.footprint import Watch
from benchmarks.storm.lines import Command, body
from benchmarks.storm.results import Results, count_up

Standby = Literal["none", "outage", "warm"]

# First dials a second, and messages a second before the kill: calm enough for a pair on two cores.
_CALM_DIALS = 300.0
# Share of the accept rate: no client may be refused before the storm.
_CALM_SHARE = 0.8
_CALM_MESSAGES = 500.0
_SHORTEST_BEFORE_KILL = 2.0
# The minimal wait for the last lines, in seconds, even after the deadline.
_GRACE = 1.0
# Processors that a separate placement needs.
_APART = 2


class Screen(Protocol):
    """Shows progress."""

    def phase(self, text: str, total: int) -> None:
        """Begin a new phase with that total."""

    def done(self, count: int) -> None:
        """Report that so many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a storm.

    :param accept_rate: connections a second that a local member admits, as in ``--accept-rate``;
        empty for the member's default.
    :param standby: the URL option of that name; ``None`` for the client's default.
    :param delays: the preset whose delays clients of this project wait, instead of their own.
    :param address: the queue that they send to.
    :param options: more URL options for clients of this project, as text.
    :param outage: seconds between the kill and the start of the promotion.
    :param messages: messages of each client, half of them before the kill.
    :param deadline: seconds after the kill; clients that return later count as not back.
    :param established: connected senders whose messages are timed during a flood of newcomers; 0 for
        no such flood.
    :param apart: True for a second flood, with the primary kept apart (``flood.Layout``).
    :param url: a cluster that runs already; empty for a local pair.
    :param kill_command: kills that cluster's primary.
    """

    kind: Kind = "haclient"
    connections: int = 1_000
    processes: int = 2
    standby: Standby | None = None
    accept_rate: str = ""
    delays: str = ""
    address: str = "storm"
    options: str = ""
    outage: float = 3.0
    messages: int = 2
    seed: int = 1
    deadline: float = 120.0
    established: int = 0
    apart: bool = False
    members: int = 2
    url: str = ""
    kill_command: str = ""
    node_modules: Path | None = None

    @property
    def name(self) -> str:
        """The name of the storm in tables and plots."""
        if self.delays:
            return f"{self.kind}, delays of {self.delays}"
        return self.kind if self.standby is None else f"{self.kind}, standby={self.standby}"

    @property
    def before_kill(self) -> float:
        """Seconds from the first message to the kill."""
        return max(_SHORTEST_BEFORE_KILL, self.connections * self.messages / _CALM_MESSAGES / 2)

    def url_for(self, cluster: str) -> str:
        """Return the URL of the clients."""
        if self.kind != "haclient":
            return cluster
        standby = f"standby={self.standby}" if self.standby is not None else ""
        # Thousands of simultaneous first connects are no sign of a wrong URL.
        options = "&".join(filter(None, ("startup_deadline=none", standby, self.options)))
        return f"{cluster}{'&' if '?' in cluster else '?'}{options}"

    def fleet(self, cluster: str) -> FleetPlan:
        """Return the plan of the clients."""
        return FleetPlan(
            kind=self.kind,
            clients=self.connections,
            url=self.url_for(cluster),
            processes=self.processes,
            address=self.address,
            delays=self.delays,
            seed=self.seed,
            node_modules=self.node_modules,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a storm, and of any floods after it.

    :param defects: the errors of the clients' library that ended its loop, with their counts.
    """

    figures: Figures
    flood: Flood | None
    given_up: tuple[str, ...]
    apart: Flood | None = None
    defects: tuple[str, ...] = ()


async def run(plan: Plan, screen: Screen, cluster: Environment | None = None) -> Outcome:
    """Run a storm.

    :param cluster: the cluster of the clients; by default the plan's.
    :raises EnvironmentUnavailable, FleetError: if the cluster or the workers fail.
    """
    with environment.folder() as folder:
        cluster = cluster or _environment(plan, folder)
        results = Results()
        storm_run = _StormRun(plan, cluster, results, screen)
        screen.phase("starting", 1)
        try:
            await cluster.start()
            async with Watch(cluster.processes) as watch:
                await storm_run.run(folder / "workers.log")
                flood, apart = await _floods(plan, cluster, folder, screen)
        finally:
            await cluster.stop()
        served = cluster.served(storm_run.killed_at, storm_run.over_at)
        facts = Facts(
            name=plan.name,
            results=results,
            clients=storm_run.hit,
            killed_at=storm_run.killed_at,
            primary=storm_run.primary,
            accept_rate=storm_run.accept_rate,
            served=served,
            came=storm_run.came,
            footprints=watch.most,
        )
        defects = tuple(f"{count} times: {why}" for why, count in results.defects.items())
        return Outcome(figures(facts), flood, results.reasons, apart, defects)


def _environment(plan: Plan, folder: Path) -> Environment:
    if plan.url:
        return ExistingCluster(plan.url, plan.kill_command)
    arguments = ("--accept-rate", plan.accept_rate) if plan.accept_rate else ()
    return LocalPair(folder, members=plan.members, serve_arguments=arguments)


async def _floods(
    plan: Plan, cluster: Environment, folder: Path, screen: Screen
) -> tuple[Flood | None, Flood | None]:
    if not plan.established:
        return None, None
    flood = await _flood(plan, cluster, folder, screen, None)
    layout = _layout(cluster) if plan.apart else None
    return flood, None if layout is None else await _flood(plan, cluster, folder, screen, layout)


def _layout(cluster: Environment) -> Layout | None:
    primary, available = cluster.primary_process(), tuple(processors.available())
    if primary is None or len(available) < _APART:
        return None
    others = tuple(pid for pid in cluster.processes().values() if pid != primary)
    return Layout(primary, others, available)


async def _flood(
    plan: Plan, cluster: Environment, folder: Path, screen: Screen, layout: Layout | None
) -> Flood:
    flood = FloodPlan(
        established=plan.established,
        newcomers=plan.connections,
        processes=plan.processes,
        url=plan.url_for(cluster.url),
        seed=plan.seed,
        deadline=plan.deadline,
        members=tuple(cluster.processes().values()),
        layout=layout,
    )
    screen.phase("newcomers at the live primary", plan.connections)
    return await newcomers(flood, screen.done, folder / "flood.log")


class _StormRun:
    """The steps of one storm.

    :ivar hit: the clients that were connected when the primary was killed.
    :ivar came: how often each message was in the queue after the storm.
    """

    def __init__(self, plan: Plan, cluster: Environment, results: Results, screen: Screen) -> None:
        self._plan = plan
        self._cluster = cluster
        self._fleet: Fleet
        self._results = results
        self._screen = screen
        self.killed_at = self.over_at = 0.0
        self.hit: tuple[int, ...] = ()
        self.primary = ""
        self.accept_rate: float | None = None
        self.came: Counter[str] = Counter()

    async def run(self, log: Path) -> None:
        """Run every step, from the first dial to the last message."""
        self._fleet = Fleet(self._plan.fleet(self._cluster.url), self._results.note, log)
        try:
            await self._fleet.start()
            await self._everybody_in()
            await self._kill()
            await self._everybody_back()
        finally:
            await self._fleet.stop()
        await self._count_messages()

    async def _everybody_in(self) -> None:
        plan, results = self._plan, self._results
        pace = min(_CALM_DIALS, _CALM_SHARE * (self._cluster.accept_rate() or math.inf))
        self._fleet.send(Command("connect", over=plan.connections / pace))
        await self._wait("connecting", lambda: results.inside + results.gave_up, plan.deadline)
        if results.inside < plan.connections:
            first = next(iter(results.reasons), "the others still try")
            raise FleetError(
                f"{results.inside} of {plan.connections} clients connected in {plan.deadline:g} s: {first}"
            )
        if plan.standby == "warm":
            await self._everybody_parked()

    async def _everybody_parked(self) -> None:
        """Wait until each client has its second connection at a passive member."""
        if self._cluster.parked() is not None:
            await self._wait("parking", lambda: self._cluster.parked() or 0, self._plan.deadline)

    async def _kill(self) -> None:
        plan, results = self._plan, self._results
        self._screen.phase("sending", 1)
        self._fleet.send(Command("send", over=2 * plan.before_kill, count=plan.messages))
        await asyncio.sleep(plan.before_kill)
        self.hit = tuple(number for number, client in results.clients.items() if client.is_in)
        self._screen.phase(f"the primary is dead for {plan.outage:g} s", 1)
        self.killed_at = await self._cluster.kill()
        await asyncio.sleep(plan.outage)
        await self._cluster.follow()
        self.primary = self._cluster.primary()

    async def _everybody_back(self) -> None:
        plan, results = self._plan, self._results
        left = plan.deadline + self.killed_at - time.monotonic()
        await self._wait("coming back", lambda: results.back(self.killed_at) + results.gave_up, left)
        self.over_at = time.monotonic()
        self.accept_rate = self._cluster.accept_rate()
        left = max(_GRACE, plan.deadline + self.killed_at - time.monotonic())
        await self._wait(
            "settling", lambda: len(results.settled), left, plan.messages * results.back(self.killed_at)
        )

    async def _count_messages(self) -> None:
        settled = self._results.settled
        self._screen.phase("counting messages", len(settled))
        expected = [body(*key) for key in settled]
        self.came = await take_all(self._cluster.url, self._plan.address, expected, self._screen.done)

    async def _wait(
        self, text: str, count: Callable[[], int], seconds: float, total: int | None = None
    ) -> None:
        """Wait until ``total`` (by default all clients) is counted or the time expires."""
        goal = self._plan.connections if total is None else total
        self._screen.phase(text, goal)

        def checked() -> int:
            if died := self._fleet.died:
                raise FleetError(f"a worker ended: {died}")
            return count()

        await count_up(checked, goal, seconds, self._screen.done)
