"""The processor time and memory that a process has used, by the kernel's count.

A waiting process uses no processor time. Its allowance depends on the data it receives: seconds for
each frame and for each byte, and a share of the time for timers.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = 1024
WAITING_SHARE = 0.05
"""The share of a core that a waiting process may use."""
# Seconds. A message takes the client 0.07 ms on the author's machine.
_PER_FRAME = 0.0003
_PER_BYTE = 20e-9
# Seconds. A search that is refused at once dials again after ``backoff_base``, though its peer sent nothing.
_PER_CONNECTION = 0.008


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources used up to a moment.

    :ivar cpu: seconds of processor time, of the process and its reaped children.
    :ivar peak: the peak resident memory, in bytes.
    """

    at: float
    cpu: float
    peak: int


def usage(pid: int) -> Usage | None:
    """Return the usage of a running process; ``None`` after its end."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Fields 14 to 17 of proc(5); the third is the first after the name.
    cpu = sum(map(int, facts[11:15])) / _TICK
    peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), None)
    if peak is None:  # a zombie has no memory
        return None
    return Usage(time.monotonic(), cpu, int(peak) * _PAGE_KIB)


def allowed(seconds: float, frames: int, size: int, connections: int) -> float:
    """Return the processor time that a process may use for this amount of time and data."""
    return WAITING_SHARE * seconds + _PER_FRAME * frames + _PER_BYTE * size + _PER_CONNECTION * connections


def children(pid: int) -> list[int]:
    """Return the child processes of a process that are not yet reaped."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(found)
