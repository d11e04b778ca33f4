"""The correct results of an analysis of a generated fleet, computed from its clients' events.

No line is read.  Times are from a correct clock, as seconds since the epoch.  A client whose wall
clock is an hour fast reports its loss at another time, so it is in no storm.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.generate.fleet import HOUR, Fleet, end, fails_to_connect
from haclient.telemetry.schema import Kind

START = 1_780_000_000  # s since the epoch; 2026-05-28
FEWEST = 5  # connections of a storm

_RESULTS = {
    "dies": "silent",
    "gives up": "gave_up",
    "leaves": "closed",
    "restarts": "replaced",
    "searches": "open",
    "never": "open",
}


def episodes(fleet: Fleet, rows: DataFrame) -> DataFrame:
    """Return the correct episodes, one row per episode of each connection.

    Columns: ``client_id``, ``instance``, ``connection``, ``outage``, ``cluster``, ``downtime`` (s, null if
    not back), ``attempts``, ``episode_result``, ``never_connected`` and ``lost_lines`` (missing ones).

    :param rows: from ``fleet.episodes_of``.
    """
    count = sf.size("steps")
    lost = sf.filter(sf.sequence(sf.lit(1), count), lambda n: fleet.is_lost(sf.col("before") + n))
    pairs = [sf.lit(part) for pair in _RESULTS.items() for part in pair]
    return rows.select(
        *("client_id", "instance"),
        sf.lit(1).cast("bigint").alias("connection"),
        sf.col("outage").cast("bigint"),
        sf.when(sf.col("end") != "never", sf.col("cluster_name")).alias("cluster"),
        sf.when(~fails_to_connect(), sf.round(end("last"), 6)).alias("downtime"),
        _attempts().cast("bigint").alias("attempts"),
        sf.coalesce(sf.create_map(*pairs)[sf.col("end")], sf.lit("back")).alias("episode_result"),
        (sf.col("end") == "never").alias("never_connected"),
        sf.size(lost).cast("bigint").alias("lost_lines"),
    )


def storms(rows: DataFrame) -> DataFrame:
    """Return the correct storms: each death of a primary that lost enough connections.

    All of them are lost within 0.2 s, so each such death is one storm of all connected clients.
    Columns: ``cluster``, ``started_at``, ``clients_hit``, ``attempts``, ``gone`` (gave up, open or silent).
    ``ended_at`` is the time when 99 % of the gone and returned clients, rounded up, were back; ``stragglers``
    counts the rest of them.  Both are null if that never happened.

    :param rows: from ``fleet.episodes_of``.
    """
    hit = rows.where((sf.col("outage") > 1) & ~sf.col("busy") & (sf.col("skew") < HOUR))
    back = sf.when(~fails_to_connect(), sf.col("began") + end("last"))
    made = hit.groupBy("cluster_name", _death().alias("death")).agg(
        sf.min("began").alias("started"),
        sf.count("*").alias("clients_hit"),
        sf.sum(_attempts()).alias("attempts"),
        sf.count_if(sf.col("end").isin("dies", "gives up", "searches")).alias("gone"),
        sf.sort_array(sf.collect_list(back)).alias("returns"),
    )
    judged = sf.size("returns") + sf.col("gone")
    rank = sf.ceil(judged * 99 / 100).cast("int")
    ended = _wall_time(sf.get("returns", rank - 1))
    return made.where(sf.col("clients_hit") >= FEWEST).select(
        sf.col("cluster_name").alias("cluster"),
        _wall_time(sf.col("started")).alias("started_at"),
        *("clients_hit", "attempts", "gone"),
        ended.alias("ended_at"),
        sf.when(ended.isNotNull(), judged - rank).cast("bigint").alias("stragglers"),
    )


def flapping(rows: DataFrame) -> DataFrame:
    """Return the correct flapping score of each endpoint: the most deaths in any hour.

    :param rows: from ``fleet.episodes_of``.
    """
    lost = rows.where((sf.col("outage") > 1) & (sf.col("skew") < HOUR))
    member = sf.when(sf.pmod(_death(), sf.lit(2)) == 0, "-b:5672").otherwise("-a:5672")
    bursts = lost.groupBy(sf.concat("cluster_name", member).alias("endpoint"), _death()).agg(
        sf.min("began").alias("began")
    )
    at = sf.floor(sf.col("began") * 1000)
    hour = Window.partitionBy("endpoint").orderBy(at).rangeBetween(0, int(HOUR * 1000))
    scored = bursts.withColumn("score", sf.count("*").over(hour))
    return scored.groupBy("endpoint").agg(sf.max("score").alias("score"))


def clocks(rows: DataFrame) -> DataFrame:
    """Return the error of each process's wall clock, in seconds, by ``source``.

    Columns: ``wrong_first`` and ``wrong_last``; they differ if the clock was set.

    :param rows: from ``fleet.episodes_of``.
    """
    was_set = sf.col("outage") >= sf.col("step_at")
    wrong = sf.col("skew") + sf.when(was_set, sf.col("step")).otherwise(0.0)
    return rows.groupBy(sf.concat(sf.lit("/haclient/"), "instance").alias("source")).agg(
        sf.min_by(wrong, "outage").alias("wrong_first"), sf.max_by(wrong, "outage").alias("wrong_last")
    )


def _attempts() -> Column:
    """Count the attempts that were written; the last line of a client that dies is cut short."""
    tries = sf.size(sf.filter("steps", lambda step: step["kind"] == Kind.ATTEMPT.value))
    cut = (sf.col("end") == "dies") & (sf.element_at("steps", -1)["kind"] == Kind.ATTEMPT.value)
    return tries - sf.coalesce(cut, sf.lit(False)).cast("int")


def _death() -> Column:
    return sf.col("outage") + sf.col("earlier")


def _wall_time(seconds: Column) -> Column:
    return sf.round(START + seconds, 6)
