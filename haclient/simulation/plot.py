"""Draws arrivals over time, one panel a series, as PNG or (``page``) as one HTML file without network.

A panel shows setups a second (filled) and attempts a second (line) at the primary, the rate that it
manages, and N/mu: when the last client could have been back.  All panels have the same time axis, so
that they can be compared; attempts above the frame are cut off there, and the text names their peak.

Needs the extra ``plots``; nothing else of the package does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from haclient.simulation.arrivals import BINS, Arrivals, caption, cut_off, per_second, time_span
from haclient.version import install_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 3
_FOR_PAGES = ("markupsafe", "altair", "vl_convert")

_SETUPS, _ATTEMPTS, _IDEAL, _INK, _GRID = "#2a6fdb", "#c77400", "#16202b", "#536170", "#e8ebef"


class NoPlotsError(Exception):
    """What draws is not installed."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(f"a plot needs {module}: {install_extra('plots')}")

    def __reduce__(self) -> tuple[type[NoPlotsError], tuple[str]]:
        return type(self), (self.module,)


def write_png(series: Sequence[Arrivals], path: Path, *, title: str) -> None:
    """Draw the panels into a PNG file.

    :raises NoPlotsError: without matplotlib.
    """
    need("matplotlib")
    from matplotlib.figure import Figure  # noqa: PLC0415  # the extra may be missing

    columns = min(_COLUMNS, max(1, len(series)))
    rows = max(1, math.ceil(len(series) / columns))
    figure = Figure(
        figsize=(4.4 * columns, 2.6 * rows + 0.9), dpi=120, facecolor="white", layout="constrained"
    )
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    span = time_span(series)
    for axes, one in zip(panels, series, strict=False):
        _panel(axes, one, span)
    for axes in panels[len(series) :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=12, color=_IDEAL)
    handles, labels = figure.axes[0].get_legend_handles_labels() if series else ([], [])
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, format="png")


def write_html(
    series: Sequence[Arrivals], table: Sequence[Mapping[str, object]], path: Path, *, title: str
) -> None:
    """Draw the panels and the table into one HTML file.

    :param table: rows with the same keys; the first key names the row.
    :raises NoPlotsError: without what draws it, and jinja2's markupsafe.
    """
    for module in _FOR_PAGES:
        need(module)
    from haclient.simulation.page import page  # noqa: PLC0415  # the extra may be missing

    path.write_text(page(series, table, title), encoding="utf-8")


def need(module: str) -> None:
    """:raises NoPlotsError: when this module of the extra is missing."""
    if find_spec(module) is None:
        raise NoPlotsError(module)


def need_for(png: Path | None, html: Path | None) -> None:
    """:raises NoPlotsError: when something is missing that these pictures need, before the storm."""
    if png is not None:
        need("matplotlib")
    if html is not None:
        for module in _FOR_PAGES:
            need(module)


def _panel(axes: Axes, one: Arrivals, span: float) -> None:
    edges = [span * place / BINS for place in range(BINS + 1)]
    setups, attempts = per_second(one.back, span), per_second(one.attempts, span)
    axes.stairs(attempts, edges, color=_ATTEMPTS, linewidth=1.1, label="attempts a second")
    axes.stairs(setups, edges, color=_SETUPS, fill=True, alpha=0.75, label="setups a second")
    axes.axhline(one.setup_rate, color=_INK, linewidth=0.9, linestyle=":", label="\N{GREEK SMALL LETTER MU}")
    axes.axvline(one.ideal, color=_IDEAL, linewidth=1.2, linestyle="--", label="N/\N{GREEK SMALL LETTER MU}")
    limit = 3 * one.setup_rate
    axes.set_xlim(0, span)
    axes.set_ylim(0, limit)
    axes.set_title(one.name, fontsize=10.5, color=_IDEAL, loc="left", pad=16)
    axes.text(0, 1.03, caption(one, span), transform=axes.transAxes, fontsize=7.5, color=_INK)
    axes.text(
        0.98,
        0.94,
        cut_off(one, span),
        transform=axes.transAxes,
        fontsize=7.5,
        ha="right",
        va="top",
        color=_ATTEMPTS,
        backgroundcolor="white",
    )
    axes.grid(color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors=_INK)
    axes.set_xlabel("seconds after the primary is back", fontsize=8, color=_INK)
    for side in axes.spines.values():
        side.set_color(_GRID)
