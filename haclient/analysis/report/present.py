"""Describe the end of the period: the age of the data, and the connections that are still down.

Rules
-----
* "Now" is the end of the period; a page made long after it gives its age.
* A percentile may fall between the longest ended outage and the shortest unfinished one.  It is then the
  downtime of no connection, and the report says "over" the longest ended outage.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from haclient.analysis.report import text
from haclient.analysis.report.text import Row, Rows, counted, number
from haclient.telemetry.rfc3339 import moment

STALE = 900.0
"""Seconds from the last line to the analysis after which the report gives the age of the data."""

QUIET = 300.0
"""Seconds without an attempt after which a member's state is unknown."""

_RANKS = ("p50", "p90", "p99", "max")


def age(headline: Row, generated_at: datetime) -> float | None:
    """Return the seconds from the end of the period to the analysis; ``None`` for at most ``STALE``."""
    if not headline.get("last_at"):
        return None
    seconds = (generated_at - moment(headline["last_at"])).total_seconds()
    return seconds if seconds > STALE else None


def durations(tables: Mapping[str, Rows]) -> list[float]:
    """Return downtimes of connections that are down, two for each row of ``away``, shortest first.

    A row groups connections with the same result.  The downtimes run from its first and its last loss to the
    end of the period, in seconds.
    """
    until = text.first(tables.get("headline", ())).get("last_at")
    if not until:
        return []
    rows = tables.get("away", ())
    since = [row[name] for row in rows for name in ("since", "latest") if row.get(name)]
    return sorted((moment(until) - moment(each)).total_seconds() for each in since)


def certain(tables: Mapping[str, Rows]) -> dict[str, float]:
    """Return the percentiles to correct (see the rules), each with its value in the report.

    A key is a name such as ``p99``.  The value is the longest ended outage, in seconds.
    """
    headline = text.first(tables.get("headline", ()))
    lasting = durations(tables)
    ended = max((row["downtime"] or 0.0 for row in tables.get("ecdf", ())), default=None)
    if not lasting or ended is None:
        return {}
    bounds = {rank: headline.get(rank) for rank in _RANKS if headline.get(f"{rank}_is_bound")}
    return {rank: ended for rank, value in bounds.items() if value is not None and ended < value < lasting[0]}


def curve(tables: Mapping[str, Rows]) -> Rows:
    """Return the curve of downtimes, extended to the longest time that a connection is down."""
    points = [point for point in tables.get("ecdf", ()) if point["downtime"] is not None]
    longest = max(durations(tables), default=0.0)
    if points and longest > points[-1]["downtime"]:
        return [*points, {"downtime": longest, "share": points[-1]["share"]}]
    return points


def silent_members(tables: Mapping[str, Rows]) -> list[str]:
    """Return sentences about endpoints without recent attempts, such as a dead primary."""
    until = text.first(tables.get("headline", ())).get("last_at")
    if not until or not tables.get("promotions"):
        return []
    quiet = [
        row
        for row in tables.get("members", ())
        if row.get("last_seen") and (moment(until) - moment(row["last_seen"])).total_seconds() > QUIET
    ]
    return [
        f"Nobody tried {text.endpoint(row)} after {text.minute(row['last_seen'])} UTC: "
        "whether it is up again is not in these lines."
        for row in quiet[:2]
    ]


def versions(row: Row, hit: Rows) -> str:
    """Return a sentence with a deploy's progress, after a space: the connections of each version.

    Connections count if they were hit, or still there at the end.  The text is empty if ``hit`` lacks one of
    the versions.

    :param row: the change of version.
    :param hit: the rows of ``data.hit``.
    """
    found = {each["value"]: each for each in hit if each["attribute"] == row.get("attribute")}
    names = [name for name in (row.get("before"), row.get("value")) if name in found]
    if len(names) < 2:  # noqa: PLR2004 - the version before, and this one
        return ""
    counts = [(name, found[name]["connections"] - (found[name].get("ended") or 0)) for name in names]
    (old, left), (new, more) = counts
    ran = counted(left, "connection")
    return (
        f" {ran} of {text.label(old)} and {number(more)} of {text.label(new)} were hit or there at the end."
    )
