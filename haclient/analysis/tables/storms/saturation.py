"""Determine whether the accept rate limited a storm, and the best possible time under this rate.

Rules
-----
1. Seconds are counted from the start of the storm.  A second is busy if it has at least ``NEAR`` of the
   best second's setups, while a client is turned away or hangs.
2. Turned away means: an attempt failed, at an endpoint that set up connections in this storm, and the client
   did not end the attempt itself.
3. A storm is *saturated* if it has a run of at least ``RUN`` consecutive busy seconds, it hit at least
   ``FEWEST`` connections, and 99 % were not back before their ideal.  The run with most setups counts.
4. The setup rate is the mean of that run; the ideal is ``clients_hit / setup_rate``: no order of arrival lets
   the last one in sooner.  The ratio compares the connections up to the storm's end (``table``) with their
   own ideal; stragglers are excluded.
5. Without a visible limit there is no rate and no ideal: all clients may have connected as soon as possible.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

NEAR = 0.8
RUN = 3  # s
FEWEST = 50  # connections
OWN_ENDS = ("made-room", "lost-race", "stopped")
"""Errors of attempts that the client itself ended."""

_ROUNDING = 1e-9


def seconds(buckets: DataFrame) -> DataFrame:
    """Count attempts, setups and waiting clients in each second of each storm.

    Columns: ``storm``, ``second``, ``attempts``, ``setups`` and ``waiting`` (turned away, or hanging).

    :param buckets: from ``time_buckets``.
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
    """Return each storm's setup rate, as ``storm`` and ``rate``.

    The rate is the mean of the busy run with most setups.  A storm without a run of ``RUN`` seconds has none.

    :param seconds: from the function ``seconds``.
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
    """Return whether a storm is saturated, and its ``setup_rate``, ``ideal`` and ``ratio_to_ideal``.

    :param rate: from ``rates``; the other columns are from ``table.extents``.
    """
    ideal_99 = sf.col("needed") / rate
    too_fast = sf.coalesce(sf.col("back_99") < ideal_99 - _ROUNDING, sf.lit(False))
    saturated = rate.isNotNull() & (sf.col("clients_hit") >= FEWEST) & ~too_fast
    return saturated, [
        sf.when(saturated, rate).alias("setup_rate"),
        sf.when(saturated, sf.col("clients_hit") / rate).alias("ideal"),
        sf.when(saturated, sf.col("back_99") / ideal_99).alias("ratio_to_ideal"),
    ]
