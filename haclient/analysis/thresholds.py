"""Thresholds on the metrics of a summary: ``p99_downtime>5`` fails a job whose 99th percentile is above 5 s.

Rules
-----
* Pure: no Spark here.  ``tables/summary.py`` computes the values.
* The condition describes the bad case: a threshold is broken if its condition is true.
* A missing metric breaks its threshold, because success cannot be shown.  It does not count as missing if
  there is nothing to measure, such as a percentile of no outages.
* A lower bound is compared as it is: the threshold is broken if the bound breaks it.
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
    "back_untimed": "outages among `back` of which the downtime is unknown, because a line is missing",
    "gave_up": "outages in which the client gave up",
    "closed": "outages in which the application closed the connection",
    "replaced": "outages of clients that restarted in another process",
    "open": "unfinished outages of connections that still write lines",
    "silent": "unfinished outages of connections that write no more lines",
    "never_connected": "first connects that are not back after 60 s; they are no outages",
    "p50_downtime": "median downtime, in seconds",
    "p90_downtime": "90th percentile of the downtime",
    "p99_downtime": "99th percentile of the downtime",
    "max_downtime": "longest downtime",
    "p50_is_bound": "1 if the median falls on an unfinished outage, else 0",
    "p90_is_bound": "1 if the 90th percentile falls on an unfinished outage, else 0",
    "p99_is_bound": "1 if the 99th percentile falls on an unfinished outage, else 0",
    "max_is_bound": "1 if the longest downtime is of an unfinished outage, else 0",
    "attempts_per_outage": "attempts, divided by outages",
    "storms": "losses of at least five connections, and at least a tenth of the live ones, within 5 s",
    "saturated_storms": "storms in which the primary's accept rate was the limit",
    "max_amplification": "most attempts per connection in a storm",
    "max_ratio_to_ideal": "highest ratio of a saturated storm to the best possible time at its accept rate",
    "alarms": "critical alarms and warnings, without notices",
    "critical_alarms": "critical alarms",
    "lost_lines": "telemetry lines that were dropped or are missing from a sequence",
    "bad_lines": "lines in quarantine: unreadable, or with an implausible time",
    "events": "lines that were read, without duplicates",
}
"""The metrics that can have a threshold, with their meaning."""

BOUNDS: Mapping[str, str] = {f"{rank}_downtime": f"{rank}_is_bound" for rank in ("p50", "p90", "p99", "max")}
"""Metrics that may be lower bounds, and the metrics that are 1 when they are."""

_OF: Mapping[str, str] = {
    **dict.fromkeys((*BOUNDS, "attempts_per_outage"), "outages"),
    "max_amplification": "storms",
    "max_ratio_to_ideal": "saturated_storms",
}
"""The counter behind a metric: if it is 0, the metric is not missing."""

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
    :param sign: comparison operator between metric and ``limit``.
    :param limit: in the metric's unit.
    """

    metric: str
    sign: str
    limit: float

    def __str__(self) -> str:
        """Return the condition as it was given."""
        return f"{self.metric}{self.sign}{self.limit:g}"

    def broken_by(self, summary: Mapping[str, float | None]) -> bool:
        """Report whether the condition holds, or cannot be evaluated."""
        value = summary.get(self.metric)
        if value is None:
            return summary.get(_OF.get(self.metric, "")) != 0
        return _OPERATORS[self.sign](value, self.limit)

    def complaint(self, summary: Mapping[str, float | None]) -> str:
        """Return a sentence that describes a broken threshold."""
        value = summary.get(self.metric)
        found = "missing" if value is None else f"{'more than ' * is_bound(self.metric, summary)}{value:g}"
        return f"{self.metric} is {found}, and must not be {self.sign} {self.limit:g}"


def is_bound(metric: str, summary: Mapping[str, float | None]) -> bool:
    """Report whether the metric is only a lower bound."""
    return metric in BOUNDS and bool(summary.get(BOUNDS[metric]))


def parse(text: str) -> Threshold:
    """Parse ``metric>limit``; the operators are Python's.

    :raises ValueError: with the problem and the known metrics.
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
    """Return a sentence for each broken threshold."""
    return [threshold.complaint(summary) for threshold in thresholds if threshold.broken_by(summary)]
