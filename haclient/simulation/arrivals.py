"""Prepare arrivals over time for ``plot`` and ``page``: series, time axis, caption."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from haclient.simulation.result import Result, peak

BINS = 120
"""Bins of the time axis."""

_LONGEST = 2.5
"""Latest end of the time axis, in multiples of N/mu: the caption names anything later."""

IDEAL = "\N{MULTIPLICATION SIGN} N/\N{GREEK SMALL LETTER MU}"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of one storm, in seconds after the primary is back.

    :param name: name of the clients' policy.
    :param back: times at which clients became usable.
    :param attempts: times at which attempts reached the primary; earlier ones too, if known.
    :param setup_rate: setups a second that the primary manages.
    """

    name: str
    back: Sequence[float]
    attempts: Sequence[float]
    setup_rate: float

    @property
    def ideal(self) -> float:
        """N/mu, in seconds, for the clients that came back."""
        return len(self.back) / self.setup_rate

    @property
    def last(self) -> float:
        """Time at which the last client was back."""
        return max(self.back, default=0.0)


def arrivals_of(result: Result) -> Arrivals:
    """Return the arrivals of a simulated storm."""
    return Arrivals(result.name, result.back, result.attempts, result.scenario.setup_rate)


def time_span(series: Sequence[Arrivals]) -> float:
    """Return the end of the time axis, common to all panels."""
    ideal = max((one.ideal for one in series), default=1.0)
    last = max((one.last for one in series), default=1.0)
    return max(1e-3, min(max(last, ideal) * 1.05, ideal * _LONGEST))


def per_second(times: Sequence[float], span: float) -> array[float]:
    """Return rates per second, in equal bins from 0 to ``span``."""
    width = span / BINS
    counts = array("d", bytes(8 * BINS))
    for time in times:
        place = int(time / width)
        if 0 <= place < BINS and time >= 0:
            counts[place] += 1 / width
    return counts


def caption(one: Arrivals, span: float) -> str:
    """Return the caption of a panel."""
    ratio = one.last / one.ideal if one.ideal else 0.0
    late = " (beyond the frame)" if one.last > span else ""
    attempts = len(one.attempts) / max(1, len(one.back))
    last = f"last after {one.last:,.4g} s = {ratio:.2f} {IDEAL}{late}"
    return f"{last}, {attempts:.2f} attempts each"


def cut_off(one: Arrivals, span: float) -> str:
    """Return a note about attempts above the frame; empty if there are none."""
    if max(per_second(one.attempts, span)) <= 3 * one.setup_rate:
        return ""
    return f"peak {peak(sorted(time for time in one.attempts if time >= 0)):,} in a second"
