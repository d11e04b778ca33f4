"""Compare a former run with this one: its summary, and the curve of its downtimes.

Rules
-----
* A former run is a folder that an analysis wrote: ``summary.json``, and ``tables/episodes`` for the curve.
* A verdict (better or worse) is for metrics where less is better; a bound is compared as it is.
* A change of less than a tenth, or of less than ``LEAST``, has no verdict.
* Counts of connections are compared as shares of all connections, if both runs have that number.
* A bound has no change.  It has a verdict only if the true value cannot reverse it.
* A storm with connections that are still down has no better ratio.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haclient.analysis.report.text import RESULTS, Rows, number, percent, seconds
from haclient.analysis.thresholds import is_bound

_TENTH = 0.1
LEAST = 0.05
"""Seconds, or connections: a smaller difference is no change."""

_DURATIONS = ("p50_downtime", "p90_downtime", "p99_downtime", "max_downtime")
_SHOWN = {
    **RESULTS,
    "p99_downtime": "p99 downtime",
    "p50_downtime": "p50 downtime",
    "p90_downtime": "p90 downtime",
    "max_downtime": "max downtime",
    "outages": "outages",
    "storms": "storms",
    "max_ratio_to_ideal": "longest storm, times the best possible",
    "attempts_per_outage": "attempts per outage",
    "alarms": "alarms to act on",
    "lost_lines": "lost lines",
    "bad_lines": "bad lines",
    "events": "lines",
}
_NEITHER = {"events"}
_OF_CONNECTIONS = (*RESULTS, "outages")
_NOT_BACK = ("open", "silent", "gave_up")
HIT_BY = "hit_by.json"


class BaselineError(Exception):
    """The results of the former run cannot be read.

    :ivar folder: the folder given.
    """

    def __init__(self, folder: str, error: str) -> None:
        self.folder = folder
        super().__init__(f"{folder}: {error}")

    def __reduce__(self) -> tuple[type[BaselineError], tuple[str, str]]:
        return type(self), (self.folder, str(self).removeprefix(f"{self.folder}: "))


def read(folder: Path) -> dict[str, Any]:
    """Read the results of a former run.

    :returns: ``folder``; ``source``, the telemetry that the run analysed; ``summary``, its metrics that are
        known; ``connections``, the number of its connections, or ``None`` if the folder lacks it.
    :raises BaselineError: if ``summary.json`` cannot be read.
    """
    path = folder / "summary.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        summary = {name: float(value) for name, value in found["summary"].items() if value is not None}
    except FileNotFoundError:
        raise BaselineError(str(folder), "no summary.json of a former analysis in it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BaselineError(str(folder), f"its summary.json cannot be read: {error}") from error
    source = str(found.get("source", ""))
    return {"folder": str(folder), "source": source, "summary": summary, "connections": _connections(folder)}


def _connections(folder: Path) -> int | None:
    """Return the number of connections in the former run; ``None`` if its folder lacks it."""
    try:
        rows = json.loads((folder / HIT_BY).read_text(encoding="utf-8"))
        first = rows[0]["attribute"]
        return sum(int(row["connections"]) for row in rows if row["attribute"] == first) or None
    except (OSError, ValueError, TypeError, LookupError):
        return None


def compared(
    now: Mapping[str, float | None],
    before: Mapping[str, float | None],
    connections: tuple[int | None, int | None] = (None, None),
) -> Rows:
    """Compare two summaries: one row for each metric that the report shows and that either run has.

    A row has ``metric``, and as texts ``name``, ``now``, ``before``, ``change`` and ``verdict``.  If one run
    lacks the metric, ``change`` is empty, and ``verdict`` counts it as 0.  A bound is shown as "over".

    :param now: the metrics of ``thresholds``; ``p99_is_bound`` and its like mark the bounds.
    :param before: the same of the former run.
    :param connections: connections of this run and of the former one, if known.
    """
    rows = []
    for metric, name in _SHOWN.items():
        if now.get(metric) is None and before.get(metric) is None:
            continue
        of = connections if metric in _OF_CONNECTIONS and all(connections) else (None, None)
        new, old = _Value.of(metric, now, of[0]), _Value.of(metric, before, of[1])
        unclear = metric == "max_ratio_to_ideal" and any(now.get(each) for each in _NOT_BACK)
        verdict = "" if metric in _NEITHER else _verdict(new, old)
        rows.append(
            {
                "metric": metric,
                "name": name,
                "now": new.shown,
                "before": old.shown,
                "change": _change(new, old),
                "verdict": "" if unclear and verdict == "better" else verdict,
            }
        )
    return rows


@dataclass(frozen=True, slots=True)
class _Value:
    """A metric of one run.

    :param value: number to compare; ``None`` if unknown.
    :param bound: whether the true value is larger.
    :param least: smallest difference that counts.
    """

    value: float | None
    shown: str
    bound: bool
    least: float

    @classmethod
    def of(cls, metric: str, summary: Mapping[str, float | None], connections: int | None) -> _Value:
        value, bound = summary.get(metric), is_bound(metric, summary)
        shown = seconds(value) if metric in _DURATIONS else number(value)
        if value is not None and connections:
            value /= connections
            shown += (
                f" of {number(connections)}" if metric != "outages" else f", {number(value)} a connection"
            )
        return cls(value, f"over {shown}" if bound else shown, bound, LEAST / (connections or 1))


def _change(new: _Value, old: _Value) -> str:
    if new.value is None or old.value is None or new.bound or old.bound:
        return ""
    if new.value == old.value:
        return "none"
    if not old.value:
        return "new"
    sign = "+" if new.value > old.value else "\N{MINUS SIGN}"
    return f"{sign}{percent(abs(new.value - old.value) / old.value)}"


def _verdict(new: _Value, old: _Value) -> str:
    before, after = old.value or 0.0, new.value or 0.0
    if abs(after - before) < max(new.least, _TENTH * before):
        return ""
    if after > before:
        return "" if old.bound else "worse"
    return "" if new.bound else "better"
