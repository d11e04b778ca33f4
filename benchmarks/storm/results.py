"""Collects the events of every client, as its worker reports them.

Rules
-----
* A client is in if the last event of its connection is that it is usable.
* A client is back from a kill if it is in, and became usable after the kill.  If it was
  lost again after its return, its last return counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.storm.lines import Line

# Counting thousands of clients takes milliseconds of processor time, which the clients need.
_POLL_INTERVAL = 0.2


@dataclass(slots=True)
class Client:
    """One client.  Times are of the monotonic clock, in seconds."""

    attempts: list[tuple[float, str]] = field(default_factory=list)
    usable: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    redials: list[float] = field(default_factory=list)
    gave_up: str | None = None

    @property
    def is_in(self) -> bool:
        """True while the client is connected."""
        return bool(self.usable) and (not self.lost or self.usable[-1] >= self.lost[-1])

    def back_at(self, killed_at: float) -> float | None:
        """Return when the client was back from a kill; ``None`` if it is not."""
        return self.usable[-1] if self.is_in and self.usable[-1] > killed_at else None


class Results:
    """All clients of a fleet, and the messages that were settled.

    :ivar defects: the errors of a library that ended its event loop, with how often each occurred.
    """

    def __init__(self) -> None:
        self.clients: dict[int, Client] = {}
        self.defects: Counter[str] = Counter()
        self.settled: dict[tuple[int, int], tuple[float, float]] = {}
        """The time of each settlement and its duration, by client and number."""

    def note(self, line: Line) -> None:
        """Record a line of a worker."""
        if line.what == "defect":
            self.defects[line.why] += 1
            return
        client = self.clients.setdefault(line.client, Client())
        match line.what:
            case "attempt":
                client.attempts.append((line.at, line.to))
            case "usable":
                client.usable.append(line.at)
            case "lost":
                client.lost.append(line.at)
            case "redial":
                client.redials.append(line.at)
            case "gave_up":
                client.gave_up = line.why or "no reason given"
            case "settled":
                self.settled[line.client, line.number] = line.at, line.took

    # -- counts ---------------------------------------------------------------------------------

    @property
    def inside(self) -> int:
        """Count the clients that are connected now."""
        return sum(client.is_in for client in self.clients.values())

    @property
    def gave_up(self) -> int:
        """Count the clients that gave up."""
        return sum(client.gave_up is not None for client in self.clients.values())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why clients gave up, each reason once."""
        return tuple(sorted({each.gave_up for each in self.clients.values() if each.gave_up is not None}))

    def back(self, killed_at: float) -> int:
        """Count the clients that are back from a kill."""
        return sum(client.back_at(killed_at) is not None for client in self.clients.values())


async def count_up(
    count: Callable[[], int], goal: int, seconds: float, progress: Callable[[int], object]
) -> None:
    """Wait until the count is reached or the time expires."""
    until = time.monotonic() + seconds
    while (done := count()) < goal and time.monotonic() < until:
        progress(done)
        await asyncio.sleep(_POLL_INTERVAL)
    progress(done)
