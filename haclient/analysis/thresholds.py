"""Thresholds on the metrics of a summary: ``p99_downtime>5`` fails a job whose 99th percentile is above 5 s.

Rules
-----
* Pure: no Spark here.  ``tables/summary.py`` computes the values.
* The condition says what is bad; it is broken when it is true.
* A metric that does not exist in the data (no outage, so no percentile of it) breaks nothing.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

METRICS = {
    "outages": "connections lost; a first connect is none",
    "back": "outages that ended with a usable connection",
    "back_untimed": "those of them whose time is not known, for the line that has it is missing",
    "gave_up": "outages that ended because the client gave up",
    "closed": "outages that ended because the application closed the connection",
    "replaced": "outages of clients that began a newer life since",
    "open": "outages that have not ended, of connections that still write lines",
    "silent": "outages that have not ended, of connections that write no more lines",
    "never_connected": "first connects that are not back after 60 s; they are no outages",
    "p50_downtime": "median of the downtime, in seconds, over the outages that are back",
    "p90_downtime": "90th percentile of it",
    "p99_downtime": "99th percentile of it",
    "max_downtime": "longest of it",
    "attempts_per_outage": "attempts over outages",
    "storms": "outages of the cluster that hit several connections at once",
    "max_amplification": "most attempts per connection in a storm",
    "max_ratio_to_ideal": "longest storm, in multiples of the best possible time, given the accept rate",
    "alarms": "alarms of any kind: split claims, generations that went backwards, lost telemetry",
    "lost_lines": "telemetry lines that were dropped or are missing from a connection's sequence",
    "bad_lines": "lines that could not be read, or whose time is not plausible: they are in quarantine",
    "events": "lines that were read, duplicates removed",
}
"""The metrics that a threshold can be put on, with their meaning."""

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_CONDITION = re.compile(r"\s*(?P<metric>\w+)\s*(?P<sign>>=|<=|==|!=|>|<)\s*(?P<limit>\S+)\s*")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on one metric that must not hold.

    :param metric: one of ``METRICS``.
    :param sign: how it is compared with ``limit``.
    :param limit: in the metric's unit.
    """

    metric: str
    sign: str
    limit: float

    def __str__(self) -> str:
        """As it was given."""
        return f"{self.metric}{self.sign}{self.limit:g}"

    def broken_by(self, summary: Mapping[str, float | None]) -> bool:
        """Whether the condition holds; never for a metric that is missing."""
        value = summary.get(self.metric)
        return value is not None and _OPERATORS[self.sign](value, self.limit)


def parse(text: str) -> Threshold:
    """A threshold from ``metric>limit``; the signs are those of Python.

    :raises ValueError: with what is wrong and what is known.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no condition like p99_downtime>5")
    metric, sign, limit = found["metric"], found["sign"], found["limit"]
    if metric not in METRICS:
        raise ValueError(f"{metric!r} is no metric; known: {', '.join(METRICS)}")
    try:
        number = float(limit)
    except ValueError:
        number = float("nan")
    if math.isnan(number):
        raise ValueError(f"{limit!r} in {text!r} is no number")
    return Threshold(metric, sign, number)


def broken(thresholds: Iterable[Threshold], summary: Mapping[str, float | None]) -> list[str]:
    """A sentence for each broken threshold."""
    return [
        f"{threshold.metric} is {summary[threshold.metric]:g}, and must not be "
        f"{threshold.sign} {threshold.limit:g}"
        for threshold in thresholds
        if threshold.broken_by(summary)
    ]
