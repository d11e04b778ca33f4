"""What a process has used: processor time and memory, by the kernel's count.

A process that waits uses no processor time.  What it may use is counted in what it was sent: seconds for each
frame and for each byte, and a share of the time for timers.  A slow or busy machine only makes it less.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = 1024
WAITING_SHARE = 0.05
"""Of a core, for a process that waits."""
# A message takes the client 0.07 ms on the machine that this was written on.
_PER_FRAME = 0.0003
_PER_BYTE = 20e-9
# A search that is refused at once dials again after ``backoff_base``, and its peer has sent nothing.
_PER_CONNECTION = 0.008


@dataclass(frozen=True, slots=True)
class Usage:
    """At one moment.

    :ivar cpu: seconds of processor time so far, of the process and what it has waited for.
    :ivar peak: the most memory that was resident, in bytes.
    """

    at: float
    cpu: float
    peak: int


def usage(pid: int) -> Usage | None:
    """Of a process that runs; ``None`` when it has ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Fields 14 to 17 of proc(5); the third is the first behind the name.
    cpu = sum(map(int, facts[11:15])) / _TICK
    peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), None)
    if peak is None:  # a zombie has no memory
        return None
    return Usage(time.monotonic(), cpu, int(peak) * _PAGE_KIB)


def allowed(seconds: float, frames: int, size: int, connections: int) -> float:
    """Processor time that a process may use in a time in which it got so much."""
    return WAITING_SHARE * seconds + _PER_FRAME * frames + _PER_BYTE * size + _PER_CONNECTION * connections


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are not waited for."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(found)
