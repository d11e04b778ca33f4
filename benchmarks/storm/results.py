"""Collects the events of every client, as its worker reports them.

Rules
-----
* A client is in when the last event of its connection is that it is usable.
* It is back from a kill when it is in, and became usable after the kill.  One that was
  lost again after its return counts from its last return.
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
        """Whether it is connected now."""
        return bool(self.usable) and (not self.lost or self.usable[-1] >= self.lost[-1])

    def back_at(self, killed_at: float) -> float | None:
        """When it was back from a kill; ``None`` when it is not."""
        return self.usable[-1] if self.is_in and self.usable[-1] > killed_at else None


class Results:
    """All clients of a fleet, and the messages that were settled.

    :ivar defects: the errors of a library that ended its event loop, with how often each occurred.
    """

    def __init__(self) -> None:
        self.clients: dict[int, Client] = {}
        self.defects: Counter[str] = Counter()
        self.settled: dict[tuple[int, int], tuple[float, float]] = {}
        """When each message was settled and how long that took, by client and number."""

    def note(self, line: Line) -> None:
        """Add a line of a worker."""
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
        """Clients that are connected now."""
        return sum(client.is_in for client in self.clients.values())

    @property
    def gave_up(self) -> int:
        """Clients that try no more."""
        return sum(client.gave_up is not None for client in self.clients.values())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why clients gave up, each reason once."""
        return tuple(sorted({each.gave_up for each in self.clients.values() if each.gave_up is not None}))

    def back(self, killed_at: float) -> int:
        """Clients that are back from a kill."""
        return sum(client.back_at(killed_at) is not None for client in self.clients.values())


async def count_up(
    count: Callable[[], int], goal: int, seconds: float, progress: Callable[[int], object]
) -> None:
    """Wait until so many are counted, or the time expires."""
    until = time.monotonic() + seconds
    while (done := count()) < goal and time.monotonic() < until:
        progress(done)
        await asyncio.sleep(_POLL_INTERVAL)
    progress(done)
