"""The report: one HTML file that needs nothing else, from small tables.

Rules
-----
* Everything in a table comes from telemetry, and so from anyone who may connect: it is escaped, cut to a
  bearable length, and never part of a script, a style or an address.
* The page asks for nothing from anywhere; its own policy forbids it, and names its one script by hash.
* It can be read without that script, which only switches between light and dark.
* It stays below ``LIMIT`` however long the strings and however many the rows that it is given.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from haclient.analysis.report import charts, lag_charts, text
from haclient.analysis.report.text import Row, Rows

LIMIT = 300_000
"""Bytes of a report."""

_STORMS = 3
_TABLES = {
    "storms": 20,
    "jitter": 20,
    "members": 40,
    "not_recovered": 50,
    "alarms": 50,
    "advice": 20,
    "sites": 12,
}
_HALVED = 6  # times that the rows are halved until the page is small enough
_POINTS = 400
_COLUMNS = 120
_BUCKETS = 720  # rows of a storm's timeline: 120 columns of six colours


def render(tables: Mapping[str, Rows], *, title: str, generated_at: datetime) -> str:
    """The report as HTML.

    :param tables: as ``data.report_tables`` gives them; a table that is missing is taken for empty.
    :param title: what was looked at, for the top of the page.
    :param generated_at: when the analysis ran.
    """
    page = ""
    for halved in range(_HALVED):
        shown = {
            name: [_lenient(row) for row in list(tables.get(name, ()))[: limit >> halved]]
            for name, limit in _TABLES.items()
        }
        page = _render(tables, shown, title, generated_at)
        if len(page.encode()) < LIMIT:
            break
    return page


def _render(tables: Mapping[str, Rows], shown: Mapping[str, Rows], title: str, generated_at: datetime) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= text.FILTERS
    headline = _lenient(text.first(tables.get("headline", ())))
    totals = {row["table"]: row["rows"] for row in tables.get("totals", ())}
    counts = {name: max(totals.get(name, 0), len(tables.get(name, ()))) for name in shown}
    script = _text("theme.js")
    return environment.from_string(_text("template.html.j2")).render(
        title=title,
        generated_at=f"{generated_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        style=Markup(_text("style.css")),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        headline=headline,
        summary=text.summary(headline),
        tiles=text.tiles(headline, counts["alarms"]),
        hidden={name: counts[name] - len(rows) for name, rows in shown.items()},
        quarantined=totals.get("quarantine", 0),
        ecdf=_ecdf(tables.get("ecdf", ()), headline),
        drawn=_storms(tables, shown["storms"]),
        lags=_lags(shown["sites"]),
        levels=[(colour, level) for level, colour in reversed(lag_charts.LEVELS)],
        histograms=_histograms(tables.get("jitter_histogram", ())),
        **shown,
    )


def _text(name: str) -> str:
    """A file of this package, also from within a zip."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _lenient(row: Row) -> Row:
    """The row, with null for a column that it lacks: older tables can be shown too."""
    return defaultdict(lambda: None, row)


def _ecdf(points: Rows, headline: Row) -> Markup | None:
    points = [point for point in points if point["downtime"] is not None]
    thin = points[:: len(points) // _POINTS + 1]
    return charts.ecdf([*thin, *points[-1:]], headline) if points else None


def _storms(tables: Mapping[str, Rows], storms: Rows) -> list[dict[str, Any]]:
    """The storms that are drawn, each with its chart and what belongs beside it."""
    drawn: list[dict[str, Any]] = []
    for number, storm in enumerate(storms):
        buckets, marks, reasons = (
            [row for row in tables.get(name, ()) if row["storm_id"] == storm["storm_id"]]
            for name in ("storm_timeline", "storm_marks", "storm_reasons")
        )
        if buckets and len(drawn) < _STORMS:
            drawn.append(
                {
                    "row": storm,
                    "chart": charts.storm(f"storm-{number}", storm, buckets[:_BUCKETS], marks[:2]),
                    "legend": _legend(buckets[:_BUCKETS]),
                    "reasons": reasons[:6],
                    "after": text.not_drawn(storm, buckets[:_BUCKETS]),
                }
            )
    return drawn


def _legend(buckets: Rows) -> list[tuple[str, str]]:
    members = charts.members_of(buckets)
    return [(charts.colour(members, member), member) for member in members]


def _lags(streams: Rows) -> list[tuple[Row, Markup]]:
    """The streams that are drawn, each with its chart."""
    drawn = [stream for stream in streams if stream["columns"] and stream["lag_seconds_max"] is not None]
    return [
        (stream, lag_charts.lag(f"lag-{number}", stream, stream["columns"][:_COLUMNS]))
        for number, stream in enumerate(drawn[:_STORMS])
    ]


def _histograms(cells: Rows) -> list[tuple[str, Markup]]:
    """Strategy and chart."""
    strategies: dict[str, list[Row]] = {}
    for cell in cells:
        strategies.setdefault(str(cell["strategy"]), []).append(cell)
    return [
        (name, charts.jitter(f"jitter-{number}", rows))
        for number, (name, rows) in enumerate(list(strategies.items())[:_STORMS])
    ]
