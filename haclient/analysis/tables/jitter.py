"""Whether clients spread their reconnects as the backoff strategy promises.

Every delay that is drawn is drawn evenly between two bounds: its line has the ceiling (``backoff_base``), and
the least that it could have been (``backoff_floor``).  Where it lies between them is 0 to 1, evenly, whatever
the strategy: so all of them are judged alike.

Rules
-----
1. Delays that a server's retry-after decided are left out.
2. A line without ``backoff_floor`` is of an older client, or its delay was not drawn: another rule of the
   search decided (``haclient.discovery.polling``).  The floors of ``full`` (0) and ``equal`` (half of the
   ceiling) are known without it; of the others it is not judged, and counted as such.
3. A delay whose floor is its ceiling has no jitter.  It is not judged either.
4. A group is a strategy, a ceiling and a round; ``marks`` judges it.  Rounds from ``ROUNDS`` on are one.  A
   ceiling that was itself drawn (``decorrelated``), or depends on when members answered (``adaptive``), is
   another for each delay: the group of such a strategy has delays of all ceilings.

Columns:

* ``mean_ratio``: mean of delay / ceiling; full jitter: 0.5.
* ``ks_statistic``: Kolmogorov-Smirnov distance of the positions from the even distribution.
* ``synchronisation_index``: of the attempts that the delays put into one second of one cluster, the share in
  the fullest 10 ms, averaged over seconds with at least ``FEWEST`` of them and weighted by their number.
  Evenly spread arrivals come near 0.01, arrivals in step near 1.  Null where no second has enough.
* ``at_cap_share``: delays of more than 95 % of a ceiling that has reached the cap.  Full jitter: 0.05 of the
  delays at the cap; clipping after the draw piles most of them up there [1].

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

FEWEST = 20  # arrivals in a second; with fewer, their fullest 10 ms says little
NEAR_CAP = 0.95
CELLS = 4096  # of a position from 0 to 1: finer than the distances of a million delays
ROUNDS = 16  # from 1 ms, doubling, the ceiling has reached 30 s by then
GROUP = ("strategy", "backoff_base", "round")

_LADDERS = ("full", "equal", "exponential", "constant")  # their ceilings depend on the round alone
_SCHEMA = (
    "strategy STRING, backoff_base DOUBLE, round BIGINT, delays BIGINT, judged BIGINT, mean_ratio DOUBLE, "
    "ks_statistic DOUBLE, p_value DOUBLE, p_adjusted DOUBLE, verdict STRING, synchronisation_index DOUBLE, "
    "at_cap_share DOUBLE"
)


def delays(events: DataFrame) -> DataFrame:
    """One row a delay; ``wake`` is when it ends, in microseconds since the epoch.

    ``position`` is where it lies between its bounds; null where it was not drawn, or nobody knows how.
    """
    lines = events.where(
        (sf.col("type") == Kind.BACKOFF.value) & sf.col("retry_after").isNull() & (sf.col("backoff_base") > 0)
    )
    delay, base, strategy = sf.col("backoff_delay"), sf.col("backoff_base"), sf.col("backoff_strategy")
    at_cap = (base >= sf.col("backoff_max")) & (delay > NEAR_CAP * base)
    floor = sf.coalesce("backoff_floor", sf.when(strategy == "full", 0.0).when(strategy == "equal", base / 2))
    position = (delay - floor) / (base - floor)
    within = sf.least(sf.greatest(position, sf.lit(0.0)), sf.lit(1.0))  # of null they would make 0
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
    """One row for each strategy, base and round; docs/analysis.md has the columns.

    The groups are few, and are judged together, on the driver.

    :param drawn: of ``delays``.
    :param histogram: of the same; it is read twice: materialize it.
    """
    found = [row.asDict() for row in measured(drawn, histogram).collect()]
    groups = [marks.Group(row["delays"], row["fixed"], row["judged"], row["ks_statistic"]) for row in found]
    rows = [
        row | {"p_value": each.p_value, "p_adjusted": each.p_adjusted, "verdict": each.verdict.value}
        for row, each in zip(found, marks.judge(groups), strict=True)
    ]
    return single(literal(drawn.sparkSession, rows, _SCHEMA))


def measured(drawn: DataFrame, histogram: DataFrame) -> DataFrame:
    """The groups before they are judged; the parameters are those of ``statistics``."""
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
    """Delays by cells of their position, a small table.

    Each cell has ``before``, the delays below it, ``reached``, the distance at its ends, and ``bound``,
    which no distance inside it exceeds.  The delays that are not judged have one of their own.
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
    """The largest distance inside the cells where it can be larger than any at the end of a cell.

    They are few, and only their delays are put in order.
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
    """``left`` with the columns of the row of ``right`` that has the same key; null is equal to null."""
    other = right.select(
        *(sf.col(name).alias(f"its_{name}") for name in key),
        *(name for name in right.columns if name not in key),
    )
    same = [sf.col(name).eqNullSafe(sf.col(f"its_{name}")) for name in key]
    return left.join(sf.broadcast(other), same, how).drop(*(f"its_{name}" for name in key))
