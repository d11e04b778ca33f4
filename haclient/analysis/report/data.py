"""From the analysis' tables to the few rows that the report shows.

Rules
-----
* The report's size does not depend on the fleet's: every table is cut to a number of rows here, in Spark,
  and ``totals`` says how many there were.
* What is cut is the least of it: the biggest storms, the busiest members and the newest alarms stay.
* A value is exact.  The curve of downtimes is the share at some of the times that were measured, not a
  smoothed one.
* Timestamps leave as text in UTC, so that the time zone of the driver does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.report import lag
from haclient.analysis.report.charts import OTHERS
from haclient.analysis.tables.alarms import urgency
from haclient.analysis.tables.rollup import materialize
from haclient.analysis.thresholds import BOUNDS
from haclient.telemetry.schema import Kind

Rows = Sequence[Mapping[str, Any]]

STORMS = 3
"""Storms that are drawn; the table of storms has more."""

BUCKETS = 120
"""Columns of a storm's drawing: more than two pixels each on a phone."""

MEMBERS = 5
"""Members with a colour of their own in a storm's drawing; more are hard to distinguish."""

ROWS = {
    "storms": 20,
    "jitter": 20,
    "members": 40,
    "not_recovered": 50,
    "alarms": 50,
    "advice": 20,
}
"""Rows that are shown of a table."""

_HEADLINE = {
    **{
        name: name
        for name in ("outages", "back", "gave_up", "closed", "replaced", "open", "silent", "never_connected")
    },
    **{name: f"{name}_downtime" for name in ("p50", "p90", "p99", "max")},
    **{name: name for name in BOUNDS.values()},
}
"""Metrics of the headline, by their names there."""

_ECDF_PER_DECADE = 60
_SHORTEST = 0.001  # s; what is shorter is drawn there
_BINS = 20
_REASONS = 6
_DRAWN = (
    0.99  # of the connection setups: a straggler an hour later must not squeeze the storm into one column
)
_MARGIN = 1.25  # what is drawn beyond them


def report_tables(
    tables: Mapping[str, DataFrame], events: DataFrame, summary: Mapping[str, float | None]
) -> dict[str, Rows]:
    """Everything that ``render`` takes, collected.

    :param tables: as ``tables.all_tables`` gives them, best read back from where they were stored.
    :param events: the lines that they were made from.
    :param summary: of the tables.
    """
    largest = materialize(biggest(tables["storms"]))
    of_largest = tables["storm_timeline"].join(sf.broadcast(largest), "storm_id", "left_semi")
    drawn = materialize(timeline(materialize(of_largest), largest))
    frames = {
        "headline": headline(tables["episodes"], summary),
        "ecdf": ecdf(tables["episodes"]),
        "storm_timeline": drawn,
        "storm_marks": marks(events, largest, drawn),
        "storm_reasons": reasons(tables["storm_reasons"], largest),
        "jitter_histogram": jitter_histogram(events),
    }
    frames |= {name: first_rows(tables[name], name) for name in ROWS}
    rows: dict[str, Rows] = {name: collect(frame) for name, frame in frames.items()}
    counted = (*ROWS, "quarantine", "site_lag")
    counts = collect(totals({name: tables[name] for name in counted if name in tables}))
    if any(row["table"] == "site_lag" and row["rows"] for row in counts):
        rows["sites"] = streams = collect(lag.streams(tables["site_lag"]))
        counts = [*counts, {"table": "sites", "rows": streams[0]["streams"]}]
    rows["totals"] = counts
    return rows


def totals(tables: Mapping[str, DataFrame]) -> DataFrame:
    """How many rows each table has: one query, for many small ones take longer to plan than to run."""
    counts = (
        frame.agg(sf.count("*").alias("rows")).select(sf.lit(name).alias("table"), "rows")
        for name, frame in tables.items()
    )
    return reduce(DataFrame.unionAll, counts)


def collect(frame: DataFrame) -> Rows:
    """The rows as dicts, timestamps as text."""
    columns = [
        sf.date_format(name, "yyyy-MM-dd HH:mm:ss.SSS").alias(name) if kind == "timestamp" else sf.col(name)
        for name, kind in frame.dtypes
    ]
    return [row.asDict(recursive=True) for row in frame.select(*columns).collect()]


def first_rows(frame: DataFrame, table: str) -> DataFrame:
    """The rows of ``table`` that are shown, the most important first."""
    order: Mapping[str, tuple[Column, ...]] = {
        "storms": (sf.desc("clients_hit"), sf.asc("started_at")),
        "jitter": (sf.asc("strategy"), sf.asc("round"), sf.asc("backoff_base")),
        "members": (sf.desc("attempts"), sf.asc("server_address"), sf.asc("server_port")),
        "not_recovered": (sf.desc("last_seen"), sf.asc("client_id"), sf.asc("connection")),
        "alarms": (
            urgency(),
            sf.desc("at"),
            sf.asc("kind"),
            sf.asc("detail"),
        ),
        "advice": (sf.asc("parameter"),),
    }
    return frame.orderBy(*order[table]).limit(ROWS[table])


def headline(episodes: DataFrame, summary: Mapping[str, float | None]) -> DataFrame:
    """One row: how many outages, whom they hit, how long they took.

    :param summary: of the same episodes.
    """
    clients = episodes.groupBy("client_id", "connection").agg(
        sf.min("began_at").alias("first_at"),
        sf.max(sf.coalesce("back_at", "began_at")).alias("last_at"),
        sf.max(~sf.col("first_connect")).alias("hit"),
    )
    counted = clients.agg(
        sf.min("first_at").alias("first_at"),
        sf.max("last_at").alias("last_at"),
        sf.count("*").alias("connections"),
        sf.count_if("hit").alias("clients_hit"),
    )
    return counted.select("*", *(sf.lit(summary[metric]).alias(name) for name, metric in _HEADLINE.items()))


def ecdf(episodes: DataFrame) -> DataFrame:
    """Share of the outages that had ended after ``downtime`` seconds; at most 60 points a decade.

    The share is of the outages that the percentiles are of: what is not back keeps the curve below one.
    The times are grouped on a logarithmic grid, and each group stands at its longest time, where the share
    is exact.
    """
    judged = sf.col("downtime").isNotNull() | sf.col("longer_than").isNotNull()
    outages = episodes.where(~sf.col("first_connect") & judged)
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
    """A point of the curve; ``points`` has some hundreds, so that a window is not worth its shuffle."""
    so_far = sf.aggregate(
        sf.slice("points", sf.lit(1), number + 1),
        sf.lit(0).cast("bigint"),
        lambda outages, one: outages + one["outages"],
    )
    return sf.struct(point["downtime"].alias("downtime"), (so_far / sf.col("total")).alias("share"))


def jitter_histogram(events: DataFrame) -> DataFrame:
    """Delays by their share of the base they were drawn under, and how many an ideal strategy would have.

    Columns: strategy, ratio_from, ratio_to, delays, ideal (null where no ideal is known).  Delays that a
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


def biggest(storms: DataFrame) -> DataFrame:
    """The storms that are drawn."""
    order = (sf.desc("clients_hit"), sf.desc("attempts"), sf.asc("storm_id"))
    return storms.orderBy(*order).limit(STORMS).select("storm_id", "cluster", "started_at", "ended_at")


def timeline(storm_timeline: DataFrame, largest: DataFrame) -> DataFrame:
    """What is drawn of the biggest storms: at most ``BUCKETS`` columns and ``MEMBERS`` colours each.

    Columns: storm_id, second (start of the bucket), width (s), member, attempts, failures, connected.
    The drawing ends a little after 99 % of the connection setups.
    """
    buckets = storm_timeline.join(sf.broadcast(largest.select("storm_id")), "storm_id").withColumn(
        "member", sf.concat_ws(":", "server_address", "server_port")
    )
    width = sf.greatest(sf.lit(1), sf.ceil(sf.col("end") * 10 / BUCKETS))
    framed = (
        buckets.join(sf.broadcast(_drawn_until(buckets)), "storm_id")
        .where("second < end")
        .withColumn("tenths", width)
    )
    coloured = framed.join(sf.broadcast(_coloured(framed)), ["storm_id", "member"], "left").withColumn(
        "member", sf.coalesce("colour", sf.lit(OTHERS))
    )
    bucket = sf.floor(sf.rint(sf.col("second") * 10) / sf.col("tenths")) * sf.col("tenths") / 10
    return (
        coloured.groupBy("storm_id", bucket.alias("second"), (sf.col("tenths") / 10).alias("width"), "member")
        .agg(*(sf.sum(name).alias(name) for name in ("attempts", "failures", "connected")))
        .orderBy("storm_id", "second", "member")
    )


def _drawn_until(buckets: DataFrame) -> DataFrame:
    """Per storm the second where its drawing ends."""
    storm = Window.partitionBy("storm_id")
    so_far = sf.sum("connected").over(storm.orderBy("second"))
    share = so_far / sf.nullif(sf.sum("connected").over(storm), sf.lit(0))
    seconds = buckets.select("storm_id", "second", share.alias("share"))
    back = sf.min(sf.when(sf.col("share") >= _DRAWN, sf.col("second")))
    last = sf.max("second") + 0.1
    end = sf.coalesce(sf.least(last, (back + 0.1) * _MARGIN), last)
    return seconds.groupBy("storm_id").agg(end.alias("end"))


def _coloured(buckets: DataFrame) -> DataFrame:
    """The members with the most attempts and connection setups of each storm."""
    busy = buckets.groupBy("storm_id", "member").agg(
        (sf.sum("attempts") + sf.sum("connected")).alias("busy"),
    )
    rank = sf.row_number().over(Window.partitionBy("storm_id").orderBy(sf.desc("busy"), "member"))
    return (
        busy.withColumn("rank", rank)
        .where(sf.col("rank") <= MEMBERS)
        .select("storm_id", "member", sf.col("member").alias("colour"))
    )


def marks(events: DataFrame, largest: DataFrame, drawn: DataFrame) -> DataFrame:
    """The primary's return in the biggest storms: storm_id, second, event, member.

    ``promoted`` is a member's own line, where the members write telemetry; ``first back`` is the first
    bucket with a connection setup.  The primary's death is second 0, the first loss.
    """
    storms = sf.broadcast(largest.withColumnRenamed("cluster", "in_cluster"))
    promoted = events.where((sf.col("type") == Kind.MEMBER_ROLE.value) & (sf.col("role") == "primary")).join(
        storms,
        sf.col("cluster").eqNullSafe(sf.col("in_cluster"))
        & sf.col("t").between(sf.col("started_at"), sf.coalesce("ended_at", sf.col("t"))),
    )
    second = sf.col("t").cast("double") - sf.col("started_at").cast("double")
    first = promoted.groupBy("storm_id").agg(sf.min(sf.struct(second.alias("second"), "member")).alias("at"))
    back = drawn.where("connected > 0").groupBy("storm_id").agg(sf.min("second").alias("second"))
    return (
        first.select("storm_id", "at.second", sf.lit("promoted").alias("event"), "at.member")
        .unionByName(
            back.select(
                "storm_id",
                "second",
                sf.lit("first back").alias("event"),
                sf.lit(None).cast("string").alias("member"),
            )
        )
        .orderBy("storm_id", "second", "event")
    )


def reasons(storm_reasons: DataFrame, largest: DataFrame) -> DataFrame:
    """Failures of the biggest storms by reason, the most frequent first."""
    sums = (
        storm_reasons.join(sf.broadcast(largest.select("storm_id")), "storm_id")
        .groupBy("storm_id", "error_type")
        .agg(sf.sum("failures").alias("failures"))
    )
    rank = sf.row_number().over(Window.partitionBy("storm_id").orderBy(sf.desc("failures"), "error_type"))
    return (
        sums.withColumn("rank", rank)
        .where(sf.col("rank") <= _REASONS)
        .drop("rank")
        .orderBy("storm_id", sf.desc("failures"), "error_type")
    )
