"""The charts of the details: a storm, the jitter, the lag of a site."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import altair as alt

from haclient.analysis.report import library, text
from haclient.analysis.report.text import OTHERS, Row, Rows

LEVELS = (("max", library.OTHER), ("p99", library.COLOURS[1]), ("p50", library.COLOURS[0]))
"""The levels of a lag, from the back to the front, each with its colour."""

SERIES = (("attempts", "attempts a second"), ("connected", "connection setups a second"))
"""The two charts of a storm."""

_HEIGHT = 170
_LINE = 13  # height of a line of text, in pixels


def members_of(buckets: Rows) -> list[str]:
    """Return the members of a storm in the order of their colours, "others" last."""
    names = {str(bucket["member"]) for bucket in buckets}
    return [*sorted(names - {OTHERS}), *sorted(names & {OTHERS})]


def storm(series: str, row: Row, buckets: Rows, marks: Rows) -> library.Figure:
    """Draw attempts or setups a second since the first loss, by member, and mark the new primary.

    :param series: a name in ``SERIES``.
    """
    members = members_of(buckets)
    labels = [text.label(member) for member in members]
    colours = [
        library.OTHER if member == OTHERS else library.COLOURS[number % 5]
        for number, member in enumerate(members)
    ]
    width = max((float(bucket["width"]) for bucket in buckets), default=1.0)
    end = max((float(bucket["second"]) for bucket in buckets), default=0.0) + width
    scale = alt.Scale(domain=[0, end], nice=False)  # same for both charts, one above the other
    x = alt.X("s:Q", title="seconds since the first loss", scale=scale, axis=alt.Axis(tickCount=6))
    bars = (
        alt.Chart(library.named("pieces"))
        .transform_calculate(e=f"datum.s + {width}", n="datum.high - datum.low")
        .mark_rect()
        .encode(
            x=x,
            x2="e:Q",
            y=alt.Y("low:Q", title=None, axis=library.count_axis()),
            y2="high:Q",
            color=alt.Color(
                "m:N",
                scale=alt.Scale(domain=labels, range=colours),
                legend=library.legend(labels, offset=36 if marks else 6),
            ),
            tooltip=[
                alt.Tooltip("s:Q", title="second"),
                alt.Tooltip("m:N", title="member"),
                alt.Tooltip("n:Q", title=dict(SERIES)[series], format=",.3~r"),
            ],
        )
    )
    parts: list[Any] = [bars.add_params(library.zoom())]
    if series == "connected" and row.get("setup_rate") and row.get("ratio_to_ideal") is not None:
        parts += _rate(float(row["setup_rate"]))
    parts += _marks(marks)
    return library.figure(*parts, height=_HEIGHT, pieces=_stacked(series, members, buckets))


def _stacked(series: str, members: list[str], buckets: Rows) -> list[dict[str, Any]]:
    """Return a rectangle for each member and column, stacked on the members before."""
    heights: dict[float, float] = {}
    rows = []
    for member in members:
        for bucket in buckets:
            if bucket["member"] == member and bucket[series]:
                at, rate = float(bucket["second"]), bucket[series] / bucket["width"]
                low = heights.get(at, 0.0)
                heights[at] = low + rate
                rows.append({"s": at, "m": text.label(member), "low": low, "high": low + rate})
    return rows


def _rate(rate: float) -> list[alt.Chart]:
    base = alt.Chart(library.data([{"n": rate, "name": f"setup rate {text.number(rate)}/s"}]))
    return [
        base.mark_rule(strokeDash=[3, 3], color=library.SOFT).encode(y=alt.Y("n:Q", title=None)),
        base.mark_text(align="right", dy=-7, fontWeight=600).encode(
            x=alt.value("width"), y=alt.Y("n:Q", title=None), text="name:N"
        ),
    ]


def _marks(marks: Rows) -> list[alt.Chart]:
    """Mark the first known sign of the primary's return."""
    found = {mark["event"]: mark for mark in marks}
    mark = found.get("promoted") or found.get("first back")
    if mark is None:
        return []
    what = (
        f"promotion announced\nby {text.label(mark.get('member') or 'a member')}"
        if "promoted" in found
        else "first client back"
    )
    at = max(float(mark["second"]), 0.0)
    base = alt.Chart(library.data([{"s": at, "name": f"{what}, {text.seconds(at)}"}]))
    return [
        base.mark_rule(strokeWidth=1.5, color="var(--event)", clip=True).encode(x="s:Q", tooltip="name:N"),
        base.mark_text(
            align="left",
            baseline="bottom",
            dx=5,
            dy=-4 - _LINE * what.count("\n"),
            fontWeight=600,
            clip=False,
            lineBreak="\n",
        ).encode(x="s:Q", y=alt.value(0), text="name:N"),
    ]


def jitter(cells: Rows) -> library.Figure:
    """Draw the distribution of one strategy's delays, as shares of the base they were drawn from."""
    total = max(sum(int(cell["delays"]) for cell in cells), 1)
    rows = [
        {
            "from": float(cell["ratio_from"]),
            "to": float(cell["ratio_to"]),
            "share": int(cell["delays"]) / total,
        }
        for cell in cells
    ]
    bars = (
        alt.Chart(library.named("cells"))
        .mark_rect(color=library.COLOURS[0])
        .encode(
            x=alt.X("from:Q", title="delay as a share of its base", scale=alt.Scale(domain=[0, 1])),
            x2="to:Q",
            y=alt.Y(
                "share:Q", title=None, axis=alt.Axis(format=".0%", tickCount=4), scale=alt.Scale(zero=True)
            ),
            y2=alt.datum(0),
            tooltip=["from:Q", "to:Q", alt.Tooltip("share:Q", format=".2%")],
        )
    )
    ideals = [float(cell["ideal"]) / total for cell in cells if cell.get("ideal") is not None][:1]
    rule = [
        alt.Chart(library.data([{"share": ideal}]))
        .mark_rule(strokeDash=[6, 4], strokeWidth=1.5, color=library.INK)
        .encode(y="share:Q")
        for ideal in ideals
    ]
    return library.figure(bars, *rule, height=_HEIGHT, cells=rows)


def lag(unit: str, columns: Sequence[Row]) -> library.Figure:
    """Draw the lag of a stream over time: median, 99 % and longest of the worst minute.

    :param unit: ``seconds`` or ``events``.
    """
    rows = [
        {
            "at": float(column["second"]) * 1000,
            "from": f"{datetime.fromtimestamp(column['second'], UTC):%Y-%m-%d %H:%M}",
            "end": (float(column["second"]) + float(column["width"])) * 1000,
            **{level: float(column[f"lag_{unit}_{level}"] or 0) for level, _ in LEVELS},
        }
        for column in columns
    ]
    base = alt.Chart(library.named("columns"))
    hover = [alt.Tooltip("from:N", title="from (UTC)"), *(f"{level}:Q" for level, _ in LEVELS)]
    bars = [
        base.mark_rect(color=colour).encode(
            x=alt.X("at:T", **library.utc_axis()),
            x2="end:T",
            y=alt.Y(
                f"{level}:Q", title=f"lag in {unit}", axis=library.count_axis(), scale=alt.Scale(zero=True)
            ),
            y2=alt.datum(0),
            tooltip=hover,
        )
        for level, colour in LEVELS
    ]
    return library.figure(bars[0].add_params(library.zoom()), *bars[1:], height=_HEIGHT, columns=rows)
