"""Draw arrivals over time, one panel for each series, as PNG or as one HTML file that needs no network.

A panel shows setups a second (filled) and attempts a second (line) at the primary, the primary's setup rate,
and N/mu: the earliest time at which the last client could be back.  All panels share one time axis.  Attempts
above the frame are cut off; the text names their peak.

Only this module and ``page`` need the extra ``plots``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from haclient.simulation.arrivals import Arrivals
from haclient.version import install_extra

_MODULES = ("markupsafe", "altair", "vl_convert")


class NoPlotsError(Exception):
    """A module of the extra ``plots`` is not installed."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(f"a plot needs {module}: {install_extra('plots')}")

    def __reduce__(self) -> tuple[type[NoPlotsError], tuple[str]]:
        return type(self), (self.module,)


def write_png(series: Sequence[Arrivals], path: Path, *, title: str) -> None:
    """Draw the panels into a PNG file.

    :raises NoPlotsError: if the extra is not installed.
    """
    need_for(path, None)
    from haclient.simulation.page import png  # noqa: PLC0415  # the extra may be missing

    path.write_bytes(png(series, title))


def write_html(
    series: Sequence[Arrivals], table: Sequence[Mapping[str, object]], path: Path, *, title: str
) -> None:
    """Draw the panels and the table into one HTML file.

    :param table: rows with the same keys; the first key names the row.
    :raises NoPlotsError: if the extra is not installed.
    """
    need_for(None, path)
    from haclient.simulation.page import page  # noqa: PLC0415  # the extra may be missing

    path.write_text(page(series, table, title), encoding="utf-8")


def need(module: str) -> None:
    """Check that a module of the extra is installed.

    :raises NoPlotsError: if it is not.
    """
    if find_spec(module) is None:
        raise NoPlotsError(module)


def need_for(png: Path | None, html: Path | None) -> None:
    """Check, before a simulation, that the modules for these pictures are installed.

    :raises NoPlotsError: if one is missing.
    """
    for module in _MODULES if png or html else ():
        need(module)
