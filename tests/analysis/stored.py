"""Stored tables as plain rows, to compare two jobs."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from pyarrow import parquet

DIGITS = 9  # sums of doubles depend on the order, which a cluster chooses


def tables(out: Path) -> dict[str, list[Any]]:
    """Return the sorted rows of every table that a job stored in ``out``."""
    found = {path.name: path for path in (out / "tables").iterdir()}
    return {name: rows(found[name]) for name in sorted(found)}


def rows(path: Path) -> list[Any]:
    """Return the rows of one table."""
    table = [
        json.loads(json.dumps(plain(row), default=_time)) for row in parquet.read_table(path).to_pylist()
    ]
    return sorted(table, key=lambda row: json.dumps(row, sort_keys=True))


def lines(path: Path) -> int:
    """Count the rows of a table as JSON."""
    return sum(len(file.read_text().splitlines()) for file in path.glob("*.json"))


def plain(value: Any) -> Any:
    """Remove differences between two jobs on the same lines: digits of doubles, order in maps."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {str(key): plain(value[key]) for key in sorted(value)}
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return plain(dict(value))  # a map
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def _time(value: datetime) -> str:
    """Return a time in UTC: Arrow's Parquet says so, and Spark's doesn't."""
    return value.replace(tzinfo=None).isoformat()
