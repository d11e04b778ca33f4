"""Reconnect storms: outages that hit many connections of a cluster together.

Rules
-----
1. A storm is a run of losses in one cluster, of which none is more than ``gap`` seconds after the one before,
   on at least ``least`` connections.  Connections that do not know their cluster count as one.
2. It starts with its first loss that is no outlier: not earlier than ``FENCE`` quartile distances before the
   first quartile of the losses [1].  A client whose clock is slow does not move the start.
   When a connection is back is counted from there: its own loss by the wall clock, plus its
   downtime by the monotonic clock.  A clock that is set during the storm does no harm.
3. A share of p is back at the time of the connection with rank ``ceil(p * n)``; null if it never is.
4. The timeline takes lines by their time, between the start and the last return, at most ``EXTENT`` later; it
   does not ask which outage an attempt belongs to.  An attempt counts when it starts.
5. The setup rate is the most connections that were set up within one second of the storm; the ideal is
   ``clients_hit / setup_rate``: no order of arrival lets the last one in sooner.  The ratio to it is of those
   that came back: the last of their returns, over their number by the setup rate.

[1] J. W. Tukey, "Exploratory Data Analysis", 1977: the inner fences.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.tables.episodes import CONNECTION
from haclient.analysis.tables.rollup import micros, only
from haclient.telemetry.schema import Kind

GAP = 5.0  # s; detection of a dead peer may take some seconds longer on one client than on the next
LEAST = 2  # connections
FENCE = 1.5  # quartile distances [1]
SLICE = 512  # s; how storms and lines find each other in a join
EXTENT = 86_400.0  # s; a device that gets the time during an outage may seem to be back decades later
NEVER = float("inf")


def losses(episodes: DataFrame, *, gap: float = GAP) -> DataFrame:
    """The episodes that are part of a run, with ``started_at`` and ``offset``.

    ``offset`` is when it was back, in seconds from the start; infinite if never.
    """
    lost = episodes.where(~sf.col("first_connect") & sf.col("lost_at").isNotNull())
    lost = lost.select(
        *("cluster", *CONNECTION, "lost_at", "back_at", "downtime", "attempts"),
        *("generation_before", "generation_after"),
        sf.floor(sf.unix_micros("lost_at") / (gap * 1e6)).alias("bucket"),
    )
    found = _runs(lost, gap)
    same = lost["cluster"].eqNullSafe(found["in_cluster"]) & (lost["bucket"] == found["in_bucket"])
    hit = lost.join(sf.broadcast(found), same).drop("in_cluster", "in_bucket", "bucket")
    begun = (sf.unix_micros("lost_at") - sf.unix_micros("started_at")) / 1e6
    return hit.withColumn("offset", sf.coalesce(begun + sf.col("downtime"), sf.lit(NEVER)))


def _runs(lost: DataFrame, gap: float) -> DataFrame:
    """Which run the losses of each ``gap``-wide bucket of a cluster belong to, and when that started.

    Losses in one bucket are never more than ``gap`` apart.  The windows run over milliseconds, not over
    losses; and a run is of one cluster, so that all is done where that cluster's milliseconds are.
    """
    cells = lost.groupBy("cluster", "bucket", sf.unix_millis("lost_at").alias("cell")).agg(
        sf.count("*").alias("losses"), sf.min("lost_at").alias("first"), sf.max("lost_at").alias("last")
    )
    order = Window.partitionBy("cluster").orderBy("bucket", "cell")
    pause = sf.unix_micros("first") - sf.unix_micros(sf.lag("last").over(order))
    begins = sf.when(pause <= int(gap * 1e6), 0).otherwise(1)
    numbered = cells.withColumn("begins", begins).withColumn("run", sf.sum("begins").over(order))
    return (
        _started(numbered)
        .groupBy(sf.col("cluster").alias("in_cluster"), sf.col("bucket").alias("in_bucket"))
        .agg(sf.max("run").alias("run"), sf.max("started_at").alias("started_at"))
    )


def _started(cells: DataFrame) -> DataFrame:
    """The cells with the start of their run: its first loss that is no outlier."""
    whole = Window.partitionBy("cluster", "run")
    ranked = cells.select(
        *("cluster", "run", "bucket", "cell", "first"),
        sf.sum("losses").over(whole.orderBy("cell")).alias("rank"),
        sf.sum("losses").over(whole).alias("n"),
    )
    low, high = (
        sf.min(sf.when(sf.col("rank") >= share * sf.col("n"), sf.col("cell"))).over(whole)
        for share in (0.25, 0.75)
    )
    fenced = ranked.select("*", (low - FENCE * (high - low)).alias("fence"))
    inlier = sf.when(sf.col("cell") >= sf.col("fence"), sf.col("first"))
    return fenced.withColumn("started_at", sf.min(inlier).over(whole))


def extents(hit: DataFrame, *, least: int = LEAST) -> DataFrame:
    """One row a storm: what its connections went through, without what needs lines.

    :param hit: of ``losses``.
    """
    clients = hit.groupBy("cluster", "started_at", *CONNECTION).agg(
        sf.max("offset").alias("offset"),
        sf.max("back_at").alias("back_at"),
        sf.max("lost_at").alias("lost_at"),
        sf.sum("attempts").alias("attempts"),
        sf.max("generation_before").alias("generation_before"),
        sf.max("generation_after").alias("generation_after"),
    )
    storm = Window.partitionBy("cluster", "started_at")
    ranked = clients.withColumn("rank", sf.row_number().over(storm.orderBy("offset"))).withColumn(
        "n", sf.count("*").over(storm)
    )
    finite = sf.when(sf.col("offset") != NEVER, sf.col("offset"))
    shares = [
        sf.min(sf.when(sf.col("rank") >= share * sf.col("n"), sf.col("offset"))).alias(name)
        for name, share in SHARES.items()
    ]
    rows = ranked.groupBy("cluster", "started_at").agg(
        sf.count("*").alias("clients_hit"),
        _within_extent("back_at").alias("ended_at"),
        _within_extent("lost_at").alias("last_loss_at"),
        sf.sum("attempts").alias("attempts"),
        *shares,
        sf.max(finite).alias("last_back"),
        sf.count_if(sf.col("offset") == NEVER).alias("never_back"),
        sf.max("generation_before").alias("generation_before"),
        sf.max("generation_after").alias("generation_after"),
    )
    began = sf.unix_millis("started_at").cast("string")
    storm_id = sf.concat_ws("/", sf.coalesce("cluster", sf.lit("?")), began).alias("storm_id")
    named = [_finite(sf.col(name)).alias(name) for name in SHARES]
    others = [name for name in rows.columns if name not in SHARES]
    return rows.where(sf.col("clients_hit") >= least).select(storm_id, *others, *named)


SHARES = {"back_50": 0.5, "back_90": 0.9, "back_99": 0.99, "back_100": 1.0}


def _within_extent(name: str) -> Column:
    """The last of these times, cut off: a storm is once in a join for every ``SLICE`` that it lasts."""
    time, latest = sf.unix_micros(name), sf.unix_micros("started_at") + int(EXTENT * 1e6)
    return sf.timestamp_micros(sf.max(sf.when(time > latest, latest).otherwise(time)))


def _finite(column: Column) -> Column:
    return sf.when(column != NEVER, column)


def time_buckets(events: DataFrame, found: DataFrame) -> DataFrame:
    """Attempts and connection setups of each storm by tenth of a second, endpoint and error.

    Every table of a storm over time is computed from this one: ``storm_id``, ``tenth`` (long, from the
    start), ``server_address``, ``server_port``, ``error_type``, ``attempts``, ``connected``.
    """
    begun = sf.unix_micros("t") - sf.coalesce(only(Kind.ATTEMPT, micros("attempt_duration")), sf.lit(0))
    lines = events.where(sf.col("type").isin(Kind.ATTEMPT.value, Kind.CONNECTED.value)).select(
        "type", "cluster", "server_address", "server_port", "error_type", begun.alias("at")
    )
    lines = lines.withColumn("slice", sf.floor(sf.col("at") / (SLICE * 1_000_000)))
    wanted = sf.broadcast(_slices(found))
    both = lines.join(
        wanted,
        lines["cluster"].eqNullSafe(wanted["in_cluster"])
        & (lines["slice"] == wanted["in_slice"])
        & (lines["at"] >= wanted["begin"])
        & (lines["at"] <= wanted["end"]),
    )
    tenth = sf.floor((sf.col("at") - sf.col("begin")) / 100_000)
    return both.groupBy("storm_id", tenth.alias("tenth"), "server_address", "server_port", "error_type").agg(
        sf.count(only(Kind.ATTEMPT, "type")).alias("attempts"),
        sf.count(only(Kind.CONNECTED, "type")).alias("connected"),
    )


def _slices(found: DataFrame) -> DataFrame:
    """Each storm once for every slice of time that it lasts."""
    rows = found.select(
        "storm_id",
        sf.col("cluster").alias("in_cluster"),
        sf.unix_micros("started_at").alias("begin"),
        sf.unix_micros(sf.greatest("ended_at", "last_loss_at")).alias("end"),
    )
    number = [sf.floor(sf.col(name) / (SLICE * 1_000_000)) for name in ("begin", "end")]
    return rows.withColumn("in_slice", sf.explode(sf.sequence(*number)))


def summary(found: DataFrame, buckets: DataFrame) -> DataFrame:
    """The table ``storms``, of ``extents`` and ``time_buckets``; docs/analysis.md has the columns."""
    tenths = buckets.groupBy("storm_id", "tenth").agg(
        sf.sum("attempts").alias("attempts"), sf.sum("connected").alias("connected")
    )
    fine = tenths.groupBy("storm_id").agg(sf.max("attempts").alias("peak_attempts_per_100ms"))
    seconds = tenths.groupBy("storm_id", sf.floor(sf.col("tenth") / 10).alias("second")).agg(
        sf.sum("attempts").alias("attempts"), sf.sum("connected").alias("connected")
    )
    coarse = seconds.groupBy("storm_id").agg(
        sf.max("attempts").alias("peak_attempts_per_second"),
        sf.max("connected").cast("double").alias("setup_rate"),
    )
    rows = found.join(fine, "storm_id", "left").join(coarse, "storm_id", "left")
    rate = sf.when(sf.col("setup_rate") > 0, sf.col("setup_rate"))
    ideal = sf.col("clients_hit") / rate
    returned = sf.nullif(sf.col("clients_hit") - sf.col("never_back"), sf.lit(0))
    return rows.select(
        *("storm_id", "cluster", "started_at", "ended_at", "clients_hit", "attempts"),
        *(
            sf.coalesce(name, sf.lit(0)).alias(name)
            for name in ("peak_attempts_per_second", "peak_attempts_per_100ms")
        ),
        *SHARES,
        (sf.col("attempts") / sf.col("clients_hit")).alias("amplification"),
        rate.alias("setup_rate"),
        ideal.alias("ideal"),
        (sf.col("last_back") * rate / returned).alias("ratio_to_ideal"),
        *("last_back", "never_back", "generation_before", "generation_after"),
    )


def timeline(buckets: DataFrame) -> DataFrame:
    """The table ``storm_timeline``, of ``time_buckets``: what each endpoint saw in each tenth of a second."""
    failed = sf.when(sf.col("error_type").isNotNull(), sf.col("attempts")).otherwise(0)
    return buckets.groupBy(
        "storm_id", (sf.col("tenth") / 10).alias("second"), "server_address", "server_port"
    ).agg(
        sf.sum("attempts").alias("attempts"),
        sf.sum(failed).alias("failures"),
        sf.sum("connected").alias("connected"),
    )


def reasons(buckets: DataFrame) -> DataFrame:
    """The table ``storm_reasons``, of ``time_buckets``: failed attempts by error in each second."""
    failed = buckets.where(sf.col("error_type").isNotNull())
    second = sf.floor(sf.col("tenth") / 10).cast("double").alias("second")
    return failed.groupBy("storm_id", second, "error_type").agg(sf.sum("attempts").alias("failures"))
