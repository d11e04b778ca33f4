"""Select the rows about the biggest storms that the report draws.

A storm is drawn in at most ``BUCKETS`` columns, and ``MEMBERS`` members have a colour of their own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.report.text import OTHERS

STORMS = 3
"""Most storms that are drawn; the table of storms has more."""

BUCKETS = 120
"""Most columns of a storm's drawing: more than two pixels each on a phone."""

MEMBERS = 5
"""Most members with a colour of their own in a storm's drawing; more are hard to distinguish."""

_REASONS = 6
_DRAWN = 0.99  # share of the connection setups: a late straggler must not squeeze the storm into one column
_MARGIN = 1.25  # factor by which the drawing continues beyond them


def biggest(storms: DataFrame) -> DataFrame:
    """Select the storms to draw: the ``STORMS`` that hit most clients; with equally many, most attempts."""
    order = (sf.desc("clients_hit"), sf.desc("attempts"), sf.asc("storm_id"))
    return storms.orderBy(*order).limit(STORMS).select("storm_id", "cluster", "started_at", "ended_at")


def timeline(storm_timeline: DataFrame, largest: DataFrame) -> DataFrame:
    """Return the biggest storms over time, in at most ``BUCKETS`` columns and ``MEMBERS`` colours each.

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
    """Return the second at which each storm's drawing ends."""
    storm = Window.partitionBy("storm_id")
    so_far = sf.sum("connected").over(storm.orderBy("second"))
    share = so_far / sf.nullif(sf.sum("connected").over(storm), sf.lit(0))
    seconds = buckets.select("storm_id", "second", share.alias("share"))
    back = sf.min(sf.when(sf.col("share") >= _DRAWN, sf.col("second")))
    last = sf.max("second") + 0.1
    end = sf.coalesce(sf.least(last, (back + 0.1) * _MARGIN), last)
    return seconds.groupBy("storm_id").agg(end.alias("end"))


def _coloured(buckets: DataFrame) -> DataFrame:
    """Return the members with the most attempts and connection setups of each storm."""
    busy = buckets.groupBy("storm_id", "member").agg(
        (sf.sum("attempts") + sf.sum("connected")).alias("busy"),
    )
    rank = sf.row_number().over(Window.partitionBy("storm_id").orderBy(sf.desc("busy"), "member"))
    return (
        busy.withColumn("rank", rank)
        .where(sf.col("rank") <= MEMBERS)
        .select("storm_id", "member", sf.col("member").alias("colour"))
    )


def marks(primaries: DataFrame, largest: DataFrame, drawn: DataFrame) -> DataFrame:
    """Return signs of the primary's return in the biggest storms: storm_id, second, event, member.

    A storm has at most two rows.  ``promoted`` is the first line in which a member announces that it is
    primary, if the members write telemetry.  ``first back`` is the first bucket with a connection setup; its
    member is null.  Seconds count from the primary's death, which is the first loss and has no row.

    :param primaries: from ``period.primaries``.
    """
    storms = sf.broadcast(largest.withColumnRenamed("cluster", "in_cluster"))
    promoted = primaries.join(
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
    """Count the failures of each of the biggest storms by reason: the ``_REASONS`` most frequent first."""
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
