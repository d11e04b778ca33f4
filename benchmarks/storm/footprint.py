"""The memory and the file descriptors of processes during a storm.

Read from Linux's ``/proc``; on other systems nothing is known.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_INTERVAL = 0.5
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Footprint:
    """The highest use of a process.

    :param memory: resident, in bytes; ``files``: open file descriptors.
    """

    memory: int = 0
    files: int = 0


def footprint(pid: int) -> Footprint:
    """Return the current use of a process; zeros if it has ended."""
    process = Path(f"/proc/{pid}")
    try:
        status = (process / "status").read_text()
        files = sum(1 for _ in (process / "fd").iterdir())
    except OSError:
        return Footprint()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return Footprint(int(fields.get("VmRSS", "0").split()[0]) * _KIB, files)


class Watch:
    """Measures processes repeatedly, and keeps the maximum of each.

    :param processes: the process ids by name, which may change.
    """

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._task: asyncio.Task[None] | None = None
        self.most: dict[str, Footprint] = {}

    def measure(self) -> None:
        """Measure every process once."""
        for name, pid in self._processes().items():
            now, most = footprint(pid), self.most.get(name, Footprint())
            self.most[name] = Footprint(max(now.memory, most.memory), max(now.files, most.files))

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="footprint of the members")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            self.measure()
            await asyncio.sleep(_INTERVAL)
