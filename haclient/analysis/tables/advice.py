"""The table ``advice``: the proposals of ``analysis.advice`` for each cluster.

Rules
-----
* The facts of a cluster come from its own telemetry only.
* Only the ``CLUSTERS`` with the most outages have rows, because each may need replays on the driver.
* The 99.9 % percentile is the outage of that rank, to the millisecond.  An unfinished outage counts as
  longer than its time so far.  Only milliseconds are sorted.
"""

from __future__ import annotations

from dataclasses import asdict, fields

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as sf

from haclient.analysis.advice import BELOW, Advice, Facts, Replay, Storm, advise
from haclient.analysis.io.session import literal, single

CLUSTERS = 20
_SLOW = 999  # per mille

SCHEMA = (
    "cluster string, parameter string, current double, proposed double, reason string, basis string, "
    "last_before double, last_after double, attempts_before double, attempts_after double"
)


def advice(
    episodes: DataFrame,
    storms: DataFrame,
    rolled_up: DataFrame,
    *,
    accept_rate: float | None = None,
    replay: Replay | None = None,
) -> DataFrame:
    """Return three rows for each cluster with outages; docs/analysis.md has the columns.

    :param episodes: from ``episodes.classified``.
    :param storms: from ``storms.table.summary``.
    :param rolled_up: from ``rollup.roll_up``.
    :param accept_rate: connections a second that the clusters are configured to admit, if known.
    :param replay: the simulator.
    """
    rows = [
        asdict(row)
        for facts in _facts(episodes, storms, rolled_up, accept_rate)
        for row in advise(facts, accept_rate=accept_rate, play=replay)
    ]
    assert SCHEMA.split()[::2] == [field.name for field in fields(Advice)]
    return single(literal(episodes.sparkSession, rows, SCHEMA))


def _facts(
    episodes: DataFrame, storms: DataFrame, rolled_up: DataFrame, accept_rate: float | None
) -> list[Facts]:
    outages = _outages(episodes)
    below = sf.lit(accept_rate).cast("double") * BELOW
    of_storms = storms.groupBy(_cluster_hash()).agg(
        _largest(sf.lit(True)).alias("storm"),
        _largest(sf.col("saturated")).alias("saturated"),
        sf.count_if(sf.col("setup_rate") < below).alias("slower"),
        sf.median(sf.when(sf.col("setup_rate") < below, sf.col("setup_rate"))).alias("slower_rate"),
    )
    settings = rolled_up.groupBy(_cluster_hash()).agg(
        sf.max("backoff_max").alias("backoff_max"),
        sf.max_by("strategy", sf.when(sf.col("strategy").isNotNull(), sf.col("lines"))).alias("strategy"),
        (sf.sum("retry_afters") > 0).alias("retry_after"),
    )
    rows = outages.join(of_storms, "place", "left").join(settings, "place", "left").collect()
    return [_of_cluster(row) for row in sorted(rows, key=lambda row: (-row["outages"], row["cluster"] or ""))]


def _cluster_hash() -> Column:
    """Return the hash of the cluster's name; all rows without a name share one."""
    return sf.xxhash64("cluster").alias("place")


def _outages(episodes: DataFrame) -> DataFrame:
    """Select the clusters with most outages, with ``outages``, ``slow``, ``slow_is_bound`` of each."""
    seconds = sf.coalesce("downtime", "longer_than")
    cells = (
        episodes.where(~sf.col("first_connect") & seconds.isNotNull())
        .groupBy(_cluster_hash(), sf.floor(seconds * 1000).alias("cell"))
        .agg(
            sf.max("cluster").alias("cluster"),
            sf.count("*").alias("outages"),
            sf.max(seconds).alias("seconds"),
            sf.max(sf.col("downtime").isNull()).alias("lasting"),
        )
    )
    whole = Window.partitionBy("place")
    n, so_far = sf.sum("outages").over(whole), sf.sum("outages").over(whole.orderBy("cell"))
    reached = so_far * 1000 >= n * _SLOW
    ranked = cells.withColumn("slow", sf.when(reached, sf.col("seconds")))
    found = ranked.groupBy("place").agg(
        sf.max("cluster").alias("cluster"),
        sf.sum("outages").alias("outages"),
        sf.min("slow").alias("slow"),
        sf.min_by("lasting", "slow").alias("slow_is_bound"),
    )
    return found.orderBy(sf.desc("outages"), "place").limit(CLUSTERS)


def _largest(which: Column) -> Column:
    """Select the storm with the most lost connections among storms with a rate."""
    rate = sf.coalesce("setup_rate", sf.nullif("peak_setups_per_second", sf.lit(0)).cast("double"))
    storm = sf.struct("clients_hit", sf.unix_micros("started_at"), rate.alias("rate"), "first_back")
    return sf.max(sf.when(which & rate.isNotNull() & sf.col("first_back").isNotNull(), storm))


def _of_cluster(row: Row) -> Facts:
    return Facts(
        cluster=row["cluster"],
        outages=row["outages"],
        slow=row["slow"],
        slow_is_bound=bool(row["slow_is_bound"]),
        slower=row["slower"] or 0,
        slower_rate=row["slower_rate"],
        storm=_storm(row["storm"]),
        saturated=_storm(row["saturated"]),
        strategy=row["strategy"],
        backoff_max=row["backoff_max"],
        retry_after=bool(row["retry_after"]),
    )


def _storm(row: Row | None) -> Storm | None:
    if row is None:
        return None
    return Storm(clients=row["clients_hit"], rate=row["rate"], outage=max(0.0, row["first_back"]))
