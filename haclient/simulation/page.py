"""The HTML page of a comparison: inline SVG, a table, nothing from anywhere else, light and dark.

The ground of the charts and the style are those of the analysis' report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from markupsafe import Markup

from haclient.analysis.report import svg
from haclient.analysis.report.svg import Frame, Size
from haclient.simulation.arrivals import Arrivals, caption, cut_off, per_second, time_span

_SIZE = Size("panel", 430, 240, 6)

_STYLE = """
header, main { max-width: 1320px; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 16px; }
section { margin: 0; padding: 14px 16px; } .scroll { margin: 0 -16px; padding: 0 16px; }
.whole { margin: 16px 0; }
.chart .attempts { stroke: var(--m1); stroke-width: 1.4; } .chart .setups { fill: var(--m0); opacity: .75; }
.chart .mu { stroke: var(--soft); stroke-dasharray: 2 3; }
.chart text.peak { fill: var(--m1); paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
.legend i.line { height: 0; border-top: 2px solid var(--m1); width: 22px; vertical-align: 4px; }
.legend i.dots { height: 0; border-top: 2px dotted var(--soft); width: 22px; vertical-align: 4px; }
"""

_PAGE = Markup("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>{style}</style></head><body>
<header><h1>{title}</h1></header><main>
<ul class="legend"><li><i class="m0"></i>setups a second</li><li><i class="line"></i>attempts a second</li>
<li><i class="dots"></i>what the primary manages, \u03bc</li><li><i class="dash"></i>N/\u03bc</li></ul>
<div class="panels">{panels}</div>
<section class="whole"><div class="scroll"><table>
<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>
</section></main></body></html>
""")


def page(series: Sequence[Arrivals], table: Sequence[Mapping[str, object]], title: str) -> str:
    """The whole page."""
    style = files("haclient.analysis.report").joinpath("style.css").read_text(encoding="utf-8") + _STYLE
    span = time_span(series)
    columns = list(table[0]) if table else []
    return _PAGE.format(
        title=title,
        style=Markup(style),  # noqa: S704 - of this package
        panels=Markup().join(_panel(place, one, span) for place, one in enumerate(series)),
        head=Markup().join(_head(name, "num" if place else "") for place, name in enumerate(columns)),
        rows=Markup().join(_row(row) for row in table),
    )


def _panel(place: int, one: Arrivals, span: float) -> Markup:
    text = caption(one, span)
    chart = svg.chart(f"s{place}", one.name, text, lambda size: _drawing(one, span, size), _SIZE)
    return Markup('<section><h2>{}</h2><p class="note">{}</p>{}</section>').format(one.name, text, chart)


def _drawing(one: Arrivals, span: float, size: Size) -> Markup:
    limit = 3 * one.setup_rate
    frame = Frame(48, size.width - 10.0, 8, size.height - 40.0, span, limit)
    times = [at for at in svg.steps(span, size.ticks) if at <= span]
    rates = [at for at in svg.steps(limit, 4) if at <= limit]
    parts = [
        svg.y_axis(frame, ((at, svg.number(at)) for at in rates)),
        svg.path("setups", _stairs(frame, per_second(one.back, span)) + "Z"),
        svg.path("attempts", _stairs(frame, per_second(one.attempts, span))),
        _across(frame, one.setup_rate),
        _upright(frame, one.ideal),
        svg.x_axis(frame, ((at, f"{at:g}") for at in times), unit="seconds after the primary is back"),
    ]
    return Markup().join(
        [*parts, svg.text_at(frame.right - 4, frame.top + 14, cut_off(one, span), "peak end")]
    )


def _stairs(frame: Frame, counts: Sequence[float]) -> str:
    width = frame.x_max / len(counts)
    steps = [f"M{svg.px(frame.left)} {svg.px(frame.bottom)}"]
    for place, count in enumerate(counts):
        steps.append(f"V{svg.px(frame.y(min(count, frame.y_max)))}H{svg.px(frame.x((place + 1) * width))}")
    return "".join([*steps, f"V{svg.px(frame.bottom)}"])


def _across(frame: Frame, rate: float) -> Markup:
    return svg.path("mu", f"M{svg.px(frame.left)} {svg.px(frame.y(rate))}H{svg.px(frame.right)}")


def _upright(frame: Frame, time: float) -> Markup:
    if time > frame.x_max:
        return Markup()
    return svg.path("ideal", f"M{svg.px(frame.x(time))} {svg.px(frame.bottom)}V{svg.px(frame.top)}")


def _head(name: str, kind: str) -> Markup:
    return Markup('<th class="{}">{}</th>').format(kind, name.replace("_", " "))


def _row(row: Mapping[str, object]) -> Markup:
    first, *rest = row.values()
    cells = Markup().join(Markup('<td class="num">{}</td>').format(_cell(value)) for value in rest)
    return Markup("<tr><th>{}</th>{}</tr>").format(first, cells)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return svg.number(value) if value is None or isinstance(value, int) else str(value)
