"""A grid as text: one row for each cell, and a summary."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.grid.known import KNOWN, Comparison, key
from benchmarks.grid.run import Judged

COLUMNS = (
    "members",
    "kind",
    "clients",
    "outage",
    "best",
    "fastest preset",
    "last",
    "attempts",
    "bars",
    "ours: last",
    "attempts",
    "before",
    "bars broken",
)
TEXTS = {"kind", "fastest preset", "bars broken"}
"""Columns that are no numbers."""


def row(judged: Judged, policy: str) -> tuple[str, ...]:
    """Return the row of one cell; times are in seconds."""
    cell, bars, ours = judged.cell, judged.bars, judged.ours[policy]
    first = judged.presets[bars.fastest]
    return (
        str(cell.members),
        cell.kind,
        f"{cell.clients:,}",
        f"{cell.outage:g}",
        number(cell.best),
        bars.fastest,
        number(first.last),
        number(first.attempts),
        f"{number(bars.last)} / {number(bars.attempts)}",
        number(ours.last),
        number(ours.attempts),
        number(ours.before),
        "; ".join(judged.broken[policy]),
    )


def holding(found: Sequence[Judged], policy: str) -> int:
    """Return the number of cells that hold."""
    return sum(not judged.broken[policy] for judged in found)


def summary(found: Sequence[Judged], policy: str) -> str:
    """Return the number of cells that hold, and the broken bars of the others, as text."""
    words = [word.split()[0] for judged in found for word in judged.broken[policy]]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(sorted(words)))
    text = f"{policy}: {holding(found, policy)} of {len(found)} cells hold"
    return f"{text} ({counts})" if counts else text


def comparison(compared: Comparison, policy: str) -> list[str]:
    """Return a line for each cell that breaks a bar or holds again, and one line with the counts."""
    lines = [f"known not to hold: {_figures(each, policy)}" for each in compared.expected]
    lines += [f"holds now, take it out of known.py: {_figures(each, policy)}" for each in compared.mended]
    lines += [f"HOLDS NO LONGER: {_figures(each, policy)}" for each in compared.unexpected]
    counts = f"{len(compared.expected)} known not to hold, {len(compared.mended)} of those hold now"
    return [*lines, f"checked: {len(compared.unexpected)} cells hold no longer, {counts}"]


def _figures(judged: Judged, policy: str) -> str:
    cell, ours, limits = judged.cell, judged.ours[policy], judged.bars
    addresses = "one address" if cell.members == 1 else f"{cell.members} addresses"
    why = KNOWN.get(key(cell))
    return (
        f"{cell.clients:,} clients, {addresses}, {cell.kind}, outage {cell.outage:g} s: the last after "
        f"{number(ours.last)} s of {number(limits.last)}, {number(ours.attempts)} attempts of "
        f"{number(limits.attempts)}; {'; '.join(judged.broken[policy]) or 'nothing broken'}"
        + (f" ({why})" if why else "")
    )


def politeness(found: Sequence[Judged], policy: str) -> str:
    """The most SYNs of one client at one address within a second, and the smallest gap, in all cells."""
    most = max((judged.ours[policy].most_syns for judged in found), default=0)
    gap = min((judged.ours[policy].smallest_gap for judged in found), default=math.inf)
    impolite = sum(not judged.ours[policy].is_polite for judged in found)
    return (
        f"SYNs of one client at one address: at most {most} within a second, and {number(gap)} s apart at "
        f"least; more than 2, or less than 0.4 s apart, in {impolite} cells"
    )


def number(value: float) -> str:
    """Return a number with the digits that matter; ``never`` for an infinite time."""
    if not math.isfinite(value):
        return "never"
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
