"""Draws a grid as one picture: a panel for each kind and number of members, a field for each cell.

A field shows our figures, and the figures of the fastest preset below.  The colour shows whether the bars
hold.  Needs the extra ``plots``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.grid.bars import Outcome
from benchmarks.grid.run import Judged
from haclient.simulation.plot import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOLDS, _NEARLY, _FAILS = "#cfe8d5", "#fbe3bd", "#f3c1b8"
_INK, _SOFT, _LINE = "#16202b", "#536170", "#ffffff"
_CLOSE = 1.1
"""A cell that misses its bars by less than this factor has a colour of its own."""
_COLUMN, _ROW = 0.92, 0.62  # inches of a field


def write_picture(found: Sequence[Judged], path: Path, *, title: str, policy: str) -> None:
    """Draw the cells, as PNG or SVG by the name of the file.

    :param policy: which of ours.
    :raises NoPlotsError: without matplotlib.
    """
    need("matplotlib")
    from matplotlib.figure import Figure  # noqa: PLC0415  # the extra may be missing

    members = sorted({judged.cell.members for judged in found})
    kinds = list(dict.fromkeys(judged.cell.kind for judged in found))
    clients = sorted({judged.cell.clients for judged in found})
    outages = sorted({judged.cell.outage for judged in found})
    width = len(kinds) * (len(clients) * _COLUMN + 0.9)
    height = len(members) * (len(outages) * _ROW + 0.9) + 1.0
    figure = Figure(figsize=(max(width, 7), height), dpi=110, facecolor="white", layout="constrained")
    panels = figure.subplots(len(members), len(kinds), squeeze=False)
    for (row, number), (column, kind) in product(enumerate(members), enumerate(kinds)):
        axes = panels[row][column]
        here = [each for each in found if (each.cell.members, each.cell.kind) == (number, kind)]
        for judged in here:
            place = (clients.index(judged.cell.clients), outages.index(judged.cell.outage))
            _field(axes, judged, policy, *place)
        name = "one address" if number == 1 else f"{number} addresses"
        axes.set_title(f"{name}, {kind}", fontsize=11, color=_INK, loc="left")
        axes.set_xlim(0, len(clients))
        axes.set_ylim(len(outages), 0)
        axes.set_xticks([place + 0.5 for place in range(len(clients))], [f"{each:,}" for each in clients])
        axes.set_yticks([place + 0.5 for place in range(len(outages))], [f"{each:g} s" for each in outages])
        axes.set_xlabel("clients", fontsize=8, color=_SOFT)
        axes.set_ylabel("outage", fontsize=8, color=_SOFT)
        axes.tick_params(labelsize=8, colors=_SOFT, length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    figure.suptitle(title, fontsize=13, color=_INK)
    figure.text(0.5, 0.005, _LEGEND.format(policy), ha="center", va="bottom", fontsize=8.5, color=_SOFT)
    figure.get_layout_engine().set(rect=(0, 0.05, 1, 0.95))  # type: ignore[union-attr, call-arg]
    figure.savefig(path, format="svg" if path.suffix == ".svg" else "png")


_LEGEND = (
    "Seconds until the last client is back / SYNs a client once the primary is back: {}; below it the "
    "fastest preset.\nGreen: all bars hold.  Yellow: time or attempts miss theirs by a tenth at most, or a "
    "preset is better at both.  Red: by more."
)


def _field(axes: Axes, judged: Judged, policy: str, column: int, row: int) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415  # the extra may be missing

    ours, first = judged.ours[policy], judged.presets[judged.bars.fastest]
    colour = _colour(judged, policy)
    axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=_LINE, linewidth=2))
    axes.text(
        column + 0.5,
        row + 0.36,
        figures(ours),
        ha="center",
        va="center",
        fontsize=8.5,
        color=_INK,
        weight="bold",
    )
    axes.text(column + 0.5, row + 0.72, figures(first), ha="center", va="center", fontsize=7, color=_SOFT)


def _colour(judged: Judged, policy: str) -> str:
    if not judged.broken[policy]:
        return _HOLDS
    ours, bars = judged.ours[policy], judged.bars
    close = ours.last <= _CLOSE * bars.last and ours.attempts <= _CLOSE * bars.attempts
    return _NEARLY if close else _FAILS


def figures(outcome: Outcome) -> str:
    """The time and the attempts, as short as they can be."""
    return f"{_short(outcome.last)} / {_short(outcome.attempts)}"


def _short(value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
