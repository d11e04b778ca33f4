"""Floods a live primary with newcomers and measures the effect on connected senders.

Some connected senders send all the time and time each message from the call to its settlement: for a
while before the newcomers connect, then until the last newcomer is connected.

On a machine with few processors, the members of a pair wait for each other on one processor while the
newcomers use another.  In production each member and the newcomers have their own machines.  So the flood
counts how long the members waited for processors, and can run again with the primary kept apart
from the others (``Layout``).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from benchmarks.storm import processors
from benchmarks.storm.figures import percentile
from benchmarks.storm.fleet import Fleet, FleetPlan
from benchmarks.storm.lines import Command
from benchmarks.storm.processors import Turns
from benchmarks.storm.results import Results, count_up

# Seconds between two messages of a sender: enough for a 99th percentile, few enough to be no load.
_PAUSE = 0.1
_WARM_UP = 2.0
_BEFORE = 8.0
# The flood measures the member; newcomers that took its processor would be measured instead.
_CROWD_NICE = 10
_QUEUE = "storm-established"
_P99 = 0.99


@dataclass(frozen=True, slots=True)
class Layout:
    """The processors of each process, as if one machine were two.

    The primary and the connected senders share half of the processors, the other members and the newcomers
    the other half.

    :param primary: process id of the primary; ``others``: process ids of the other members.
    :param processors: at least two.
    """

    primary: int
    others: tuple[int, ...]
    processors: tuple[int, ...]

    def apply(self, inside: Collection[int], newcomers: Collection[int]) -> None:
        """Move every process to its half, permanently."""
        half = len(self.processors) // 2
        for pid in (self.primary, *inside):
            processors.keep(pid, self.processors[:half])
        for pid in (*self.others, *newcomers):
            processors.keep(pid, self.processors[half:])


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodPlan:
    """The connected senders and the newcomers.

    :param deadline: seconds after which the flood stops waiting for newcomers.
    :param members: process ids of the members, if known.
    :param layout: ``None`` to leave the placement to the system.
    """

    established: int
    newcomers: int
    processes: int
    url: str
    seed: int
    deadline: float
    members: tuple[int, ...] = ()
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """The effect on the connected senders: seconds of send-and-settle, before and during the flood.

    :param seconds: until the last newcomer was connected.
    :param apart: True if the flood ran with a layout.
    :param waited_before: seconds that the members' threads together waited for a processor, in each second.
    """

    established: int
    newcomers: int
    came_in: int
    seconds: float
    messages_before: int
    messages_during: int
    p50_before: float
    p50_during: float
    p99_before: float
    p99_during: float
    apart: bool
    waited_before: float
    waited_during: float

    @property
    def ratio(self) -> float:
        """Return the 99th percentile during the flood, divided by the one before."""
        return self.p99_during / self.p99_before if self.p99_before else math.nan


async def newcomers(plan: FloodPlan, progress: Callable[[int], object], log: Path) -> Flood:
    """Run the flood at the current primary."""
    before, coming = Results(), Results()
    senders = Fleet(_senders(plan), before.note, log)
    crowd = Fleet(_crowd(plan), coming.note, log)
    try:
        await senders.start()
        await crowd.start()
        if plan.layout is not None:
            plan.layout.apply(senders.processes, crowd.processes)
        senders.send(Command("connect"))
        await count_up(lambda: before.inside, plan.established, plan.deadline, lambda _count: None)
        senders.send(Command("steady", over=_PAUSE))
        await asyncio.sleep(_WARM_UP)
        began, first = time.monotonic(), processors.turns(plan.members)
        await asyncio.sleep(_BEFORE)
        came, second = time.monotonic(), processors.turns(plan.members)
        crowd.send(Command("connect"))
        await count_up(lambda: coming.inside, plan.newcomers, plan.deadline, progress)
        seen, third = time.monotonic(), processors.turns(plan.members)
        over = max((at for client in coming.clients.values() for at in client.usable), default=came)
        await asyncio.sleep(2 * _PAUSE)
    finally:
        await crowd.stop()
        await senders.stop()
    calm, rough = _took(before, began, came), _took(before, came, over)
    return Flood(
        established=plan.established,
        newcomers=plan.newcomers,
        came_in=coming.inside,
        seconds=over - came,
        messages_before=len(calm),
        messages_during=len(rough),
        p50_before=percentile(calm, 0.5),
        p50_during=percentile(rough, 0.5),
        p99_before=percentile(calm, _P99),
        p99_during=percentile(rough, _P99),
        apart=plan.layout is not None,
        waited_before=_waited(first, second, came - began),
        waited_during=_waited(second, third, seen - came),
    )


def _waited(first: Turns, last: Turns, seconds: float) -> float:
    return (last - first).waited / seconds


def _senders(plan: FloodPlan) -> FleetPlan:
    return FleetPlan(
        kind="haclient", clients=plan.established, url=plan.url, processes=1, address=_QUEUE, nice=0
    )


def _crowd(plan: FloodPlan) -> FleetPlan:
    return FleetPlan(
        kind="haclient",
        clients=plan.newcomers,
        url=plan.url,
        processes=plan.processes,
        seed=plan.seed,
        nice=_CROWD_NICE,
        apart=True,
    )


def _took(results: Results, start: float, end: float) -> list[float]:
    """Return the durations of the messages that were sent in that time."""
    return [took for at, took in results.settled.values() if start <= at - took < end]
