"""Draws the ratios of drawn cells: a panel for each figure, a row for each policy.

The bar of a row goes from the 0.1 to the 0.9 quantile, with the median in it, and a line to the worst cell.
The line of an infinite ratio goes to the edge of its panel.  Needs the extra ``plots``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.grid.drawn import OURS, quantiles
from haclient.simulation.plot import need_for

_OURS, _OTHER, _INK, _SOFT = "#2a6fb0", "#8a97a5", "#16202b", "#536170"
_WIDTH, _ROW, _COLUMNS = 330, 20, 2
_LEGEND = (
    "Ratio to the best policy of each cell. Bar: the middle eight tenths of the cells; mark: the median; "
    "line: to the worst (the edge: never back)."
)
_EDGE = 1.5  # right edge of a panel, as a multiple of its highest finite ratio
_MARKS = (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)


def write_drawn_picture(
    found: Mapping[str, Mapping[str, Sequence[float]]], path: Path, *, title: str
) -> None:
    """Draw the ratios, as PNG or SVG by the name of the file.

    :param found: ratios by figure and policy.
    :raises NoPlotsError: if the extra is not installed.
    """
    need_for(path, None)
    import altair as alt  # noqa: PLC0415  # the extra may be missing
    import vl_convert  # noqa: PLC0415

    panels = [_panel(figure, of_policy) for figure, of_policy in found.items()]
    heading = alt.TitleParams(title, subtitle=_LEGEND, fontSize=16, offset=12)
    drawn = (
        alt.concat(*panels, columns=_COLUMNS, title=heading)
        .configure_title(anchor="start", color=_INK, subtitleColor=_SOFT)
        .configure_view(stroke=None)
        .to_json()
    )
    if path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(drawn), encoding="utf-8")
    else:
        path.write_bytes(vl_convert.vegalite_to_png(drawn, scale=2))


def _panel(figure: str, of_policy: Mapping[str, Sequence[float]]) -> Any:
    import altair as alt  # noqa: PLC0415  # the extra may be missing

    finite = (value for values in of_policy.values() for value in values if value < math.inf)
    edge = _EDGE * max((1.0, *finite))
    rows = [_row(policy, values, edge) for policy, values in of_policy.items()]
    axis = alt.Axis(format="~g", values=[value for value in _MARKS if value <= edge])
    scale = alt.Scale(type="log", domain=[1, edge], nice=False)
    y = alt.Y("policy:N", sort=list(of_policy), title=None, axis=alt.Axis(domain=False, ticks=False))
    colour = alt.condition(alt.datum.policy == OURS, alt.value(_OURS), alt.value(_OTHER))

    def x(name: str) -> Any:
        return alt.X(f"{name}:Q", scale=scale, title=None, axis=axis)

    base = alt.Chart(alt.InlineData(values=rows)).encode(y=y)
    return alt.layer(
        base.mark_rule().encode(x=x("low"), x2="worst:Q", color=colour),
        base.mark_bar(size=9).encode(x=x("low"), x2="high:Q", color=colour),
        base.mark_tick(size=15, thickness=2, color=_INK).encode(x=x("median")),
    ).properties(title=figure, width=_WIDTH, height=_ROW * len(of_policy))


def _row(policy: str, values: Sequence[float], edge: float) -> dict[str, object]:
    low, median, high, worst = (min(value, edge) for value in quantiles(values).values())
    return {"policy": policy, "low": low, "median": median, "high": high, "worst": worst}
