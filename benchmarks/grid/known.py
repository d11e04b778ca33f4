"""The cells in which our default policy is known to break a bar, and the figures.

A check of the grid fails if a cell that is not listed breaks a bar.  It also fails if a listed cell holds:
then remove its line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.grid.cells import Cell, Kind
from benchmarks.grid.run import Judged

Key = tuple[int, Kind, int, float]
"""Members, kind, clients, seconds of outage."""

KNOWN: Mapping[Key, str] = MappingProxyType(
    {
        (1, "silent", 2000, 1.0): "4.64 attempts, where redis-py makes 4.60",
        (3, "silent", 2000, 1.0): "5.65 attempts, where redis-py makes 5.02 and is back after 10.4 s",
        (3, "dead host", 2000, 0.3): "kafka makes fewer, and is back after 19.8 s",
        (3, "dead host", 20, 300.0): "1.25 attempts, after 0.53 s; qpid-jms makes 1.0, after 0.43 s",
        (3, "dead host", 700, 30.0): "3.5 attempts, after 3.6 s; aws-full makes 1.4, after 4.0 s",
        (1, "silent", 700, 3.0): "a poll in 0.56 s makes each client dial before a backlog of 128 has room",
        (1, "silent", 300, 3.0): "1.21 attempts, after 1.60 s; redis-py is better at both by 5 %",
        (1, "silent", 700, 1.0): "2.16 attempts, where another client makes 2.06",
        (1, "silent", 2000, 3.0): "5.43 attempts, after 10.8 s; redis-py makes 4.70",
        (3, "reset", 20, 1.0): "1.10 attempts, after 0.52 s; qpid-jms is better at both by 5 %",
        (3, "silent", 20, 1.0): "1.10 attempts, after 0.52 s; qpid-jms is better at both by 5 %",
        (3, "silent", 700, 1.0): "2.11 attempts, after 4.2 s; redis-py makes fewer and is back before",
        (3, "silent", 2000, 3.0): "6.11 attempts, where another client makes 5.75",
        (3, "dead host", 700, 0.3): "7.49 attempts, after 5.98 s; grpc makes 5.77, after 4.36 s",
    }
)
"""The reason, by cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The cells of a run, compared with the known ones.

    :ivar unexpected: cells that break a bar and are not listed.
    :ivar expected: listed cells that break a bar.
    :ivar mended: listed cells that hold.
    """

    unexpected: Sequence[Judged]
    expected: Sequence[Judged]
    mended: Sequence[Judged]

    @property
    def is_as_known(self) -> bool:
        """Return whether the run agrees with the list."""
        return not self.unexpected and not self.mended


def compare(found: Sequence[Judged], policy: str) -> Comparison:
    """Compare the cells of a run with the list."""
    broken = [judged for judged in found if judged.broken[policy]]
    return Comparison(
        unexpected=[judged for judged in broken if key(judged.cell) not in KNOWN],
        expected=[judged for judged in broken if key(judged.cell) in KNOWN],
        mended=[judged for judged in found if key(judged.cell) in KNOWN and not judged.broken[policy]],
    )


def key(cell: Cell) -> Key:
    """Return the key of a cell in the list."""
    return (cell.members, cell.kind, cell.clients, cell.outage)
