"""Select the rows about lag (``sites.site_lag``) that the report shows for each stream.

A stream is a cluster's own events, or a link of a cluster that follows.  Percentiles of several minutes
cannot be added up, so a column of several minutes has the worst minute of each value.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.tables.site_lag import CASES

STREAMS = 12
"""Most streams to show."""

COLUMNS = 120
"""Most columns of a stream's drawing: more than two pixels each on a phone."""

_WINDOW = 60  # s; window of the table
_LEVELS = ("p50", "p99", "max")
_LEVEL_COLUMNS = tuple(f"lag_{unit}_{level}" for unit in ("seconds", "events") for level in _LEVELS)
_STREAM = ("cluster", "link")


def streams(site_lag: DataFrame) -> DataFrame:
    """Return one row per stream, the greatest lag first.

    Columns: ``cluster``, ``link`` (null: its own events), ``minutes``, ``sequence`` (the last one),
    ``duplicates``, ``gaps``, ``anomalies`` (events by case), ``streams`` (their number).
    ``lag_seconds`` and ``lag_events`` have the worst minute's ``_p50``, ``_p99`` and ``_max``.
    ``columns`` has ``second`` (since the epoch), ``width`` (s) and the same values.
    """
    columns = (
        _with_column(site_lag)
        .groupBy(*_STREAM, "second", "width")
        .agg(
            sf.count("*").alias("minutes"),
            *(sf.max(name).alias(name) for name in ("sequence", "duplicates", "gaps", *_LEVEL_COLUMNS)),
            *(sf.sum(sf.col("anomalies")[case]).alias(_counter(case)) for case in CASES),
        )
    )
    drawn = sf.struct("second", "width", *_LEVEL_COLUMNS)
    rows = columns.groupBy(*_STREAM).agg(
        sf.sum("minutes").alias("minutes"),
        *(sf.max(name).alias(name) for name in ("sequence", "duplicates", "gaps", *_LEVEL_COLUMNS)),
        _anomalies().alias("anomalies"),
        sf.sort_array(sf.collect_list(drawn)).alias("columns"),
    )
    order = (sf.desc("lag_seconds_max"), sf.asc("cluster"), sf.asc_nulls_first("link"))
    return rows.withColumn("streams", sf.count("*").over(Window.partitionBy())).orderBy(*order).limit(STREAMS)


def _with_column(site_lag: DataFrame) -> DataFrame:
    """Assign each minute to its column of the drawing."""
    stream = Window.partitionBy(*_STREAM)
    at = sf.unix_seconds("start")
    first, last = sf.min(at).over(stream), sf.max(at).over(stream)
    width = sf.ceil(((last - first) / _WINDOW + 1) / COLUMNS) * _WINDOW
    framed = site_lag.withColumns({"first": first, "width": width})
    return framed.withColumn("second", at - (at - sf.col("first")) % sf.col("width"))


def _counter(case: str) -> str:
    """Name a counter of anomalies; plain ``duplicates`` and ``gaps`` are counters of the link."""
    return f"anomaly_{case}"


def _anomalies() -> Column:
    pairs = ((sf.lit(case), sf.sum(_counter(case))) for case in CASES)
    return sf.map_filter(sf.create_map(*(part for pair in pairs for part in pair)), lambda _, n: n > 0)
