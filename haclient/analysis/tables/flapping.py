"""Endpoints that lose their clients again and again.

Rules
-----
1. A *burst* is the loss of at least half of an endpoint's connections within ``WITHIN`` seconds.  A restart
   that ends all of them is one burst, however many there are; occasional drops of single clients are none.
2. The next burst begins only after a connection arrived at the endpoint later than the first loss of the
   previous burst.  While that burst still lasts, half of the connections must have arrived.  So clients
   that return while others are still being lost do not split a burst.
3. The score is the highest number of bursts in any ``HOUR``; from ``ALARM`` on it is an alarm.

Losses and arrivals are counted in cells of a tenth of a second; only cells are sorted.  A connection
known only by its loss existed from the start, or since its last search.  A connection without a recorded
loss ended when its next search began.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.window import WindowSpec

from haclient.analysis.tables.dictionary import with_names
from haclient.analysis.tables.episodes import CONNECTION

WITHIN = 5.0  # s; time until all clients have noticed a dead peer
HOUR = 3600.0  # s
ALARM = 3  # bursts: a failover and the return are two
CELL = 100_000  # microseconds

_WITHIN, _HOUR = (int(seconds * 1e6) // CELL for seconds in (WITHIN, HOUR))


def flapping(outages: DataFrame, dictionary: DataFrame) -> DataFrame:
    """Score each endpoint that had a burst: ``endpoint``, ``cluster``, ``score``, ``last`` (burst).

    :param outages: rows of ``episodes.classified``.
    :param dictionary: from ``dictionary.dictionary``.
    """
    bursts = _bursts(_watched(_cells(_changes(outages, dictionary))))
    hour = Window.partitionBy("endpoint").orderBy("cell").rangeBetween(0, _HOUR - 1)
    scored = bursts.withColumn("score", sf.count("*").over(hour))
    return scored.groupBy("endpoint").agg(
        sf.max("cluster").alias("cluster"),
        sf.max("score").alias("score"),
        sf.timestamp_micros(sf.max("cell") * CELL).alias("last"),
    )


def _changes(outages: DataFrame, dictionary: DataFrame) -> DataFrame:
    """Return changes of each endpoint's connections: one of ``came``, ``lost`` and ``closed`` is 1."""
    said = sf.when(sf.col("said_connected") > 0, sf.col("last_endpoint"))
    connection = Window.partitionBy(*CONNECTION).orderBy("outage")
    known = with_names(outages, dictionary, "last_endpoint").select(
        *("cluster", *CONNECTION, "outage", "closed_at", "endpoint_before"),
        sf.coalesce("endpoint_after", said, sf.lead("endpoint_before").over(connection)).alias("there"),
        sf.coalesce("back_at", sf.when(said.isNotNull(), sf.col("first_line_at")), "last_event_at").alias(
            "arrived_at"
        ),
        sf.when(sf.col("outage") > 1, sf.coalesce("lost_at", "first_line_at")).alias("left_at"),
    )
    steps = known.withColumn("from", sf.coalesce("endpoint_before", sf.lag("there").over(connection)))
    changes = sf.array(
        _change("there", sf.col("arrived_at"), "came"),
        _change("from", sf.col("left_at"), "lost"),
        _change("there", sf.col("closed_at"), "closed"),
    )
    made = steps.select("cluster", sf.inline(changes))
    return made.where("endpoint IS NOT NULL AND cell IS NOT NULL")


def _change(endpoint: str, at: Column, what: str) -> Column:
    return sf.struct(
        sf.col(endpoint).alias("endpoint"),
        sf.floor(sf.unix_micros(at) / CELL).alias("cell"),
        *(sf.lit(int(what == name)).alias(name) for name in ("came", "lost", "closed")),
    )


def _cells(changes: DataFrame) -> DataFrame:
    return changes.groupBy("endpoint", "cell").agg(
        sf.max("cluster").alias("cluster"),
        sf.sum("came").alias("came"),
        sf.sum("lost").alias("lost"),
        (sf.sum("lost") + sf.sum("closed")).alias("gone"),
    )


def _watched(cells: DataFrame) -> DataFrame:
    """Return the cells with losses, with the connections before (``live``) and ``lost_soon``."""
    endpoint = Window.partitionBy("endpoint")
    order = endpoint.orderBy("cell")
    totals = cells.withColumns(
        {
            "came_so_far": sf.sum("came").over(order),
            "gone_so_far": sf.sum("gone").over(order),
            "lost_soon": sf.sum("lost").over(order.rangeBetween(0, _WITHIN - 1)),
        }
    )
    unseen = sf.max(sf.col("gone_so_far") - sf.col("came_so_far")).over(endpoint)
    before = sf.col("came_so_far") - sf.col("gone_so_far") + sf.col("gone")
    live = sf.greatest(unseen, sf.lit(0)) + before
    return totals.withColumn("live", live).where("lost > 0")


def _bursts(watched: DataFrame) -> DataFrame:
    """Return the cells in which a burst begins."""
    heavy = watched.where(2 * sf.col("lost_soon") >= sf.col("live"))
    order = Window.partitionBy("endpoint").orderBy("cell")
    return heavy.withColumn("begins", _begins(order)).where("begins").drop("begins")


def _begins(order: WindowSpec) -> Column:
    before = sf.col("came_so_far") - sf.col("came")
    came = before - sf.lag(before).over(order)  # since the previous heavy cell, that one included
    over = sf.col("cell") - sf.lag("cell").over(order) >= _WITHIN
    again = (over & (came > 0)) | (2 * came >= sf.col("live"))
    return sf.coalesce(again, sf.lit(True))  # the first heavy cell begins a burst
