"""Whether the accept rate limited a storm, and what the best possible time was then.

Rules
-----
1. Seconds are counted from the start of the storm.  One is busy when it has at least ``NEAR`` of the setups
   of the best second, while a client is turned away or hangs.
2. Turned away means: an attempt failed, at an endpoint that set up connections in this storm; not because
   the client ended it itself.
3. A storm is *saturated* when ``RUN`` busy seconds or more follow each other, it hit ``FEWEST`` connections
   or more, and the last one was not back before the ideal.  Of several runs the one with most setups counts.
4. The setup rate is the mean of that run; the ideal is ``clients_hit / setup_rate``: no order of arrival lets
   the last one in sooner.  The ratio compares those that made the storm end (``table``) with their own ideal:
   stragglers are beside it.
5. Without a limit that is seen there is no rate and no ideal: all may have come as soon as they could.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

NEAR = 0.8
RUN = 3  # s
FEWEST = 50  # connections
OWN_ENDS = ("made-room", "lost-race", "stopped")
"""Errors of attempts that the client ended itself."""

_ROUNDING = 1e-9


def seconds(buckets: DataFrame) -> DataFrame:
    """``storm``, ``second``, ``attempts``, ``setups``, and ``waiting``: clients turned away or hanging.

    :param buckets: of ``time_buckets``.
    """
    endpoint = Window.partitionBy("storm", "server_address", "server_port")
    serves = (sf.max("connected").over(endpoint) > 0) | sf.col("server_address").isNull()
    refused = sf.col("error_type").isNotNull() & ~sf.col("error_type").isin(*OWN_ENDS)
    second = sf.floor(sf.col("tenth") / 10)
    waits = serves & (refused | sf.col("hangs").isNotNull())
    known = buckets.select(
        *("storm", "attempts", sf.col("connected").alias("setups")),
        sf.when(waits, sf.col("attempts")).otherwise(0).alias("waiting"),
        second.alias("begun"),
        sf.coalesce("hangs", sf.lit(0)).alias("further"),
    )
    spread = known.withColumn("after", sf.explode(sf.sequence(sf.lit(0).cast("bigint"), "further")))
    first = sf.col("after") == 0
    return spread.groupBy("storm", (sf.col("begun") + sf.col("after")).alias("second")).agg(
        sf.sum(sf.when(first, sf.col("attempts")).otherwise(0)).alias("attempts"),
        sf.sum(sf.when(first, sf.col("setups")).otherwise(0)).alias("setups"),
        sf.sum("waiting").alias("waiting"),
    )


def rates(seconds: DataFrame) -> DataFrame:
    """``storm`` and ``rate`` of its longest busy run, where it has one of ``RUN`` seconds.

    :param seconds: of the function of that name.
    """
    best = sf.max("setups").over(Window.partitionBy("storm"))
    busy = (sf.col("setups") > 0) & (sf.col("setups") >= NEAR * best - _ROUNDING) & (sf.col("waiting") > 0)
    order = Window.partitionBy("storm").orderBy("second")
    of_run = seconds.withColumn("busy", busy).where("busy")
    of_run = of_run.withColumn("run", sf.col("second") - sf.row_number().over(order))
    runs = of_run.groupBy("storm", "run").agg(sf.count("*").alias("length"), sf.sum("setups").alias("setups"))
    longest = sf.max_by(
        sf.col("setups") / sf.col("length"), sf.struct("setups", (-sf.col("run")).alias("earlier"))
    )
    return runs.where(sf.col("length") >= RUN).groupBy("storm").agg(longest.alias("rate"))


def judged(rate: Column) -> tuple[Column, list[Column]]:
    """Whether a storm is saturated, and its ``setup_rate``, ``ideal`` and ``ratio_to_ideal``.

    :param rate: of ``rates``; the other columns are those of ``table.extents``.
    """
    ideal_99 = sf.col("needed") / rate
    too_fast = sf.coalesce(sf.col("back_99") < ideal_99 - _ROUNDING, sf.lit(False))
    saturated = rate.isNotNull() & (sf.col("clients_hit") >= FEWEST) & ~too_fast
    return saturated, [
        sf.when(saturated, rate).alias("setup_rate"),
        sf.when(saturated, sf.col("clients_hit") / rate).alias("ideal"),
        sf.when(saturated, sf.col("back_99") / ideal_99).alias("ratio_to_ideal"),
    ]
