"""The table ``jitter``: whether clients spread their reconnects as the backoff strategy promises.

Every random delay is drawn evenly between two bounds, which its line has: the ceiling (``backoff_base``) and
the floor (``backoff_floor``).  Its position between them is even from 0 to 1, whatever the strategy.
So all strategies are judged alike.

Rules
-----
1. Delays set by a server's retry-after are left out.
2. A line without ``backoff_floor`` is from an older client, or its delay was not drawn: another rule of the
   search decided (``haclient.discovery.polling``).  The floors of ``full`` (0) and ``equal`` (half of the
   ceiling) are known without it.  Delays of other strategies are then counted, but not judged.
3. A delay whose floor is its ceiling has no jitter.  It is not judged either.
4. A group is a strategy, a ceiling and a round; ``marks`` judges it.  Rounds from ``ROUNDS`` on are one.  A
   ceiling that was itself drawn (``decorrelated``), or depends on when members answered (``adaptive``),
   differs for each delay: the group of such a strategy has delays of all ceilings.

Columns:

* ``mean_ratio``: mean of delay / ceiling; full jitter: 0.5.
* ``ks_statistic``: Kolmogorov-Smirnov distance of the positions from the even distribution.
* ``synchronisation_index``: the share of a second's attempts in its fullest 10 ms, if each follows its delay,
  within a cluster.  It is averaged over seconds with at least ``FEWEST`` attempts, weighted by their number.
  Evenly spread arrivals are near 0.01, arrivals in step near 1.  Null if no second has enough.
* ``at_cap_share``: share of delays above 95 % of a ceiling that has reached the cap.  Full jitter: 0.05 of
  the delays at the cap; clipping after the draw gathers most delays there [1].

[1] M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis import marks
from haclient.analysis.io.session import literal, single
from haclient.analysis.tables.rollup import micros
from haclient.telemetry.schema import Kind

FEWEST = 20  # arrivals in a second; with fewer, the fullest 10 ms is not significant
NEAR_CAP = 0.95
CELLS = 4096  # cells of positions from 0 to 1: finer than the distances of a million delays
ROUNDS = 16  # from 1 ms, doubling, the ceiling has reached 30 s by then
GROUP = ("strategy", "backoff_base", "round")

_LADDERS = ("full", "equal", "exponential", "constant")  # their ceilings depend on the round alone
_SCHEMA = (
    "strategy STRING, backoff_base DOUBLE, round BIGINT, delays BIGINT, judged BIGINT, mean_ratio DOUBLE, "
    "ks_statistic DOUBLE, p_value DOUBLE, p_adjusted DOUBLE, verdict STRING, synchronisation_index DOUBLE, "
    "at_cap_share DOUBLE"
)


def delays(events: DataFrame) -> DataFrame:
    """Return one row per delay; ``wake`` is its end, in microseconds since the epoch.

    ``position`` is its place between the bounds; null if it was not drawn, or the bounds are unknown.
    """
    lines = events.where(
        (sf.col("type") == Kind.BACKOFF.value) & sf.col("retry_after").isNull() & (sf.col("backoff_base") > 0)
    )
    delay, base, strategy = sf.col("backoff_delay"), sf.col("backoff_base"), sf.col("backoff_strategy")
    at_cap = (base >= sf.col("backoff_max")) & (delay > NEAR_CAP * base)
    floor = sf.coalesce("backoff_floor", sf.when(strategy == "full", 0.0).when(strategy == "equal", base / 2))
    position = (delay - floor) / (base - floor)
    within = sf.least(sf.greatest(position, sf.lit(0.0)), sf.lit(1.0))  # turns null into 0
    return lines.where(delay.isNotNull()).select(
        strategy.alias("strategy"),
        sf.when(strategy.isin(*_LADDERS), base).alias("backoff_base"),
        sf.least("backoff_round", sf.lit(ROUNDS)).alias("round"),
        "cluster",
        (delay / base).alias("ratio"),
        sf.when(base > floor, within).alias("position"),
        sf.coalesce(base <= floor, sf.lit(False)).alias("fixed"),
        (sf.unix_micros("t") + micros(delay)).alias("wake"),
        sf.coalesce(at_cap, sf.lit(False)).alias("at_cap"),
    )


def statistics(drawn: DataFrame, histogram: DataFrame) -> DataFrame:
    """Return the table ``jitter``: statistics and verdict per strategy, base and round; see docs/analysis.md.

    The groups are few, and are judged together, on the driver.

    :param drawn: from ``delays``.
    :param histogram: from the same delays; materialize it, because it is read twice.
    """
    found = [row.asDict() for row in measured(drawn, histogram).collect()]
    groups = [marks.Group(row["delays"], row["fixed"], row["judged"], row["ks_statistic"]) for row in found]
    rows = [
        row | {"p_value": each.p_value, "p_adjusted": each.p_adjusted, "verdict": each.verdict.value}
        for row, each in zip(found, marks.judge(groups), strict=True)
    ]
    return single(literal(drawn.sparkSession, rows, _SCHEMA))


def measured(drawn: DataFrame, histogram: DataFrame) -> DataFrame:
    """Compute the statistics of each group, before it is judged; same parameters as ``statistics``."""
    groups = histogram.groupBy(*GROUP).agg(
        sf.sum("delays").alias("delays"),
        sf.sum("judged").alias("judged"),
        sf.sum("fixed").alias("fixed"),
        (sf.sum("ratios") / sf.sum("delays")).alias("mean_ratio"),
        sf.max("reached").alias("reached"),
        (sf.sum("at_cap") / sf.sum("delays")).alias("at_cap_share"),
    )
    rows = _beside(_beside(groups, _within(drawn, histogram)), _synchronisation(drawn))
    return rows.select(
        *(*GROUP, "delays", "judged", "fixed", "mean_ratio"),
        sf.greatest("reached", "within").alias("ks_statistic"),
        *("synchronisation_index", "at_cap_share"),
    )


def _cell() -> Column:
    return sf.floor(sf.col("position") * CELLS).alias("cell")


def histogram(drawn: DataFrame) -> DataFrame:
    """Count delays by cells of their position, in a small table.

    Each cell has ``before``, the number of delays below it.  ``reached`` is the Kolmogorov-Smirnov distance
    at its lowest and its highest position, whichever is larger.  ``bound`` is an upper limit for all
    distances inside it: only if it exceeds each ``reached`` of the group, the cell's delays must be sorted.
    Delays that are not judged have a cell of their own, without the two.
    """
    cells = drawn.groupBy(*GROUP, _cell()).agg(
        sf.count("*").alias("delays"),
        sf.count("position").alias("judged"),
        sf.sum("ratio").alias("ratios"),
        sf.min("position").alias("lowest"),
        sf.max("position").alias("highest"),
        sf.count_if("at_cap").alias("at_cap"),
        sf.count_if("fixed").alias("fixed"),
    )
    group = Window.partitionBy(*GROUP)
    below = sf.sum("judged").over(group.orderBy("cell")) - sf.col("judged")
    ranked = cells.withColumn("before", below).withColumn("n", sf.sum("judged").over(group))
    n, last = sf.col("n"), sf.col("before") + sf.col("judged")
    low, high = sf.col("lowest"), sf.col("highest")
    reached = sf.greatest(
        *((sf.col("before") + 1) / n - low, low - sf.col("before") / n),
        *(last / n - high, high - (last - 1) / n),
    )
    bound = sf.greatest(last / n - low, high - sf.col("before") / n)
    known = sf.col("cell").isNotNull()
    return ranked.select("*", sf.when(known, reached).alias("reached"), sf.when(known, bound).alias("bound"))


def _within(drawn: DataFrame, histogram: DataFrame) -> DataFrame:
    """Return the largest distance inside cells where it may exceed the distance at every cell's end.

    These cells are few, and only their delays are sorted.
    """
    best = sf.max("reached").over(Window.partitionBy(*GROUP))
    open_cells = (
        histogram.withColumn("best", best).where("bound > best").select(*GROUP, "cell", "before", "n")
    )
    inside = _beside(drawn.withColumn("cell", _cell()), open_cells, (*GROUP, "cell"), how="inner")
    order = Window.partitionBy(*GROUP, "cell").orderBy("position")
    rank = sf.col("before") + sf.row_number().over(order)
    n, position = sf.col("n"), sf.col("position")
    distance = sf.greatest(sf.col("rank") / n - position, position - (sf.col("rank") - 1) / n)
    ranked = inside.withColumn("rank", rank)
    return ranked.groupBy(*GROUP).agg(sf.max(distance).alias("within"))


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
    """Join the columns of ``right`` by the key; null equals null."""
    other = right.select(
        *(sf.col(name).alias(f"its_{name}") for name in key),
        *(name for name in right.columns if name not in key),
    )
    same = [sf.col(name).eqNullSafe(sf.col(f"its_{name}")) for name in key]
    return left.join(sf.broadcast(other), same, how).drop(*(f"its_{name}" for name in key))
