"""Thresholds on figures of an analysis: ``p99_away>5`` fails a job whose 99th percentile is above 5 s.

Rules
-----
* Pure: no Spark here.  ``figures.py`` computes the values.
* The condition says what is bad; it is broken when it is true.
* A figure that does not exist in the data (no outage, so no percentile of it) breaks nothing.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

FIGURES = {
    "outages": "connections lost; a first connect is none",
    "back": "outages that ended with a usable connection",
    "p50_away": "median of the time away, in seconds, over the outages that are back",
    "p90_away": "90th percentile of it",
    "p99_away": "99th percentile of it",
    "max_away": "longest of it",
    "never_back": "outages that never came back, nor is anything heard of the connection",
    "gave_up": "outages, or first connects, that ended because the client gave up",
    "open": "outages that are not over, of connections that are still heard of",
    "attempts_per_outage": "attempts over outages",
    "storms": "outages of the cluster that hit several connections at once",
    "max_amplification": "most attempts per connection in a storm",
    "max_ratio_to_ideal": "longest storm, in multiples of what the primary's set-up rate allows",
    "alarms": "alarms of any kind: split claims, generations that went backwards, lost telemetry",
    "lost_lines": "telemetry lines that were dropped or are missing from a connection's sequence",
    "bad_lines": "lines that could not be read; they are in the quarantine table",
    "events": "lines that were read, duplicates removed",
}
"""The figures that a threshold can be put on, with their meaning."""

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_CONDITION = re.compile(r"\s*(?P<figure>\w+)\s*(?P<sign>>=|<=|==|!=|>|<)\s*(?P<limit>\S+)\s*")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on one figure that must not hold.

    :param figure: one of ``FIGURES``.
    :param sign: how it is compared with ``limit``.
    :param limit: in the figure's unit.
    """

    figure: str
    sign: str
    limit: float

    def __str__(self) -> str:
        """As it was given."""
        return f"{self.figure}{self.sign}{self.limit:g}"

    def broken_by(self, figures: Mapping[str, float | None]) -> bool:
        """Whether the condition holds; never for a figure that is missing."""
        value = figures.get(self.figure)
        return value is not None and _OPERATORS[self.sign](value, self.limit)


def parse(text: str) -> Threshold:
    """A threshold from ``figure>limit``; the signs are those of Python.

    :raises ValueError: with what is wrong and what is known.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no condition like p99_away>5")
    figure, sign, limit = found["figure"], found["sign"], found["limit"]
    if figure not in FIGURES:
        raise ValueError(f"{figure!r} is no figure; known: {', '.join(FIGURES)}")
    try:
        number = float(limit)
    except ValueError:
        number = float("nan")
    if math.isnan(number):
        raise ValueError(f"{limit!r} in {text!r} is no number")
    return Threshold(figure, sign, number)


def broken(thresholds: Iterable[Threshold], figures: Mapping[str, float | None]) -> list[str]:
    """What is broken, in words; empty for nothing."""
    return [
        f"{threshold.figure} is {figures[threshold.figure]:g}, and must not be "
        f"{threshold.sign} {threshold.limit:g}"
        for threshold in thresholds
        if threshold.broken_by(figures)
    ]
