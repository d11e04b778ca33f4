"""Prints the figures of storms, as text and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.storm.figures import Figures
from benchmarks.storm.flood import Flood
from benchmarks.storm.run import Outcome
from haclient.printable.text import printable
from haclient.simulation import plot as pictures
from haclient.simulation.arrivals import Arrivals

_MIB = 1024 * 1024


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.2f} s"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


_COLUMNS: dict[str, Callable[[Figures], str]] = {
    "clients": lambda one: one.name,
    "back": lambda one: f"{one.back:,} of {one.clients:,}",
    "gave up": lambda one: f"{one.gave_up:,}",
    "ended by its library": lambda one: f"{one.redials:,}",
    "errors that ended its loop": lambda one: f"{one.defects:,}",
    "outage": lambda one: _seconds(one.outage),
    "p50": lambda one: _seconds(one.p50),
    "p99": lambda one: _seconds(one.p99),
    "last": lambda one: _seconds(one.last),
    "setups/s": lambda one: f"{one.setup_rate:,.0f}",
    "admitted/s": lambda one: "no limit" if one.accept_rate is None else f"{one.accept_rate:,.0f}",
    "N/mu": lambda one: _seconds(one.ideal),
    "last/(N/mu)": lambda one: _number(one.ratio),
    "dials a client": lambda one: _number(one.attempts),
    "after it is back": lambda one: _number(one.attempts_after),
    "refused a client": lambda one: _number(one.refused),
    "settled": lambda one: f"{one.settled:,}",
    "lost": lambda one: f"{one.lost:,}",
    "member's memory": lambda one: f"{one.memory / _MIB:,.0f} MiB",
    "files": lambda one: f"{one.files:,}",
}


def rows(storms: Sequence[Figures]) -> list[dict[str, str]]:
    """Return one row of texts for each storm."""
    return [{title: cell(one) for title, cell in _COLUMNS.items()} for one in storms]


def table(storms: Sequence[Figures]) -> Table:
    """Return a table with one column a storm, since there are more figures than storms."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("clients", style="dim", no_wrap=True)
    for one in storms:
        shown.add_column(one.name, justify="right", no_wrap=True)
    for title, cell in list(_COLUMNS.items())[1:]:
        shown.add_row(title, *(cell(one) for one in storms))
    return shown


def flood_text(flood: Flood) -> str:
    """Describe the effect of newcomers on connected senders in a sentence."""
    senders = f"{flood.established} connected senders"
    before, during = _milliseconds(flood.p99_before), _milliseconds(flood.p99_during)
    return (
        f"{'kept apart, ' if flood.apart else ''}{flood.came_in:,} of {flood.newcomers:,} newcomers within "
        f"{flood.seconds:.1f} s; send-and-settle of {senders}, p99: {before} before "
        f"({flood.messages_before:,} messages), {during} meanwhile ({flood.messages_during:,}), "
        f"{flood.ratio:.2f}x; p50: {_milliseconds(flood.p50_before)} and {_milliseconds(flood.p50_during)}"
        f"{_waits(flood)}"
    )


def _waits(flood: Flood) -> str:
    """Describe how long members waited for processors; empty if unknown."""
    if not flood.waited_during:
        return ""
    before, during = _milliseconds(flood.waited_before, 0), _milliseconds(flood.waited_during, 0)
    return f"; the members' threads waited for a processor {before} of each second before, {during} meanwhile"


def _milliseconds(seconds: float, digits: int = 1) -> str:
    return f"{1e3 * seconds:.{digits}f} ms"


def print_results(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print the figures of storms."""
    console.print(table([outcome.figures for outcome in outcomes]))
    for outcome in outcomes:
        for reason in outcome.given_up[:3]:
            console.print(
                printable(f"{outcome.figures.name} gave up: {reason}"), markup=False, highlight=False
            )
        for defect in outcome.defects:
            console.print(
                printable(f"{outcome.figures.name} went on after {defect}"), markup=False, highlight=False
            )
        for flood in filter(None, (outcome.flood, outcome.apart)):
            console.print(flood_text(flood), markup=False, highlight=False)


def draw(outcomes: Sequence[Outcome], png: Path | None, html: Path | None) -> None:
    """Write the requested pictures."""
    storms = [outcome.figures for outcome in outcomes]
    series = [
        Arrivals(name=one.name, back=one.arrivals, attempts=one.dials, setup_rate=one.setup_rate or 1.0)
        for one in storms
    ]
    title = f"{max(one.clients for one in storms):,} connections, the primary killed"
    if png is not None:
        pictures.write_png(series, png, title=title)
    if html is not None:
        pictures.write_html(series, rows(storms), html, title=title)


def facts(one: Figures, flood: Flood | None = None, apart: Flood | None = None) -> dict[str, Any]:
    """Return everything for JSON, with null in place of infinite figures."""
    found = {name: _plain(value) for name, value in dataclasses.asdict(one).items()}
    for name, each in (("established", flood), ("established_apart", apart)):
        if each is not None:
            found[name] = {**dataclasses.asdict(each), "ratio": each.ratio}
    return found


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
