"""The table ``storms``: the connections lost in each, the ends of their outages, and the times.

Rules
-----
1. A connection counts once, by its last outage in the storm.  It is back at its loss plus its downtime,
   counted from the start of the storm: a clock that is set during the storm does no harm.
2. Shares refer to the connections that count in percentiles (``summary``): back at a known time, given up,
   open or silent.  A share of p is back at the time of the connection with rank ``ceil(p * n)``, to the
   millisecond; null if it never is.
3. A storm ends when 99 % are back.  Connections that are not back then are stragglers.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.tables.episodes import LASTING
from haclient.analysis.tables.storms import saturation

SHARES = {"back_50": 0.5, "back_90": 0.9, "back_99": 0.99, "back_100": 1.0}
RESULTS = ("back", "gave_up", "closed", "replaced", "open", "silent")


def extents(hit: DataFrame) -> DataFrame:
    """Return one row per storm: facts about its connections that need no lines.

    :param hit: from ``cores.losses``.
    """
    began = (sf.unix_micros("lost_at") - sf.unix_micros("zero")) / 1e6
    after = sf.when(sf.col("is_last"), began + sf.col("downtime")).alias("after")
    lasting = sf.col("is_last") & sf.col("episode_result").isin(*LASTING)
    rows = hit.select("*", after, lasting.alias("lasting"))
    ended = [
        sf.count_if(sf.col("is_last") & (sf.col("episode_result") == result)).alias(result)
        for result in RESULTS
    ]
    found = rows.groupBy("storm").agg(
        *(sf.max(name).alias(name) for name in ("cluster", "started_at", "live")),
        sf.count_if("is_last").alias("clients_hit"),
        sf.sum("attempts").alias("attempts"),
        sf.min("after").alias("first_back"),
        sf.max("after").alias("last_back"),
        (sf.count("after") + sf.count_if("lasting")).alias("judged"),
        *ended,
        sf.max("generation_before").alias("generation_before"),
        sf.max("generation_after").alias("generation_after"),
    )
    needed = sf.ceil(sf.col("judged") * 99 / 100).alias("needed")
    known = found.select("*", needed).join(sf.broadcast(_shares(rows, found)), "storm", "left")
    started = sf.unix_millis("started_at").cast("string")
    storm_id = sf.concat_ws("/", sf.coalesce("cluster", sf.lit("?")), started)
    end = sf.timestamp_micros(sf.unix_micros("started_at") + sf.rint(sf.col("back_99") * 1e6).cast("bigint"))
    return known.withColumns({"storm_id": storm_id, "ended_at": end})


def _shares(rows: DataFrame, found: DataFrame) -> DataFrame:
    """Return each storm's times at which ``SHARES`` were back, and ``stragglers``; it sorts milliseconds."""
    cells = (
        rows.where("after IS NOT NULL")
        .groupBy("storm", sf.floor(sf.col("after") * 1000).alias("cell"))
        .agg(sf.count("*").alias("back"), sf.max("after").alias("after"))
        .join(sf.broadcast(found.select("storm", "judged")), "storm")
    )
    so_far = sf.sum("back").over(Window.partitionBy("storm").orderBy("cell"))
    ranked = cells.withColumn("so_far", so_far)

    def reached(share: float) -> Column:
        return sf.col("so_far") >= sf.ceil(sf.col("judged") * round(share * 100) / 100)

    left = sf.when(reached(SHARES["back_99"]), sf.col("judged") - sf.col("so_far"))
    return ranked.groupBy("storm").agg(
        *(sf.min(sf.when(reached(share), sf.col("after"))).alias(name) for name, share in SHARES.items()),
        sf.max(left).alias("stragglers"),
    )


def summary(found: DataFrame, buckets: DataFrame) -> DataFrame:
    """Return the table ``storms``; docs/analysis.md has the columns.

    :param found: from ``extents``; a small table.
    :param buckets: from ``time_buckets``; a small table.
    """
    tenths = buckets.groupBy("storm", "tenth").agg(sf.sum("attempts").alias("attempts"))
    fine = tenths.groupBy("storm").agg(sf.max("attempts").alias("peak_attempts_per_100ms"))
    seconds = saturation.seconds(buckets)
    coarse = seconds.groupBy("storm").agg(
        sf.max("attempts").alias("peak_attempts_per_second"), sf.max("setups").alias("peak_setups_per_second")
    )
    rows = found.join(fine, "storm", "left").join(coarse, "storm", "left")
    rows = rows.join(saturation.rates(seconds), "storm", "left")
    saturated, rated = saturation.judged(sf.col("rate"))
    return rows.select(
        *("storm_id", "cluster", "started_at", "ended_at", "live", "clients_hit", "attempts"),
        *(sf.coalesce(name, sf.lit(0)).alias(name) for name in PEAKS),
        "first_back",
        *SHARES,
        *("last_back", "stragglers", *RESULTS),
        (sf.col("attempts") / sf.col("clients_hit")).alias("amplification"),
        saturated.alias("saturated"),
        *rated,
        *("generation_before", "generation_after"),
    )


PEAKS = ("peak_attempts_per_second", "peak_attempts_per_100ms", "peak_setups_per_second")
