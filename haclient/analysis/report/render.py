"""Render the report: one self-contained HTML file from small tables.

Rules
-----
* All values in tables come from telemetry, and so from anyone who may connect.  They are escaped, cut to a
  limited length, and never part of a script, a style or an address.
* The page makes no requests; its own policy forbids them, and names its scripts by hash.
* Text and tables repeat the content of the charts, and need no script.
* It stays below ``LIMIT``, whatever the length of the strings and the number of rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from haclient.analysis.report import (
    actions,
    baseline,
    charts,
    detail_charts,
    findings,
    library,
    present,
    text,
)
from haclient.analysis.report.queries import queries, sources
from haclient.analysis.report.text import Row, Rows

LIMIT = 1_500_000
"""Most bytes of a report; the charting library is 0.9 million of them."""

_STORMS = 3
_TABLES = {
    "storms": 20,
    "jitter": 20,
    "members": 40,
    "not_recovered": 50,
    "alarms": 50,
    "advice": 20,
    "sites": 12,
    "away": 20,
    "service": 20,
    "lost_reasons": 20,
    "actions": 40,
    "hit": 400,
    "deploys": 30,
    "promotions": 30,
}
_MOST = 3000  # most rows of any table that are read
_HALVED = 6  # most times that the rows are halved to make the page small enough
_COLUMNS = 120
_BUCKETS = 720  # rows of a storm's timeline: 120 columns of six colours
_ATTRIBUTES = 8  # most attributes with a chart


def render(tables: Mapping[str, Rows], *, title: str, generated_at: datetime, slo: float = 0.999) -> str:
    """Render the report as HTML.

    :param tables: from ``data.report_tables``; a missing table counts as empty.
    :param title: source of the telemetry, for the top of the page.
    :param generated_at: time of the analysis.
    :param slo: share of the time that connections should be usable, from 0 to 1.
    """
    page = ""
    known: dict[str, Rows] = {name: [_lenient(row) for row in rows[:_MOST]] for name, rows in tables.items()}
    certain = present.certain(known)
    in_summary = {f"{rank}_downtime": value for rank, value in certain.items()}
    for name, instead in (("headline", certain), ("summary", in_summary)):
        known[name] = [_lenient({**row, **instead}) for row in known.get(name, ())]
    given: dict[str, Rows] = {**known, "actions": actions.actions(known)}
    for halved in range(_HALVED):
        shown = {name: given.get(name, ())[: limit >> halved] for name, limit in _TABLES.items()}
        page = _render(given, shown, title, generated_at, slo)
        if len(page.encode()) < LIMIT:
            break
    return page


def _render(
    tables: Mapping[str, Rows], shown: Mapping[str, Rows], title: str, generated_at: datetime, slo: float
) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= text.FILTERS
    headline = text.first(tables.get("headline", ())) or _lenient({})
    former = text.first(tables.get("baseline", ()))
    compared = _compared(text.first(tables.get("summary", ())), headline, former) if former else []
    totals = {row["table"]: row["rows"] for row in tables.get("totals", ())}
    counts = {name: max(totals.get(name, 0), len(tables.get(name, ()))) for name in shown}
    drawn: dict[str, Any] = {}
    parts: dict[str, Any] = {
        "storm_charts": _storms(tables, shown["storms"], drawn),
        "lags": _lags(shown["sites"], drawn),
        "histograms": _histograms(tables.get("jitter_histogram", ()), drawn),
        "attributes": _attributes(shown["hit"], drawn),
    }
    _answers(tables, headline, former, drawn)
    width = int(text.first(tables.get("timeline", ())).get("width") or 60)
    shown_queries = queries(width=width, slo=slo, baseline=former.get("folder") or "FORMER")
    scripts = library.scripts(drawn)
    return environment.from_string(_template()).render(
        title=title,
        generated_at=f"{generated_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        style=Markup(library.style()),  # noqa: S704 - a file of this package
        policy=library.policy(),
        scripts=scripts,
        drawn=drawn,
        headline=headline,
        answers=findings.answers(
            tables, compared, tables["actions"], slo, present.age(headline, generated_at)
        ),
        hidden={name: counts[name] - len(rows) for name, rows in shown.items()},
        quarantined=totals.get("quarantine", 0),
        width=width,
        slo=slo,
        budgets=findings.budgets([headline, *shown["service"]], slo) if headline["connections"] else [],
        curve=findings.curve(headline),
        former=former,
        compared=compared,
        results=text.RESULTS,
        states=text.STATES,
        meanings=findings.MEANINGS,
        when=actions.SEVERITIES,
        queries=shown_queries,
        sources={name: sources(query) for name, query in shown_queries.items()},
        **shown,
        **parts,
    )


def _compared(summary: Row, headline: Row, former: Row) -> Rows:
    connections = (headline.get("connections"), former.get("connections"))
    return baseline.compared(summary, former["summary"], connections)


def _template() -> str:
    """Read the template from this package, also inside a zip."""
    return files(__package__).joinpath("template.html.j2").read_text(encoding="utf-8")


def _lenient(row: Row) -> Row:
    """Return the row with null for missing columns, so that older tables can be shown."""
    return defaultdict(lambda: None, row)


def _answers(tables: Mapping[str, Rows], headline: Row, former: Row, drawn: dict[str, Any]) -> None:
    """Add the charts of the answers; skip charts without data."""
    if tables.get("timeline"):
        drawn["chart-timeline"] = charts.timeline(tables)
    points = present.curve(tables)
    if points:
        drawn["chart-ecdf"] = charts.ecdf(points, former.get("ecdf") or [], headline)
    failed = findings.failures(tables.get("members", ()))
    if failed:
        drawn["chart-failures"] = charts.failures(failed)


def _attributes(rows: Rows, drawn: dict[str, Any]) -> list[dict[str, Any]]:
    """Draw attributes; return each one's name, its chart's id, and the number of values without a bar."""
    found = []
    for number, (name, values) in enumerate(list(charts.attributes(rows).items())[:_ATTRIBUTES]):
        element = f"chart-hit-{number}"
        drawn[element] = charts.hit(values)
        found.append({"name": name, "chart": element, "hidden": len(values) - charts.VALUES})
    return found


def _storms(tables: Mapping[str, Rows], storms: Rows, drawn: dict[str, Any]) -> list[dict[str, Any]]:
    """Draw the biggest storms; return each with its charts and accompanying values."""
    found: list[dict[str, Any]] = []
    for storm in storms:
        buckets, marks, reasons = (
            [row for row in tables.get(name, ()) if row["storm_id"] == storm["storm_id"]]
            for name in ("storm_timeline", "storm_marks", "storm_reasons")
        )
        if not buckets or len(found) >= _STORMS:
            continue
        panels = []
        for series, name in detail_charts.SERIES:
            element = f"chart-storm-{len(found)}-{series}"
            drawn[element] = detail_charts.storm(series, storm, buckets[:_BUCKETS], marks[:2])
            panels.append((name, element))
        found.append(
            {
                "row": storm,
                "panels": panels,
                "reasons": reasons[:6],
                "width": max(float(bucket["width"]) for bucket in buckets),
                "after": _after(storm, buckets[:_BUCKETS]),
            }
        )
    return found


def _after(storm: Row, buckets: Rows) -> str:
    """Describe the part of a storm after the end of its drawing."""
    attempts = (storm.get("attempts") or 0) - sum(bucket["attempts"] for bucket in buckets)
    if attempts <= 0:
        return ""
    end = max(bucket["second"] + bucket["width"] for bucket in buckets)
    return f"After {text.seconds(end)}, not drawn: {text.counted(attempts, 'attempt')}."


def _lags(streams: Rows, drawn: dict[str, Any]) -> list[tuple[Row, list[str]]]:
    """Draw the lag of streams; return each with the ids of its charts."""
    found: list[tuple[Row, list[str]]] = []
    for stream in [each for each in streams if each["columns"] and each["lag_seconds_max"] is not None]:
        if len(found) < _STORMS:
            elements = []
            for unit in ("seconds", "events"):
                if stream[f"lag_{unit}_max"] is not None:
                    elements.append(f"chart-lag-{len(found)}-{unit}")
                    drawn[elements[-1]] = detail_charts.lag(unit, stream["columns"][:_COLUMNS])
            found.append((stream, elements))
    return found


def _histograms(cells: Rows, drawn: dict[str, Any]) -> list[tuple[str, str]]:
    """Draw each strategy's delays; return its name and the id of its chart."""
    strategies: dict[str, list[Row]] = {}
    for cell in cells:
        strategies.setdefault(str(cell["strategy"]), []).append(cell)
    found = []
    for number, (name, rows) in enumerate(list(strategies.items())[:_STORMS]):
        element = f"chart-jitter-{number}"
        drawn[element] = detail_charts.jitter(rows)
        found.append((name, element))
    return found
