"""The table ``site_lag``: the lag of one site behind another, over time (``docs/sites.md``).

Serving members write one line a second (``haclient.member.site``).  A line without a link's name is from
the source, and reports how much the other site lacks; a line with one is from the following site.

Anomalies in the events of another site have separate lines (``haclient.member.anomaly``), each
with a number of events.

Percentiles are exact, over the lines of a window.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.telemetry.schema import Kind

WINDOW = "1 minute"
PERCENTS = (50, 95, 99)
CASES = ("duplicates", "gaps", "created", "parked", "taken", "copies", "gone", "malformed")
"""The anomalies; any other name is from a later version."""


def has_lines(rolled_up: DataFrame) -> bool:
    """Report whether any line is about sites.

    :param rolled_up: from ``rollup.roll_up``.
    """
    return not rolled_up.where(sf.col("type") == Kind.MEMBER_SITE.value).isEmpty()


def site_lag(events: DataFrame, *, window: str = WINDOW) -> DataFrame:
    """Compute the lag per window, cluster and link (null: the source's own events), ordered by time.

    Columns: ``start``, ``cluster``, ``link``, ``lines``, ``sequence`` (the last one).  ``duplicates`` and
    ``gaps`` are the link's since its member began to serve, ``anomalies`` the window's events by case.
    ``lag_events`` and ``lag_seconds`` have the percentiles ``_p50``, ``_p95``, ``_p99`` and ``_max``.
    """
    lines = events.where(sf.col("type").isin(Kind.MEMBER_SITE.value, Kind.MEMBER_ANOMALY.value))
    has_lag = sf.col("type") == Kind.MEMBER_SITE.value
    rows = lines.groupBy(
        sf.window("t", window).alias("window"), "cluster", sf.col("site_link").alias("link")
    ).agg(
        sf.count_if(has_lag).alias("lines"),
        sf.max(sf.when(has_lag, sf.col("site_sequence"))).alias("sequence"),
        sf.max("site_duplicates").alias("duplicates"),
        sf.max("site_gaps").alias("gaps"),
        _anomalies().alias("anomalies"),
        *_spread("lag_events"),
        *_spread("lag_seconds"),
    )
    rows = rows.withColumn("start", sf.col("window.start")).drop("window")
    return rows.select("start", *(name for name in rows.columns if name != "start")).orderBy(
        "start", "cluster", "link"
    )


def _anomalies() -> Column:
    """Count the events of each case that occurred."""
    counts = (
        (sf.lit(case), sf.sum(sf.when(sf.col("site_case") == case, sf.col("site_count")))) for case in CASES
    )
    return sf.map_filter(sf.create_map(*(part for pair in counts for part in pair)), lambda _, n: n > 0)


def _spread(name: str) -> list[Column]:
    column = sf.col(f"site_{name}")
    shares = [sf.percentile(column, percent / 100).alias(f"{name}_p{percent}") for percent in PERCENTS]
    return [*shares, sf.max(column).alias(f"{name}_max")]
