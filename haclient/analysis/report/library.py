"""The charting library inside the page: Vega from vl-convert, the charts' data, and the drawing script.

Rules
-----
* A chart is an Altair chart; the page has its Vega-Lite specification as JSON, and draws it when it opens.
* JSON is data to the browser: every ``<``, ``>`` and ``&`` is escaped, so that no value can end its element.
* Vega's expressions are interpreted, not compiled: the page's policy allows only its two scripts, each
  named by its hash, and forbids all requests.
* Colours are custom properties of the style, so that light and dark use the same drawing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import altair as alt
import vl_convert
from markupsafe import Markup

from haclient.analysis.report.text import LINE, Rows

COLOURS = tuple(f"var(--m{number})" for number in range(5))
OTHER, INK, SOFT, BAD, FAINT = (f"var(--{name})" for name in ("others", "ink", "soft", "bad", "line"))

ZOOM = "zoom"
"""The parameter for zooming a chart; the script's buttons and the wheel (with Ctrl) set it."""

_TIMES = {
    "year": "%Y",
    "quarter": "%b %Y",
    "month": "%b %Y",
    "week": "%b %d",
    "date": "%b %d",
    "day": "%b %d",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": "%S.%L",
}
_LONG = 1e9  # larger numbers, such as times in milliseconds, keep all digits
_ESCAPED = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


@functools.cache
def bundle() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script: 0.9 MB, which takes a second to make."""
    return vl_convert.javascript_bundle(None)  # type: ignore[arg-type]  # no snippet: all of it


@functools.cache
def script() -> str:
    """Return the script that draws the charts, and switches between light and dark."""
    return files(__package__).joinpath("page.js").read_text(encoding="utf-8")


@functools.cache
def style() -> str:
    """Return the style of a page with charts."""
    return files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def policy() -> str:
    """Return the page's Content-Security-Policy: allow its two scripts and its style, nothing else."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in (bundle(), script()))
    sources = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}"
    return f"{sources}; base-uri 'none'; form-action 'none'"


def scripts(charts: Mapping[str, Figure]) -> Markup:
    """Return the elements at the end of the page: its charts, by their elements' ids, and the scripts."""
    specifications = {name: chart.specification() for name, chart in charts.items()}
    data = json.dumps(specifications, separators=(",", ":"), default=str).translate(_ESCAPED)
    parts = (
        f'<script type="application/json" id="charts">{data}</script>',
        f"<script>{bundle()}</script><script>{script()}</script>",
    )
    return Markup("".join(parts))  # noqa: S704 - escaped above; the scripts are of the library and this package


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- parts that charts share ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, and the rows that its layers refer to by name (``named``).

    Altair checks each row inside a chart against its schema, several times.  Rows outside it are not checked.
    """

    chart: alt.TopLevelMixin
    rows: Mapping[str, Rows] = field(default_factory=dict)

    def specification(self) -> dict[str, Any]:
        """Return the chart as Vega-Lite, without a theme of its own."""
        found: dict[str, Any] = self.chart.to_dict()
        found.pop("config", None)
        found.pop("$schema", None)
        named_rows = {name: [dict(_short(row)) for row in rows] for name, rows in self.rows.items()}
        return {**found, "datasets": {**found.get("datasets", {}), **named_rows}}


def figure(*layers: alt.Chart, height: int, **rows: Rows) -> Figure:
    """Create a chart of layers on top of each other, as wide as the page.

    :param rows: rows by the names that the layers use.
    """
    return Figure(alt.layer(*layers).properties(width="container", height=height), rows)


def named(name: str) -> alt.NamedData:
    """Refer to rows of the figure by name."""
    return alt.NamedData(name=name)


def data(rows: Rows) -> alt.InlineData:
    """Embed a few rows in the chart."""
    return alt.InlineData(values=[dict(_short(row)) for row in rows])


def _short(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Shorten numbers to visible precision."""
    for name, value in row.items():
        yield name, float(f"{value:.5g}") if isinstance(value, float) and abs(value) < _LONG else value


def zoom() -> alt.Parameter:
    """Zoom along the time axis: drag moves, the wheel with Ctrl (or two fingers on a touchpad) zooms."""
    wheel = "wheel![event.ctrlKey || event.metaKey]"
    return alt.selection_interval(name=ZOOM, bind="scales", encodings=["x"], zoom=wheel)


def utc_axis(**options: Any) -> dict[str, Any]:
    """Return the arguments of a time axis in UTC: 24 hours, with dates at midnight."""
    axis = alt.Axis(format=_TIMES, labelOverlap=True, **options)
    return {"scale": alt.Scale(type="utc"), "title": "time (UTC)", "axis": axis}


def count_axis(**options: Any) -> alt.Axis:
    """Return an axis of counts."""
    shown = "datum.value < 10000 ? format(datum.value, ',~r') : format(datum.value, '~s')"
    return alt.Axis(labelExpr=shown, tickCount=4, **options)


def legend(names: Iterable[str] = (), **options: Any) -> alt.Legend:
    """Return a legend above the chart that fits on a phone: long names have a row each."""
    columns = 1 if any(len(name) > LINE for name in names) else 2
    return alt.Legend(orient="top", title=None, labelLimit=310, **{"columns": columns, **options})


def name_axis() -> alt.Axis:
    """Return an axis for the labels of ``text.axis_labels``."""
    return alt.Axis(labelExpr="split(datum.value, '\\n')", labelLimit=150, labelPadding=6)
