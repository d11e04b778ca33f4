"""Counts anomalies in site events, and reports them without flooding the log.

Rules
-----
* The first anomaly of a case is reported at once.  The following ones are reported together once a second,
  with their count.
* After a second without an anomaly, the next one counts as the first again.
* Everything is reported before the exchange, or this member, ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One or more anomalies of the same case.

    :param link: name of the exchange.
    :param case: as the counts name it.
    :param count: how many occurred since the last report.
    :param sequence: of the last event; ``None`` if it has none.
    :param description: of the last anomaly.
    """

    link: str
    case: str
    count: int
    sequence: int | None
    description: str


ReportAnomaly = Callable[[Anomaly], None]


class Anomalies:
    """The anomalies of one exchange.

    :param report: called at once, or by ``tick``.
    """

    def __init__(self, link: str, report: ReportAnomaly) -> None:
        self._link = link
        self._report = report
        self._unreported: dict[str, Anomaly | None] = {}
        """By case; ``None`` if all anomalies of the case were reported just now."""

    def record(self, case: str, description: str, sequence: int | None = None) -> None:
        """Record an anomaly."""
        if case not in self._unreported:
            self._unreported[case] = None
            self._report(Anomaly(self._link, case, 1, sequence, description))
            return
        before = self._unreported[case]
        count = 1 if before is None else before.count + 1
        self._unreported[case] = Anomaly(self._link, case, count, sequence, description)

    def tick(self) -> None:
        """Report the anomalies of the last second."""
        unreported, self._unreported = self._unreported, {}
        for anomaly in unreported.values():
            if anomaly is not None:
                self._unreported[anomaly.case] = None
                self._report(anomaly)
