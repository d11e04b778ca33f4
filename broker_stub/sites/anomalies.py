"""Anomalies in site events are counted, and reported without flooding the log.

Rules
-----
* The first of a case is reported at once.  Those that follow are reported together, once a
  second, with their count.
* After a second without any, the next one is the first again.
* Everything is reported before the exchange, or this member, ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Events of one case.

    :param link: name of the exchange that they came to.
    :param case: as the counts name it.
    :param count: how many there were since the last time.
    :param sequence: of the last one; ``None`` when it has none.
    :param description: what was wrong with the last one.
    """

    link: str
    case: str
    count: int
    sequence: int | None
    description: str


ReportAnomaly = Callable[[Anomaly], None]


class Anomalies:
    """Of one exchange.

    :param report: called at once, or by ``tick``.
    """

    def __init__(self, link: str, report: ReportAnomaly) -> None:
        self._link = link
        self._report = report
        self._unreported: dict[str, Anomaly | None] = {}
        """By case; ``None`` when all of them were reported just now."""

    def record(self, case: str, description: str, sequence: int | None = None) -> None:
        """One more."""
        if case not in self._unreported:
            self._unreported[case] = None
            self._report(Anomaly(self._link, case, 1, sequence, description))
            return
        before = self._unreported[case]
        count = 1 if before is None else before.count + 1
        self._unreported[case] = Anomaly(self._link, case, count, sequence, description)

    def tick(self) -> None:
        """A second has passed: report what arrived in it."""
        unreported, self._unreported = self._unreported, {}
        for anomaly in unreported.values():
            if anomaly is not None:
                self._unreported[anomaly.case] = None
                self._report(anomaly)
