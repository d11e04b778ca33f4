"""Select the few rows of the tables that the report shows.

Rules
-----
* The report's size does not depend on the fleet's: Spark cuts every table to a number of rows here, and
  ``totals`` has the number before.
* The most important rows are kept: the biggest storms, the busiest members and the most urgent alarms.
* Values are exact.  The curve of downtimes gives the share at some of the measured times, without smoothing.
* Timestamps are converted to text in UTC, so the time zone of the driver does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.io.session import single
from haclient.analysis.report import lag, period, storm_rows
from haclient.analysis.tables.alarms import urgency
from haclient.analysis.tables.rollup import materialize
from haclient.analysis.thresholds import BOUNDS
from haclient.telemetry.rfc3339 import moment
from haclient.telemetry.schema import Kind

Rows = Sequence[Mapping[str, Any]]

ROWS = {
    "storms": 20,
    "jitter": 20,
    "members": 40,
    "not_recovered": 50,
    "alarms": 50,
    "advice": 20,
}
"""Most rows of each table."""

_HEADLINE = {
    **{
        name: name
        for name in ("outages", "back", "gave_up", "closed", "replaced", "open", "silent", "never_connected")
    },
    **{name: f"{name}_downtime" for name in ("p50", "p90", "p99", "max")},
    **{name: name for name in BOUNDS.values()},
}
"""Names in the headline, with the metrics of the summary."""

_EACH_ITS_OWN = ("service.instance.id", "k8s.pod.name")
"""Attributes with a value for each process, which group nothing."""

_AT_ONCE = 2  # concurrent queries
_ECDF_PER_DECADE = 60
_SHORTEST = 0.001  # s; shorter downtimes are drawn there
_BINS = 20


def report_tables(
    tables: Mapping[str, DataFrame], events: DataFrame, summary: Mapping[str, float | None], hit_by: Rows
) -> dict[str, Rows]:
    """Collect all rows for ``render``.

    :param tables: from ``tables.build`` by name, preferably read back from storage.
    :param events: the lines of these tables.
    :param summary: the summary of the tables.
    :param hit_by: the rows of the table ``hit_by``.
    """
    episodes = tables["episodes"]
    groups = collect(period.groups(episodes))
    rows: dict[str, Rows] = {name: [row for row in groups if row["grouped"] == name] for name in period.BY}
    everyone: Mapping[str, Any] = next((row for row in groups if row["grouped"] == "everyone"), {})
    rows |= {"summary": [summary], "headline": [headline(everyone, summary)], "hit": hit(rows, hit_by)}
    seconds = period.width(*(_unix_time(everyone.get(name)) for name in ("first_at", "last_at")))
    primaries = materialize(period.primaries(events))
    largest = materialize(storm_rows.biggest(tables["storms"]))
    of_largest = tables["storm_timeline"].join(sf.broadcast(largest), "storm_id", "left_semi")
    drawn = materialize(storm_rows.timeline(materialize(of_largest), largest))
    frames = {
        "timeline": period.columns(episodes, tables["storms"], seconds),
        "promotions": period.promotions(episodes, primaries),
        "deploys": period.deploys(episodes, tables["resources"]),
        "away": period.unrecovered(episodes),
        "lost_reasons": period.lost_reasons(episodes),
        "ecdf": ecdf(episodes),
        "storm_timeline": drawn,
        "storm_marks": storm_rows.marks(primaries, largest, drawn),
        "storm_reasons": storm_rows.reasons(tables["storm_reasons"], largest),
        "jitter_histogram": jitter_histogram(events),
    }
    frames |= {name: first_rows(tables[name], name) for name in ROWS}
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # plans one query while another runs
        rows |= zip(frames, pool.map(collect, frames.values()), strict=True)
    rows["timeline"] = [{**row, "width": seconds} for row in rows["timeline"]]
    counted = (*ROWS, "quarantine", "site_lag")
    counts = collect(totals({name: tables[name] for name in counted if name in tables}))
    if any(row["table"] == "site_lag" and row["rows"] for row in counts):
        rows["sites"] = streams = collect(lag.streams(tables["site_lag"]))
        counts = [*counts, {"table": "sites", "rows": streams[0]["streams"]}]
    rows["totals"] = counts
    return rows


def hit(groups: Mapping[str, Rows], hit_by: Rows) -> Rows:
    """Count hit and down connections by cluster and by each attribute of ``hit_by``.

    Columns: ``attribute``, ``value`` (null: ``values`` other values together, or connections without any),
    ``connections``, ``hit``, ``away`` (down now) and ``ended``.  A connection that never connected is hit and
    away; one that ended is neither.
    """
    clusters = [
        {
            "attribute": "cluster",
            "value": row["cluster"],
            "values": 1 if row["cluster"] is not None else 0,
            "connections": row["connections"],
            "hit": row["clients_hit"],
            "away": row["away"],
            "ended": row["ended"],
        }
        for row in groups["cluster"]
    ]
    others = [
        {
            **{name: row[name] for name in ("attribute", "value", "values", "connections")},
            "hit": row["connections_hit"] + row["never_connected"],
            "away": sum(row[name] for name in ("open", "silent", "gave_up", "never_connected")),
            "ended": row["connections_ended"],
        }
        for row in hit_by
        if row["attribute"] not in _EACH_ITS_OWN
    ]
    return [*clusters, *others]


def totals(tables: Mapping[str, DataFrame]) -> DataFrame:
    """Count the rows of each table, in one query: many small ones take longer to plan than to run."""
    counts = (
        frame.agg(sf.count("*").alias("rows")).select(sf.lit(name).alias("table"), "rows")
        for name, frame in tables.items()
    )
    return single(reduce(DataFrame.unionAll, counts))


def collect(frame: DataFrame) -> Rows:
    """Return the rows as dicts, timestamps as text."""
    columns = [
        sf.date_format(name, "yyyy-MM-dd HH:mm:ss.SSS").alias(name) if kind == "timestamp" else sf.col(name)
        for name, kind in frame.dtypes
    ]
    return [row.asDict(recursive=True) for row in frame.select(*columns).collect()]


def _unix_time(text: str | None) -> float:
    """Convert a collected time to seconds since the epoch."""
    return moment(text).timestamp() if text else 0.0


def first_rows(frame: DataFrame, table: str) -> DataFrame:
    """Return the rows of ``table`` to show, the most important first."""
    order: Mapping[str, tuple[Column, ...]] = {
        "storms": (sf.desc("clients_hit"), sf.asc("started_at")),
        "jitter": (sf.asc("strategy"), sf.asc("round"), sf.asc("backoff_base")),
        "members": (sf.desc("attempts"), sf.asc("server_address"), sf.asc("server_port")),
        "not_recovered": (
            (sf.col("episode_result") == "open").asc(),  # the others will not recover without help
            sf.desc("last_seen"),
            sf.asc("client_id"),
            sf.asc("connection"),
        ),
        "alarms": (
            urgency(),
            sf.desc("at"),
            sf.asc("kind"),
            sf.asc("detail"),
        ),
        "advice": (sf.col("proposed").isNull().asc(), sf.asc("cluster"), sf.asc("parameter")),
    }
    return frame.orderBy(*order[table]).limit(ROWS[table])


def former_ecdf(spark: SparkSession, folder: Path | None) -> Rows:
    """Return the curve of a former run; empty if its folder has no table of episodes."""
    table = None if folder is None else folder / "tables" / "episodes"
    if table is None or not table.is_dir():
        return []
    episodes = spark.read.parquet(str(table.resolve()))
    known = {"downtime", "longer_than", "first_connect", "never_connected"} <= set(episodes.columns)
    return collect(ecdf(episodes)) if known else []


def headline(everyone: Mapping[str, Any], summary: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the figures of the headline: connections, outages by result, percentiles of the downtime.

    :param everyone: the fleet's row of ``period.groups``.
    :param summary: from the same episodes.
    """
    return {**everyone, **{name: summary[metric] for name, metric in _HEADLINE.items()}}


def ecdf(episodes: DataFrame) -> DataFrame:
    """Share of the outages that had ended after ``downtime`` seconds; at most 60 points a decade.

    The share refers to all outages that ended or are unfinished, and to first connects that never succeeded.
    So unfinished ones keep the curve below one.  The times are grouped on a logarithmic grid, and each
    group is drawn at its longest time, where the share is exact.
    """
    judged = sf.col("downtime").isNotNull() | sf.col("longer_than").isNotNull()
    outages = episodes.where((~sf.col("first_connect") & judged) | sf.col("never_connected"))
    cell = sf.ceil(
        sf.log10(sf.when(sf.col("downtime") < _SHORTEST, _SHORTEST).otherwise(sf.col("downtime")))
        * _ECDF_PER_DECADE
    )
    cells = outages.groupBy(cell.alias("cell")).agg(
        sf.max("downtime").alias("downtime"), sf.count("*").alias("outages")
    )
    point = sf.when(sf.col("downtime").isNotNull(), sf.struct("downtime", "outages"))
    curve = cells.agg(sf.sum("outages").alias("total"), sf.sort_array(sf.collect_list(point)).alias("points"))
    return curve.select(sf.inline(sf.transform("points", _share))).orderBy("downtime")


def _share(point: Column, number: Column) -> Column:
    """Return a point of the curve; ``points`` has some hundreds, too few to justify a window's shuffle."""
    so_far = sf.aggregate(
        sf.slice("points", sf.lit(1), number + 1),
        sf.lit(0).cast("bigint"),
        lambda outages, one: outages + one["outages"],
    )
    return sf.struct(point["downtime"].alias("downtime"), (so_far / sf.col("total")).alias("share"))


def jitter_histogram(events: DataFrame) -> DataFrame:
    """Count delays by their share of the base they were drawn from, and the number for an ideal strategy.

    Columns: strategy, ratio_from, ratio_to, delays, ideal (null if no ideal is known).  Delays that a
    server asked for were not drawn, and do not count.
    """
    ratio = sf.col("backoff_delay") / sf.col("backoff_base")
    drawn = events.where(
        (sf.col("type") == Kind.BACKOFF.value) & sf.col("retry_after").isNull() & (sf.col("backoff_base") > 0)
    )
    cell = sf.least(sf.floor(ratio * _BINS), sf.lit(_BINS - 1)).alias("cell")
    counts = drawn.groupBy(sf.col("backoff_strategy").alias("strategy"), cell).agg(sf.count("*").alias("n"))
    cells = (
        counts.groupBy("strategy")
        .agg(sf.sum("n").alias("total"))
        .select("strategy", "total", sf.explode(sf.sequence(sf.lit(0), sf.lit(_BINS - 1))).alias("cell"))
    )
    ideal = sf.when(sf.col("strategy") == "full", sf.col("total") / _BINS)
    return (
        cells.join(counts, ["strategy", "cell"], "left")
        .select(
            "strategy",
            (sf.col("cell") / _BINS).alias("ratio_from"),
            ((sf.col("cell") + 1) / _BINS).alias("ratio_to"),
            sf.coalesce("n", sf.lit(0)).alias("delays"),
            ideal.alias("ideal"),
        )
        .orderBy("strategy", "ratio_from")
    )
