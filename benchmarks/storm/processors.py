"""Who runs on which processor, and how long he waits for one.

Members and clients have machines of their own; in a storm on one machine they wait for each other's
turns on its processors, and nothing that a member does makes that shorter.  So it is counted, and where
it would be measured in place of the member, they are kept apart.

Read from Linux's ``/proc``; elsewhere nothing is known, and everybody runs where the system likes.

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
    """What threads had of the processors, in seconds, the sum of all of them.

    :param ran: how long they ran; ``waited``: how long they were ready to run and did not.
    """

    ran: float = 0.0
    waited: float = 0.0

    def __sub__(self, earlier: Turns) -> Turns:
        return Turns(self.ran - earlier.ran, self.waited - earlier.waited)

    def __add__(self, other: Turns) -> Turns:
        return Turns(self.ran + other.ran, self.waited + other.waited)


def turns(processes: Collection[int]) -> Turns:
    """What these processes had so far; nothing for those that are gone."""
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
    """The numbers of the processors that this process may run on; none for unknown."""
    return sorted(os.sched_getaffinity(0)) if LINUX else []


def keep(pid: int, processors: Collection[int]) -> None:
    """Have a process, all its threads, run on these processors only."""
    for task in _threads(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), processors)
