"""A former run beside this one: its summary, and the curve of its downtimes.

Rules
-----
* A former run is a folder that an analysis wrote: ``summary.json``, and ``tables/episodes`` for the curve.
* Better or worse are only metrics where less is better or worse; a bound is compared as it is.
* A change of less than a tenth, or of less than ``LEAST``, is neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haclient.analysis.report.text import Rows, number, percent, seconds
from haclient.analysis.thresholds import is_bound

_TENTH = 0.1
LEAST = 0.05
"""Seconds, or connections: less is no change."""

_DURATIONS = ("p50_downtime", "p90_downtime", "p99_downtime", "max_downtime")
_SHOWN = {
    "open": "still searching",
    "silent": "silent",
    "gave_up": "gave up",
    "never_connected": "never connected",
    **{
        name: name.replace("_", " ")
        for name in ("p99_downtime", "p50_downtime", "p90_downtime", "max_downtime")
    },
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


class BaselineError(Exception):
    """The former run cannot be read.

    :ivar folder: what was given.
    """

    def __init__(self, folder: str, error: str) -> None:
        self.folder = folder
        super().__init__(f"{folder}: {error}")

    def __reduce__(self) -> tuple[type[BaselineError], tuple[str, str]]:
        return type(self), (self.folder, str(self).removeprefix(f"{self.folder}: "))


def read(folder: Path) -> dict[str, Any]:
    """Source and summary of a former run.

    :raises BaselineError: when there is none.
    """
    path = folder / "summary.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        summary = {name: float(value) for name, value in found["summary"].items() if value is not None}
    except FileNotFoundError:
        raise BaselineError(str(folder), "no summary.json of a former analysis in it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BaselineError(str(folder), f"its summary.json cannot be read: {error}") from error
    return {"folder": str(folder), "source": str(found.get("source", "")), "summary": summary}


def compared(now: Mapping[str, float | None], before: Mapping[str, float | None]) -> Rows:
    """A row for each metric that either run has: ``name``, ``now``, ``before``, ``change``, ``verdict``."""
    rows = []
    for metric, name in _SHOWN.items():
        new, old = now.get(metric), before.get(metric)
        if new is None and old is None:
            continue
        rows.append(
            {
                "metric": metric,
                "name": name,
                "now": _shown(metric, now),
                "before": _shown(metric, before),
                "change": _change(new, old),
                "verdict": "" if metric in _NEITHER else _verdict(new, old),
            }
        )
    return rows


def _shown(metric: str, summary: Mapping[str, float | None]) -> str:
    value = summary.get(metric)
    shown = seconds(value) if metric in _DURATIONS else number(value)
    return f"over {shown}" if is_bound(metric, summary) else shown


def _change(new: float | None, old: float | None) -> str:
    if new is None or old is None or new == old:
        return "" if new != old else "none"
    if not old:
        return "new"
    sign = "+" if new > old else "\N{MINUS SIGN}"
    return f"{sign}{percent(abs(new - old) / old)}"


def _verdict(new: float | None, old: float | None) -> str:
    before, after = old or 0.0, new or 0.0
    if abs(after - before) < max(LEAST, _TENTH * before):
        return ""
    return "worse" if after > before else "better"
