"""The processor placement of processes, and how long they wait for a processor.

In production members and clients have their own machines.  In a storm on one machine they wait for the
same processors, and no member can shorten that.  So the storm measures the wait.  Where the wait would
hide the member's own time, the processes are kept on different processors.

Read from Linux's ``/proc``; on other systems nothing is known and the system places all processes.

Sources: Linux, Documentation/scheduler/sched-stats.rst (``schedstat`` of a task: nanoseconds that it ran,
and that it was ready to run and did not); sched_setaffinity(2).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_NANO = 1e-9
LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Turns:
    """The processor time of some threads, summed, in seconds.

    :param ran: how long they ran; ``waited``: how long they were ready to run and did not.
    """

    ran: float = 0.0
    waited: float = 0.0

    def __sub__(self, earlier: Turns) -> Turns:
        return Turns(self.ran - earlier.ran, self.waited - earlier.waited)

    def __add__(self, other: Turns) -> Turns:
        return Turns(self.ran + other.ran, self.waited + other.waited)


def turns(processes: Collection[int]) -> Turns:
    """Sum the processor time of these processes so far; an ended process adds nothing."""
    return sum((_turns(task) for pid in processes for task in _threads(pid)), Turns())


def _turns(task: Path) -> Turns:
    try:
        ran, waited, _slices = (task / "schedstat").read_text().split()
    except (OSError, ValueError):
        return Turns()
    return Turns(int(ran) * _NANO, int(waited) * _NANO)


def _threads(pid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from Path(f"/proc/{pid}/task").iterdir()


def available() -> list[int]:
    """Return the processors that this process may run on; empty if unknown."""
    return sorted(os.sched_getaffinity(0)) if LINUX else []


def keep(pid: int, processors: Collection[int]) -> None:
    """Restrict a process with all its threads to these processors."""
    for task in _threads(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), processors)
