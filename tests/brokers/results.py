"""The results of the matrix: one line of JSON for each cell that ran, and tables of them.

A file may hold the rows of several runs. The tables add them up.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.brokers.cells import OTHER_CLIENTS

_HEADER = (
    "cluster",
    "program",
    "fault",
    "times",
    "settled",
    "unknown",
    "missing",
    "doubled",
    "redelivered",
    "outage",
    "client's",
    "next dial",
    "handshake",
    "a second",
    "apart",
    "errors",
    "holds",
)
_SUMS = tuple(name for name in _HEADER if name != "program")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of one cell.

    :param commit: the commit of the repository, with a ``+`` for uncommitted changes.
    :param seed: the seed of the whole run.
    :param date: when it began, ISO 8601.
    :param version: the broker's version.
    :param times: the number of faults; 0 for a cell that could not be judged.
    :param outages: seconds, one for each fault and producer; ``shares``: the client's part of each.
    :param next_dials: seconds from the moment a primary accepts until a program dials it, one for each
        fault and program; ``handshakes``: from then until it is connected.
    :param most_dials: the most dials of one program at one address within a second while no member served.
    :param smallest_gap: the least seconds between two of those dials.
    :param errors: the number of failed calls, by error class.
    :param wrong: every violation.
    :param broken: why the cell ended early without a fault of the client.
    :param skipped: why it could not run at all.
    :param load: the machine's load at the end (one minute's average): a busy machine makes outages longer.
    """

    commit: str
    seed: int
    date: str
    cluster: str
    version: str = ""
    program: str
    fault: str
    times: int = 0
    sent: int = 0
    settled: int = 0
    refused: int = 0
    unknown: int = 0
    missing: int = 0
    doubled: int = 0
    redelivered: int = 0
    outages: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    next_dials: list[float] = field(default_factory=list)
    handshakes: list[float] = field(default_factory=list)
    most_dials: int = 0
    smallest_gap: float | None = None
    errors: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    broken: str = ""
    skipped: str = ""
    seconds: float = 0.0
    load: float = 0.0

    @property
    def holds(self) -> bool:
        """Return whether the cell ran to its end without a violation."""
        return not (self.wrong or self.broken or self.skipped)

    @property
    def cell(self) -> tuple[str, str, str]:
        """Return the cell's identity: cluster, program and fault."""
        return self.cluster, self.program, self.fault


def append(path: Path, row: Row) -> None:
    """Add a row to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(row)) + "\n")


def read(path: Path) -> list[Row]:
    """Return every row of a file, or none if it does not exist."""
    if not path.exists():
        return []
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


def cells_table(rows: Sequence[Row]) -> str:
    """A line for each cell, in the order of their first rows."""
    return _table(_HEADER, rows, lambda row: row.cell)


def sums_table(rows: Sequence[Row]) -> str:
    """A line for each cluster and fault, over all programs on haclient."""
    ours = [row for row in rows if row.program not in OTHER_CLIENTS]
    return _table(_SUMS, ours, lambda row: (row.cluster, row.fault))


def _table(header: Sequence[str], rows: Sequence[Row], key: Callable[[Row], tuple[str, ...]]) -> str:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not row.skipped:
            groups.setdefault(key(row), []).append(row)
    lines = [(*names, *_figures(group)) for names, group in groups.items()]
    return "\n".join(_aligned([tuple(header), *lines]))


def _figures(rows: Sequence[Row]) -> tuple[str, ...]:
    counts = [
        sum(getattr(row, name) for row in rows)
        for name in ("times", "settled", "unknown", "missing", "doubled", "redelivered")
    ]
    errors = sum((Counter(row.errors) for row in rows), Counter[str]())
    fails = sum(not row.holds for row in rows)
    return (
        *(f"{count:,}" for count in counts),
        spread([each for row in rows for each in row.outages]),
        spread([each for row in rows for each in row.shares]),
        spread([each for row in rows for each in row.next_dials]),
        spread([each for row in rows for each in row.handshakes]),
        str(max(row.most_dials for row in rows)),
        shown_gap(min((row.smallest_gap for row in rows if row.smallest_gap is not None), default=None)),
        ", ".join(f"{count} {name}" for name, count in sorted(errors.items())) or "-",
        "yes" if not fails else f"{fails} of {len(rows)} not",
    )


def spread(seconds: Sequence[float]) -> str:
    """Return median and maximum as text."""
    return f"{statistics.median(seconds):.2f} / {max(seconds):.2f} s" if seconds else "-"


def shown_gap(seconds: float | None) -> str:
    """Return the smallest time between two dials as text."""
    return "-" if seconds is None else f"{seconds:.2f} s"


def _aligned(lines: Sequence[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
