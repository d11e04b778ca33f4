"""Whether clients spread their reconnects as the backoff strategy promises.

For each strategy, ceiling (``backoff_base``) and round, over delays for which no server sent a retry-after:

* ``mean_ratio``: mean of delay / base; full jitter: 0.5.
* ``ks_statistic``: Kolmogorov-Smirnov distance between delay / base and the strategy's distribution, evenly
  from 0 to 1 for ``full``; above ``ks_critical`` (1.36 / sqrt(n), 5 % level [1]) it is not that distribution.
* ``synchronisation_index``: of the attempts that the delays put into one second of one cluster, the share in
  the fullest 10 ms, averaged over seconds with at least ``FEWEST`` of them and weighted by their number.
  Evenly spread arrivals come near 0.01, arrivals in step near 1.  Null where no second has enough.
* ``at_cap_share``: delays of more than 95 % of a base that has reached the cap.  Full jitter: 0.05 of the
  delays at the cap; clipping after the draw piles most of them up there [2].

[1] F. J. Massey, "The Kolmogorov-Smirnov Test for Goodness of Fit", JASA 46 (1951), table 1.
[2] M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.tables.rollup import micros
from haclient.telemetry.schema import Kind

FEWEST = 20  # arrivals in a second; with fewer, their fullest 10 ms says little
CRITICAL = 1.36  # of the 5 % level, for n > 35 [1]
NEAR_CAP = 0.95
CELLS = 4096  # of a ratio from 0 to 1: finer than the distances of a million delays
GROUP = ("strategy", "backoff_base", "round")


def delays(events: DataFrame) -> DataFrame:
    """One row a delay; ``wake`` is when it ends, in microseconds since the epoch."""
    lines = events.where(
        (sf.col("type") == Kind.BACKOFF.value) & sf.col("retry_after").isNull() & (sf.col("backoff_base") > 0)
    )
    delay, base = sf.col("backoff_delay"), sf.col("backoff_base")
    at_cap = (base >= sf.col("backoff_max")) & (delay > NEAR_CAP * base)
    return lines.where(delay.isNotNull()).select(
        sf.col("backoff_strategy").alias("strategy"),
        "backoff_base",
        sf.col("backoff_round").alias("round"),
        "cluster",
        (delay / base).alias("ratio"),
        (sf.unix_micros("t") + micros(delay)).alias("wake"),
        sf.coalesce(at_cap, sf.lit(False)).alias("at_cap"),
    )


def statistics(drawn: DataFrame, histogram: DataFrame) -> DataFrame:
    """One row for each strategy, base and round; docs/analysis.md has the columns.

    :param drawn: of ``delays``.
    :param histogram: of the same; it is read twice: materialize it.
    """
    groups = histogram.groupBy(*GROUP).agg(
        sf.sum("delays").alias("delays"),
        (sf.sum("ratios") / sf.sum("delays")).alias("mean_ratio"),
        sf.max("reached").alias("reached"),
        (sf.sum("at_cap") / sf.sum("delays")).alias("at_cap_share"),
    )
    rows = _beside(_beside(groups, _within(drawn, histogram)), _synchronisation(drawn))
    return rows.select(
        *(*GROUP, "delays", "mean_ratio"),
        sf.greatest("reached", "within").alias("ks_statistic"),
        (CRITICAL / sf.sqrt("delays")).alias("ks_critical"),
        *("synchronisation_index", "at_cap_share"),
    )


def _cell() -> Column:
    return sf.floor(sf.col("ratio") * CELLS).alias("cell")


def histogram(drawn: DataFrame) -> DataFrame:
    """Delays by cells of their ratio, a small table.

    Each cell has ``before``, the delays below it, ``reached``, the distance at its ends, and ``bound``,
    which no distance inside it exceeds.
    """
    cells = drawn.groupBy(*GROUP, _cell()).agg(
        sf.count("*").alias("delays"),
        sf.sum("ratio").alias("ratios"),
        sf.min("ratio").alias("lowest"),
        sf.max("ratio").alias("highest"),
        sf.count_if("at_cap").alias("at_cap"),
    )
    group = Window.partitionBy(*GROUP)
    below = sf.sum("delays").over(group.orderBy("cell")) - sf.col("delays")
    ranked = cells.withColumn("before", below).withColumn("n", sf.sum("delays").over(group))
    n, last = sf.col("n"), sf.col("before") + sf.col("delays")
    low, high = _expected("lowest"), _expected("highest")
    reached = sf.greatest(
        *((sf.col("before") + 1) / n - low, low - sf.col("before") / n),
        *(last / n - high, high - (last - 1) / n),
    )
    bound = sf.greatest(last / n - low, high - sf.col("before") / n)
    return ranked.select("*", reached.alias("reached"), bound.alias("bound"))


def _within(drawn: DataFrame, histogram: DataFrame) -> DataFrame:
    """The largest distance inside the cells where it can be larger than any at the end of a cell.

    They are few, and only their delays are put in order.
    """
    best = sf.max("reached").over(Window.partitionBy(*GROUP))
    open_cells = (
        histogram.withColumn("best", best).where("bound > best").select(*GROUP, "cell", "before", "n")
    )
    inside = _beside(drawn.withColumn("cell", _cell()), open_cells, (*GROUP, "cell"), how="inner")
    order = Window.partitionBy(*GROUP, "cell").orderBy("ratio")
    rank = sf.col("before") + sf.row_number().over(order)
    n, expected = sf.col("n"), _expected("ratio")
    distance = sf.greatest(sf.col("rank") / n - expected, expected - (sf.col("rank") - 1) / n)
    ranked = inside.withColumn("rank", rank)
    return ranked.groupBy(*GROUP).agg(sf.max(distance).alias("within"))


def _expected(ratio: str) -> Column:
    """The strategy's distribution function there; null for a strategy that is not known."""
    return sf.when(sf.col("strategy") == "full", sf.least(sf.greatest(ratio, sf.lit(0.0)), sf.lit(1.0)))


def _synchronisation(drawn: DataFrame) -> DataFrame:
    cell = sf.floor(sf.col("wake") / 10_000).alias("cell")
    cells = drawn.groupBy(*GROUP, "cluster", cell).agg(sf.count("*").alias("arrivals"))
    seconds = cells.groupBy(*GROUP, "cluster", sf.floor(sf.col("cell") / 100).alias("second")).agg(
        sf.max("arrivals").alias("fullest"), sf.sum("arrivals").alias("arrivals")
    )
    busy = sf.col("arrivals") >= FEWEST
    fullest, arrivals = (sf.sum(sf.when(busy, sf.col(name))) for name in ("fullest", "arrivals"))
    return seconds.groupBy(*GROUP).agg((fullest / arrivals).alias("synchronisation_index"))


def _beside(left: DataFrame, right: DataFrame, key: Sequence[str] = GROUP, *, how: str = "left") -> DataFrame:
    """``left`` with the columns of the row of ``right`` that has the same key; null is equal to null."""
    other = right.select(
        *(sf.col(name).alias(f"its_{name}") for name in key),
        *(name for name in right.columns if name not in key),
    )
    same = [sf.col(name).eqNullSafe(sf.col(f"its_{name}")) for name in key]
    return left.join(sf.broadcast(other), same, how).drop(*(f"its_{name}" for name in key))
