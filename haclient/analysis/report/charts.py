"""The charts of the seven answers: the timeline, who was hit, the downtimes, the failures.

The section's text repeats the content of its chart, and the query next to the chart gives its rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import altair as alt

from haclient.analysis.report import findings, library, text
from haclient.analysis.report.text import OTHERS, Row, Rows
from haclient.telemetry.rfc3339 import moment

POINTS = 400
"""Most points of a curve."""

MARKS = 30
"""Most promotions and deploys that the timeline marks; the newest are kept."""

MOST = 400
"""Most columns of the timeline that are drawn, whatever the input."""

VALUES = 12
"""Most values of an attribute that have a bar."""

ENDPOINTS, ERRORS = 12, 5
_NAME = 16  # longest name of which two fit next to each other on a phone
_BAR, _HIGH_BAR = 22, 36  # pixels, with labels of one line and of two
_EDGE = 0.9  # share of the curve above which a label does not fit above its point
_BEFORE, _STORM, _SINGLE, _NEVER = "away before", "lost in a storm", "lost singly", "never connected"
_LOSSES = {
    _BEFORE: library.OTHER,
    _STORM: library.BAD,
    _SINGLE: library.COLOURS[1],
    _NEVER: library.COLOURS[3],
}
_PIECES = ("before", "storm", "single", "never")
_COUNTS = ("lost", "in_storm", "never", "ended")
_CHANGES = {"promotion": library.COLOURS[2], "deploy": library.COLOURS[4]}
_STATES = ("away", "hit, and back", "not hit", "ended before")
_STATE_COLOURS = (library.BAD, library.COLOURS[1], library.OTHER, library.FAINT)


# -- the timeline ---------------------------------------------------------------------------------


def timeline(tables: Mapping[str, Rows]) -> library.Figure:
    """Draw the connections that were down in each column, with storms, losses, promotions and deploys."""
    rows = columns(tables["timeline"], text.first(tables.get("headline", ())))
    marks = changes(tables)
    kinds = [kind for kind in _CHANGES if any(mark["kind"] == kind for mark in marks)]
    shown = {
        name: colour
        for (name, colour), piece in zip(_LOSSES.items(), _PIECES, strict=True)
        if any(row[piece] for row in rows)
    } | {kind: _CHANGES[kind] for kind in kinds}
    colour = _colours("what", shown, list(shown.values()))
    x = alt.X("at:T", **library.utc_axis())
    bars = (
        alt.Chart(library.named("pieces"))
        .mark_rect()
        .encode(
            x=x,
            x2="end:T",
            y=alt.Y("low:Q", title=None, axis=library.count_axis()),
            y2="high:Q",
            color=colour,
        )
    )
    hover = (
        alt.Chart(library.named("columns"))
        .mark_rect(opacity=0)
        .encode(
            x=x,
            x2="end:T",
            tooltip=[
                alt.Tooltip("from:N", title="from (UTC)"),
                alt.Tooltip("before:Q", title=_BEFORE, format=","),
                alt.Tooltip("storm:Q", title=_STORM, format=","),
                alt.Tooltip("single:Q", title=_SINGLE, format=","),
                alt.Tooltip("never:Q", title=_NEVER, format=","),
                alt.Tooltip("ended:Q", title="back or closed", format=","),
            ],
        )
    )
    parts: list[Any] = [bars, hover.add_params(library.zoom())]
    if marks:
        change = alt.Chart(library.data(marks))
        tooltip = [
            alt.Tooltip("kind:N"),
            alt.Tooltip("name:N", title="what"),
            alt.Tooltip("time:N", title="at (UTC)"),
        ]
        parts += [
            change.mark_rule(strokeWidth=2, strokeDash=[4, 3], clip=True).encode(
                x=x, color=colour, tooltip=tooltip
            ),
            change.mark_point(filled=True, size=130, shape="diamond", opacity=1).encode(
                x=x, y=alt.value(8), color=colour, tooltip=tooltip
            ),
        ]
    described = [_described(row) for row in rows]
    return library.figure(*parts, height=230, pieces=_stacked(rows), columns=described)


def columns(rows: Rows, period: Row) -> list[dict[str, Any]]:
    """Return the columns of the period, quiet ones too, each with the connections already down before it.

    Only the first ``MOST`` columns are returned.  Each has ``at`` and ``width`` in seconds, and counts.

    :param period: has ``first_at`` and ``last_at``; without them the rows' own extent is used.
    """
    if not rows:
        return []
    width = int(rows[0]["width"])
    by_start = {int(row["at"]): row for row in rows}
    ends = [*by_start, *(_unix_time(period[name]) for name in ("first_at", "last_at") if period.get(name))]
    found, before = [], 0
    for at in range(int(min(ends) // width * width), int(max(ends)) + 1, width):
        row: Row = by_start.get(at, {})
        lost, storm, never, ended = (int(row.get(name) or 0) for name in _COUNTS)
        counts = {
            "before": before,
            "storm": storm,
            "single": lost - storm - never,
            "never": never,
            "ended": ended,
        }
        found.append({"at": at, "width": width, **counts})
        before += lost - ended
    return found[:MOST]


def _stacked(rows: Rows) -> list[dict[str, Any]]:
    """Return a rectangle for each column and kind of loss, stacked on each other."""
    made = []
    for row in rows:
        high = 0
        for name, column in zip(_LOSSES, _PIECES, strict=True):
            low, high = high, high + row[column]
            if high > low:
                made.append({**_extent(row), "what": name, "low": low, "high": high})
    return made


def _described(row: Row) -> dict[str, Any]:
    return {
        **_extent(row),
        "from": _moment(row["at"]),
        **{name: row[name] for name in (*_PIECES, "ended")},
    }


def _extent(row: Row) -> dict[str, int]:
    return {"at": row["at"] * 1000, "end": (row["at"] + row["width"]) * 1000}


def changes(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Return the promotions and deploys to mark in the timeline: the ``MARKS`` newest, oldest first.

    Each has ``at`` (milliseconds since the epoch), ``time`` (text), ``kind`` and ``name``.
    """
    promoted = [
        (row, "promotion", f"generation {row['generation']}, {text.label(row.get('endpoint'))}")
        for row in tables.get("promotions", ())
    ]
    deployed = [
        (row, "deploy", f"{text.label(row.get('service'))} {text.label(row['value'])}")
        for row in tables.get("deploys", ())
    ]
    marks: list[dict[str, Any]] = [
        {
            "at": _unix_time(row["at"]) * 1000,
            "time": text.minute(row["at"]),
            "kind": kind,
            "what": kind,
            "name": name,
        }
        for row, kind, name in (*promoted, *deployed)
        if row.get("at")
    ]
    return sorted(marks, key=lambda mark: mark["at"])[-MARKS:]


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def _unix_time(shown: str) -> float:
    return moment(shown).timestamp()


def _colours(field: str, names: Iterable[str], colours: list[str], **options: Any) -> alt.Color:
    domain = list(names)
    scale = alt.Scale(domain=domain, range=colours)
    return alt.Color(f"{field}:N", scale=scale, legend=library.legend(domain, **options))


# -- hits by attribute ----------------------------------------------------------------------------


def attributes(rows: Rows) -> dict[str, list[Row]]:
    """Group rows by attribute, the most down and hit first; skip attributes with a single value."""
    found: dict[str, list[Row]] = {}
    for row in sorted(
        rows, key=lambda row: (-row["away"], -row["hit"], -row["connections"], str(row["value"]))
    ):
        found.setdefault(row["attribute"], []).append(row)
    return {name: values for name, values in found.items() if len(values) > 1}


def value_of(row: Row) -> str:
    """Return the value of a row, or a placeholder in parentheses."""
    if row["value"] is not None:
        return text.text(row["value"])
    if row.get("values"):
        return f"({text.number(row['values'])} others)"
    return "(not known yet)" if row.get("attribute") == "cluster" else "(not given)"


def hit(values: Rows) -> library.Figure:
    """Draw a bar for each value of an attribute: connections down, hit and back, not hit, ended before.

    :param values: rows of one attribute, from ``attributes``; only the first ``VALUES`` are drawn.
    """
    labels = text.axis_labels(value_of(row) for row in values[:VALUES])
    rows = [
        {
            "value": labels[value_of(row)],
            "full": value_of(row),
            "state": state,
            "count": count,
            "order": order,
            "away": row["away"],
            "hit": row["hit"],
            "connections": row["connections"],
            "ended": row.get("ended") or 0,
        }
        for row in values[:VALUES]
        for order, (state, count) in enumerate(zip(_STATES, _state_counts(row), strict=True))
        if count > 0
    ]
    colours = {
        state: colour
        for state, colour in zip(_STATES, _STATE_COLOURS, strict=True)
        if any(row["state"] == state for row in rows)
    }
    states = list(colours)
    named = list(dict.fromkeys(row["value"] for row in rows))
    bars: alt.Chart = (
        alt.Chart(library.named("bars"))
        .mark_bar()
        .encode(
            x=alt.X("count:Q", title="connections", axis=library.count_axis()),
            y=alt.Y("value:N", sort=named, title=None, axis=library.name_axis()),
            color=_colours("state", states, list(colours.values()), columns=_columns([*named, *states])),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("full:N", title="value"),
                *(alt.Tooltip(f"{name}:Q", format=",") for name in ("connections", "hit", "away", "ended")),
            ],
        )
    )
    return library.figure(bars, height=_height(named), bars=rows)


def _state_counts(row: Row) -> tuple[int, ...]:
    ended = row.get("ended") or 0
    return row["away"], row["hit"] - row["away"], row["connections"] - row["hit"] - ended, ended


def _height(labels: Iterable[str]) -> int:
    """Return the height of a chart with a bar for each label."""
    found = list(labels)
    return max(len(found), 1) * (_HIGH_BAR if _long(found) else _BAR)


def _columns(labels: list[str]) -> int:
    """Return the columns of a legend: with long labels or names, only one fits on a phone."""
    return 1 if _long(labels) or any(len(label) > _NAME for label in labels) else 2


def _long(labels: Iterable[str]) -> bool:
    return any("\n" in label for label in labels)


# -- how long -------------------------------------------------------------------------------------


def ecdf(now: Rows, before: Rows, headline: Row) -> library.Figure:
    """Draw the share of outages that had ended, by downtime, with the curve of a former run if given.

    The percentiles are for outages only, so they are marked only if the curve has no first connect.
    """
    runs = [("this run", now), *([("former run", before)] if before else [])]
    rows = [
        {"run": name, "downtime": max(float(point["downtime"]), 0.001), "share": float(point["share"])}
        for name, points in runs
        for point in _thin([each for each in points if each["downtime"] is not None])
    ]
    names = [name for name, _ in runs]
    seconds = alt.Axis(labelExpr=_SECONDS, labelOverlap=True, values=_ticks(rows))
    x = alt.X(
        "downtime:Q",
        scale=alt.Scale(type="log", nice=False),
        title="downtime, in logarithmic steps",
        axis=seconds,
    )
    y = alt.Y("share:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%", tickCount=5))
    hover = [
        alt.Tooltip("run:N"),
        alt.Tooltip("downtime:Q", title="downtime, s"),
        alt.Tooltip("share:Q", format=".2%"),
    ]
    base = alt.Chart(library.named("points"))
    line = base.mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=x, y=y, color=_colours("run", names, ["var(--accent)", "var(--others)"][: len(names)])
    )
    dots = base.mark_point(filled=True, size=200, opacity=0).encode(x=x, y=y, tooltip=hover)
    parts: list[Any] = [line, dots.add_params(library.zoom())]
    marks = [
        {
            "name": f"{rank} {findings.downtime(headline, rank)}",
            "downtime": max(headline[rank], 0.001),
            "share": share,
        }
        for rank, share in (("p50", 0.5), ("p99", 0.99))
        if headline.get(rank) is not None
        and not headline.get(f"{rank}_is_bound")
        and not headline.get("never_connected")
    ]
    for one in marks:  # the curve rises, so its upper left is free, except near the chart's edge
        high = one["share"] > _EDGE
        mark = alt.Chart(library.data([one]))
        label = mark.mark_text(
            align="right",
            baseline="top" if high else "bottom",
            dx=-8,
            dy=6 if high else -3,
            fontWeight=600,
            clip=True,
        )
        parts += [
            mark.mark_point(filled=True, size=70, color="var(--accent)", opacity=1, clip=True).encode(
                x=x, y=y
            ),
            label.encode(x=x, y=y, text="name:N"),
        ]
    return library.figure(*parts, height=250, points=rows)


def _ticks(rows: Rows) -> list[float]:
    """Return 1, 2 and 5 times each power of ten."""
    powers = range(-3, math.ceil(math.log10(max((row["downtime"] for row in rows), default=1.0))) + 1)
    return [factor * 10.0**power for power in powers for factor in (1, 2, 5)]


_SECONDS = (
    "datum.value < 1 ? format(datum.value * 1000, '~r') + ' ms' : "
    "datum.value < 120 ? format(datum.value, '~r') + ' s' : "
    "datum.value < 7200 ? format(datum.value / 60, '.3~r') + ' min' : "
    "format(datum.value / 3600, '.3~r') + ' h'"
)


def _thin(points: Rows) -> Rows:
    thin = points[:: len(points) // POINTS + 1]
    return thin if thin[-1:] == points[-1:] else [*thin, points[-1]]


# -- why ------------------------------------------------------------------------------------------


def failures(rows: Rows) -> library.Figure:
    """Draw failed attempts by endpoint, coloured by reason.

    Only the ``ENDPOINTS`` endpoints with the most failures are drawn.  All reasons except the ``ERRORS`` most
    frequent share one colour.

    :param rows: from ``findings.failures``.
    """
    endpoints = _largest(rows, "endpoint", ENDPOINTS)
    errors = _largest(rows, "error", ERRORS)
    sums: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["endpoint"] in endpoints:
            cell = (row["endpoint"], row["error"] if row["error"] in errors else OTHERS)
            sums[cell] = sums.get(cell, 0) + row["failures"]
    labels = text.axis_labels(endpoints)
    shown = [
        {"endpoint": labels[name], "full": name, "error": text.label(error), "failures": count}
        for (name, error), count in sums.items()
    ]
    names = [text.label(error) for error in errors] + (
        [OTHERS] if any(row["error"] == OTHERS for row in shown) else []
    )
    colours = [*library.COLOURS[: len(errors)], library.OTHER][: len(names)]
    bars: alt.Chart = (
        alt.Chart(library.named("bars"))
        .mark_bar()
        .encode(
            x=alt.X("failures:Q", title="attempts without a connection", axis=library.count_axis()),
            y=alt.Y("endpoint:N", sort=list(labels.values()), title=None, axis=library.name_axis()),
            color=_colours("error", names, colours, columns=_columns([*labels.values(), *names])),
            tooltip=[
                alt.Tooltip("full:N", title="endpoint"),
                alt.Tooltip("error:N"),
                alt.Tooltip("failures:Q", format=","),
            ],
        )
    )
    return library.figure(bars, height=_height(labels.values()), bars=shown)


def _largest(rows: Rows, name: str, limit: int) -> list[str]:
    order = sorted(rows, key=lambda row: row[name])
    sums = {
        key: sum(row["failures"] for row in group)
        for key, group in itertools.groupby(order, lambda row: row[name])
    }
    return sorted(sums, key=lambda key: (-sums[key], key))[:limit]
