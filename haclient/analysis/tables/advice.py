"""The policy that the data supports, each value with its reason and the numbers it is based on.

* ``accept_rate`` of the pair: the most connection setups that a primary managed in one second.
* ``backoff_max``: N clients at a ceiling c make 2N/c attempts a second (the mean delay of full
  jitter is c/2).  From c = 2N/rate on the primary can answer all of them.  N is the largest storm's number
  of clients, the rate is that of ``accept_rate``.
* ``deadline``: twice the downtime that 99.9 % of the outages stayed under, so that no client
  gives up in a storm like the worst one seen.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

MARGIN = 2.0  # of the deadline over the slowest


def advice(episodes: DataFrame, storms: DataFrame, rolled_up: DataFrame) -> DataFrame:
    """One row for each parameter that the data says something about; docs/analysis.md has the columns."""
    made = (_accept_rate(storms), _backoff_max(storms, rolled_up), _deadline(episodes))
    return reduce(DataFrame.unionByName, made)


def _row(parameter: str, proposed: Column, current: Column, reason: str, basis: Column) -> list[Column]:
    return [
        sf.lit(parameter).alias("parameter"),
        current.cast("double").alias("current"),
        proposed.cast("double").alias("proposed"),
        sf.lit(reason).alias("reason"),
        basis.alias("basis"),
    ]


def _accept_rate(storms: DataFrame) -> DataFrame:
    best = storms.agg(sf.max("setup_rate").alias("rate"), sf.count("*").alias("storms"))
    basis = sf.format_string("highest setup rate %.0f/s in %d storms", "rate", "storms")
    reason = "the primary set up no more connections in any second of a storm"
    return best.where("rate IS NOT NULL").select(
        *_row("accept_rate", sf.col("rate"), sf.lit(None), reason, basis)
    )


def _backoff_max(storms: DataFrame, rolled_up: DataFrame) -> DataFrame:
    used = sf.broadcast(rolled_up.agg(sf.max("backoff_max").alias("used")))
    worst = storms.agg(sf.max("clients_hit").alias("clients"), sf.max("setup_rate").alias("rate"))
    rows = worst.where("rate IS NOT NULL").crossJoin(used)
    basis = sf.format_string("2 x %d clients / %.0f connection setups a second", "clients", "rate")
    reason = "from this ceiling on, the attempts of all clients are no more than the primary can answer"
    ceiling = sf.ceil(2 * sf.col("clients") / sf.col("rate"))
    return rows.select(*_row("backoff_max", ceiling, sf.col("used"), reason, basis))


def _deadline(episodes: DataFrame) -> DataFrame:
    downtime = sf.when(~sf.col("first_connect"), sf.col("downtime"))
    rows = episodes.agg(
        sf.percentile(downtime, sf.lit(0.999)).alias("slow"), sf.count(downtime).alias("outages")
    )
    basis = sf.format_string("p99.9 of the downtime %.3f s in %d outages", "slow", "outages")
    reason = "twice the time in which 99.9 % of the outages ended"
    return rows.where("slow IS NOT NULL").select(
        *_row("deadline", sf.ceil(MARGIN * sf.col("slow")), sf.lit(None), reason, basis)
    )
