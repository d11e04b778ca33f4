"""A comparison as a self-contained HTML page (charts and a table, light and dark), or as a PNG.

It uses the charting library and the style of the analysis' report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert
from markupsafe import Markup

from haclient.analysis.report import library, text
from haclient.simulation.arrivals import BINS, Arrivals, caption, cut_off, per_second, time_span

_SETUPS, _ATTEMPTS, _RATE, _IDEAL = (
    "setups a second",
    "attempts a second",
    "what the primary manages, \u03bc",
    "N/\u03bc",
)
_TIME = "seconds after the primary is back"
_HEIGHT, _WIDTH, _COLUMNS = 190, 340, 3
_MARKS = f"filled: {_SETUPS}; line: {_ATTEMPTS}; dotted: {_RATE}; dashed: {_IDEAL}"

_STYLE = """
header, main { max-width: 1320px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 16px; }
section { margin: 0; padding: 14px 16px; min-width: 0; } .scroll { margin: 0 -16px; padding: 0 16px; }
.whole { margin: 16px 0; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0; padding: 0; list-style: none; }
.legend { font-size: .8rem; }
.legend i { display: inline-block; width: 22px; margin-right: 6px; }
.legend i { vertical-align: 4px; border-top: 2px solid; }
"""

_PAGE = Markup("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title><style>{style}</style></head><body>
<header><h1>{title}</h1><button id="theme" type="button" hidden></button></header><main>
<ul class="legend">{legend}</ul>
<div class="panels">{panels}</div>
<section class="whole"><div class="scroll"><table>
<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>
</section></main>{scripts}</body></html>
""")

_LEGEND = (
    (_SETUPS, "border-top: 10px solid var(--m0); vertical-align: 0"),
    (_ATTEMPTS, "border-color: var(--m1)"),
    (_RATE, "border-top: 2px dotted var(--soft)"),
    (_IDEAL, "border-top: 2px dashed var(--ink)"),
)


def page(series: Sequence[Arrivals], table: Sequence[Mapping[str, object]], title: str) -> str:
    """Return the whole page."""
    span = time_span(series)
    columns = list(table[0]) if table else []
    drawn = {
        f"chart-{place}": library.figure(*_layers(one, span), height=_HEIGHT, seconds=_seconds(one, span))
        for place, one in enumerate(series)
    }
    return _PAGE.format(
        title=title,
        policy=library.policy(),
        style=Markup(library.style() + _STYLE),  # noqa: S704 - of this package
        legend=Markup().join(Markup('<li><i style="{1}"></i>{0}</li>').format(*each) for each in _LEGEND),
        panels=Markup().join(_panel(place, one, span) for place, one in enumerate(series)),
        head=Markup().join(_head(name, "num" if place else "") for place, name in enumerate(columns)),
        rows=Markup().join(_row(row) for row in table),
        scripts=library.scripts(drawn),
    )


def _panel(place: int, one: Arrivals, span: float) -> Markup:
    said = caption(one, span)
    chart = Markup('<div class="chart" id="chart-{}" role="img" aria-label="{}"></div>').format(place, said)
    above = cut_off(one, span)
    note = Markup('<p class="note">{}</p>').format(f"{said}{f'; {above}' if above else ''}")
    return Markup("<section><h2>{}</h2>{}{}</section>").format(one.name, note, chart)


def png(series: Sequence[Arrivals], title: str) -> bytes:
    """Return the charts without the table, side by side in light colours, as PNG."""
    span = time_span(series)
    panels = [
        alt.layer(*_layers(one, span, zoomed=False), data=library.data(_seconds(one, span))).properties(
            title=alt.TitleParams(one.name, subtitle=[caption(one, span), cut_off(one, span)]),
            width=_WIDTH,
            height=_HEIGHT,
        )
        for one in series
    ]
    heading = alt.TitleParams(title, subtitle=_MARKS, fontSize=16)
    drawn = alt.concat(*panels, columns=_COLUMNS, title=heading).configure_title(anchor="start")
    colours = dict(reversed(re.findall(r"--(\w+): (#\w+)", library.style())))
    specification = re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], drawn.to_json())
    return vl_convert.vegalite_to_png(specification, scale=2)


def _seconds(one: Arrivals, span: float) -> list[dict[str, float]]:
    """Return a row for each bin of the time axis."""
    width = span / BINS
    return [
        {
            "s": place * width,
            "e": (place + 1) * width,
            "setups": setups,
            "attempts": attempts,
            "drawn": min(attempts, 3 * one.setup_rate),
        }
        for place, (setups, attempts) in enumerate(
            zip(per_second(one.back, span), per_second(one.attempts, span), strict=True)
        )
    ]


def _layers(one: Arrivals, span: float, *, zoomed: bool = True) -> list[Any]:
    """Return the layers of a panel; on a page they can be zoomed and refer to named rows."""
    axis = alt.Axis(tickCount=6)
    x = alt.X("s:Q", title=_TIME, axis=axis, scale=alt.Scale(domain=[0, span], nice=False))
    y_scale = alt.Scale(domain=[0, 3 * one.setup_rate], nice=False)
    y = alt.Y("setups:Q", title=None, axis=library.count_axis(), scale=y_scale)
    base = alt.Chart(library.named("seconds")) if zoomed else alt.Chart()
    setups = base.mark_rect(color=library.COLOURS[0], clip=True).encode(x=x, x2="e:Q", y=y, y2=alt.datum(0))
    attempts = base.mark_line(
        color=library.COLOURS[1], interpolate="step-after", strokeWidth=1.4, clip=True
    ).encode(x=x, y=alt.Y("drawn:Q", title=None, scale=y_scale))
    rate = _rule("y", one.setup_rate, [2, 3], library.SOFT)
    ideal = [_rule("x", one.ideal, [6, 4], library.INK)] if one.ideal <= span else []
    layers = [setups, attempts, rate, *ideal]
    if zoomed:
        hover = [
            alt.Tooltip("s:Q", title="second"),
            alt.Tooltip("setups:Q", title=_SETUPS, format=",.3~r"),
            alt.Tooltip("attempts:Q", title=_ATTEMPTS, format=",.3~r"),
        ]
        seen = base.mark_rect(opacity=0).encode(x=x, x2="e:Q", tooltip=hover)
        layers.append(seen.add_params(library.zoom()))
    return layers


def _rule(axis: str, value: float, dash: list[int], colour: str) -> alt.Chart:
    place = {"x": alt.X("v:Q", title=_TIME)} if axis == "x" else {"y": alt.Y("v:Q", title=None)}
    rule = alt.Chart(library.data([{"v": value}])).mark_rule(strokeDash=dash, color=colour, clip=True)
    made: alt.Chart = rule.encode(**place)
    return made


def _head(name: str, kind: str) -> Markup:
    return Markup('<th class="{}">{}</th>').format(kind, name.replace("_", " "))


def _row(row: Mapping[str, object]) -> Markup:
    first, *rest = row.values()
    cells = Markup().join(Markup('<td class="num">{}</td>').format(_cell(value)) for value in rest)
    return Markup("<tr><th>{}</th>{}</tr>").format(first, cells)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return text.number(value) if value is None or isinstance(value, int) else str(value)
