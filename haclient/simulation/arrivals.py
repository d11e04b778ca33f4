"""Arrivals over time as ``plot`` and ``page`` show them: series, time axis, caption.  It draws nothing."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from haclient.simulation.result import Result, peak

BINS = 120
"""Bins of the time axis."""

_LONGEST = 2.5
"""The time axis ends at this multiple of N/mu at the latest: the caption names what takes longer."""

IDEAL = "\N{MULTIPLICATION SIGN} N/\N{GREEK SMALL LETTER MU}"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one storm looked like, in seconds after the primary was back.

    :param name: of the clients' policy.
    :param back: when clients became usable.
    :param attempts: when attempts reached the primary; also before it could answer, if they are known.
    :param setup_rate: setups a second that the primary manages.
    """

    name: str
    back: Sequence[float]
    attempts: Sequence[float]
    setup_rate: float

    @property
    def ideal(self) -> float:
        """N/mu, in seconds, of the clients that came back."""
        return len(self.back) / self.setup_rate

    @property
    def last(self) -> float:
        """When the last client was back."""
        return max(self.back, default=0.0)


def arrivals_of(result: Result) -> Arrivals:
    """The arrivals of a simulated storm."""
    return Arrivals(result.name, result.back, result.attempts, result.scenario.setup_rate)


def time_span(series: Sequence[Arrivals]) -> float:
    """Where the time axis of all panels ends."""
    ideal = max((one.ideal for one in series), default=1.0)
    last = max((one.last for one in series), default=1.0)
    return max(1e-3, min(max(last, ideal) * 1.05, ideal * _LONGEST))


def per_second(times: Sequence[float], span: float) -> array[float]:
    """How many a second, in equal bins from 0 to ``span``."""
    width = span / BINS
    counts = array("d", bytes(8 * BINS))
    for time in times:
        place = int(time / width)
        if 0 <= place < BINS and time >= 0:
            counts[place] += 1 / width
    return counts


def caption(one: Arrivals, span: float) -> str:
    """What the panel's caption says."""
    ratio = one.last / one.ideal if one.ideal else 0.0
    late = " (beyond the frame)" if one.last > span else ""
    attempts = len(one.attempts) / max(1, len(one.back))
    last = f"last after {one.last:,.4g} s = {ratio:.2f} {IDEAL}{late}"
    return f"{last}, {attempts:.2f} attempts each"


def cut_off(one: Arrivals, span: float) -> str:
    """The text about attempts above the frame; empty when there are none."""
    if max(per_second(one.attempts, span)) <= 3 * one.setup_rate:
        return ""
    return f"peak {peak(sorted(time for time in one.attempts if time >= 0)):,} in a second"
