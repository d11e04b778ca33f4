"""Summarise the whole period: connections, outages and their causes, in a few rows from ``episodes``.

Rules
-----
* A connection is down (``away``) if its outage has no known end: open, silent, given up, never connected.
* An outage ends when its connection is back, closed or replaced; for the last two, at the last line.
* A connection is observed from its first line to its last, or to the end of the period while it is down.
* The number of rows of every frame here is independent of the fleet's size.
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.io.session import single
from haclient.telemetry.schema import NO_FAILURES, Kind

COLUMNS = 160
"""Columns of the timeline: two pixels each on a phone."""

WIDTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds of a column; a longer period has columns of whole days."""

BY = ("service", "cluster")
"""The columns for grouping connections; ``hit_by`` has the other attributes."""

GROUPS, REASONS, CHANGES = 20, 40, 40
"""Most rows of each kind."""

SETTLING = 120.0
"""Seconds: two intervals of the ``alive`` lines."""

_VERSIONS = {"service.version": "service_version", "haclient.version": "client_version"}

_LASTING = ("open", "silent", "gave_up")


def outages(episodes: DataFrame) -> DataFrame:
    """Return losses, and first connects that never succeeded, with ``ended_at`` (null: down) and ``away``."""
    lasting = sf.col("episode_result").isin(*_LASTING) | sf.col("never_connected")
    ended = sf.when(~lasting, sf.coalesce("back_at", "last_event_at"))
    return episodes.where(~sf.col("first_connect") | sf.col("never_connected")).select(
        "*", ended.alias("ended_at"), lasting.alias("away")
    )


def groups(episodes: DataFrame) -> DataFrame:
    """Return a row for the fleet, and for the services and clusters with the most lost time.

    Columns: ``grouped`` (``everyone`` or one of ``BY``), ``service``, ``cluster``, ``connections``,
    ``clients_hit``, ``away`` (down), ``ended``, ``first_at``, ``last_at``.  Ended connections were never hit,
    and have no line in the last ``SETTLING`` seconds.  ``seconds`` is the observed time of all connections
    together, and ``lost`` the part of it without a connection.
    """
    outage = ~sf.col("first_connect") | sf.col("never_connected")
    lasting = outage & (sf.col("episode_result").isin(*_LASTING) | sf.col("never_connected"))
    asked = _seconds("began_at") + sf.coalesce("longer_than", sf.lit(0.0))
    connections = episodes.groupBy("client_id", "instance", "connection").agg(
        *(sf.max(name).alias(name) for name in BY),
        sf.min("began_at").alias("first_at"),
        sf.max(sf.greatest(_seconds("last_event_at"), asked)).alias("until"),
        sf.max(outage).alias("hit"),
        sf.max(lasting).alias("is_away"),
        sf.sum(sf.when(outage, sf.coalesce("downtime", "longer_than"))).alias("down"),
    )
    end = episodes.agg(sf.max(sf.greatest(_seconds("last_event_at"), asked)).alias("end"))
    connections = connections.crossJoin(sf.broadcast(end))
    ended = ~sf.col("hit") & (sf.col("until") < sf.col("end") - SETTLING)
    observed = sf.col("until") - _seconds("first_at")
    down = sf.coalesce("down", sf.lit(0.0))  # sf.least would ignore a null
    grouped = sf.when(sf.grouping("service") == 0, "service").when(sf.grouping("cluster") == 0, "cluster")
    rows = connections.groupingSets([[], *([name] for name in BY)], *BY).agg(
        grouped.otherwise("everyone").alias("grouped"),
        sf.count("*").alias("connections"),
        sf.count_if("hit").alias("clients_hit"),
        sf.count_if("is_away").alias("away"),
        sf.count_if(ended).alias("ended"),
        sf.min("first_at").alias("first_at"),
        sf.timestamp_micros((sf.max("until") * 1e6).cast("bigint")).alias("last_at"),
        sf.coalesce(sf.sum(observed), sf.lit(0.0)).alias("seconds"),
        sf.coalesce(sf.sum(sf.least(down, observed)), sf.lit(0.0)).alias("lost"),
    )
    rank = sf.row_number().over(Window.partitionBy("grouped").orderBy(sf.desc("lost"), *BY))
    ranked = rows.withColumn("rank", rank).where(sf.col("rank") <= GROUPS)
    return ranked.drop("rank").orderBy("grouped", sf.desc("lost"), *BY)


def deploys(episodes: DataFrame, resources: DataFrame) -> DataFrame:
    """Return the newest deploys of versions: ``at``, ``service``, ``attribute``, ``value``, ``before``.

    A version seen within ``SETTLING`` seconds of the service's first line is not new: every running process
    writes a line in that time.

    :param resources: the table ``resources``.
    """
    seen = episodes.groupBy("resource", "service").agg(sf.min("began_at").alias("at"))
    pairs = [
        sf.struct(sf.lit(name).alias("attribute"), sf.col(column).alias("value"))
        for name, column in _VERSIONS.items()
    ]
    versions = seen.join(resources.select("resource", *_VERSIONS.values()), "resource")
    first = versions.select("service", "at", sf.inline(sf.array(*pairs))).where("value IS NOT NULL")
    first = first.groupBy("service", "attribute", "value").agg(sf.min("at").alias("at"))
    service = Window.partitionBy("service", "attribute").orderBy("at", "value")
    rows = first.withColumns({"before": sf.lag("value").over(service), "first": sf.min("at").over(service)})
    later = _seconds("at") > _seconds("first") + SETTLING
    return rows.where(later).drop("first").orderBy(sf.desc("at"), "service", "attribute").limit(CHANGES)


def width(first: float, last: float) -> int:
    """Return a column's width in seconds, for at most ``COLUMNS`` from ``first`` to ``last`` (epoch)."""
    needed = max(last - first, 1.0) / (COLUMNS - 1)  # columns begin at round times
    day = WIDTHS[-1]
    return next((each for each in WIDTHS if each >= needed), math.ceil(needed / day) * day)


def columns(episodes: DataFrame, storms: DataFrame, seconds: int) -> DataFrame:
    """Count outages by column of the timeline: ``at`` (epoch), ``lost``, ``in_storm``, ``never``, ``ended``.

    ``lost`` includes the other two: losses in a storm, and first connects that never succeeded.

    :param seconds: width of a column; columns begin at its multiples.
    """
    found = outages(episodes).select("cluster", "began_at", "ended_at", "first_connect")
    extents = storms.select(
        sf.col("cluster").alias("in_cluster"),
        sf.col("started_at").alias("from"),
        sf.col("ended_at").alias("to"),
    )
    inside = sf.col("cluster").eqNullSafe(sf.col("in_cluster"))
    inside &= sf.col("began_at").between(sf.col("from"), sf.coalesce("to", "began_at"))
    stormy = found.join(sf.broadcast(extents), inside, "left_semi")
    one, none = sf.lit(1), sf.lit(0)
    never = sf.col("first_connect").cast("int")
    every = (
        found.select(sf.col("began_at").alias("at"), one.alias("lost"), never.alias("never"))
        .select("*", none.alias("in_storm"), none.alias("ended"))
        .unionAll(stormy.select("began_at", none, none, one, none))
        .unionAll(found.where("ended_at IS NOT NULL").select("ended_at", none, none, none, one))
    )
    at = (sf.floor(_seconds("at") / seconds) * seconds).cast("bigint")
    sums = (sf.sum(name).alias(name) for name in ("lost", "in_storm", "never", "ended"))
    return single(every).groupBy(at.alias("at")).agg(*sums).orderBy("at")


def primaries(events: DataFrame) -> DataFrame:
    """Return the few lines in which members announce that they are primary."""
    announced = (sf.col("type") == Kind.MEMBER_ROLE.value) & (sf.col("role") == "primary")
    return events.where(announced).select("type", "role", "cluster", "generation", "t", "member")


def promotions(episodes: DataFrame, primaries: DataFrame) -> DataFrame:
    """Return the times at which clients first came back under a higher generation: the newest ``CHANGES``.

    Columns: ``at``, ``cluster``, ``generation``, ``endpoint``.  ``announced_at`` and ``announced_by`` are
    from the member's own announcement, if members write telemetry.

    :param primaries: from the function ``primaries``.
    """
    higher = episodes.where(sf.col("generation_after") > sf.col("generation_before"))
    first = sf.min(sf.struct("back_at", "endpoint_after")).alias("first")
    rows = higher.groupBy("cluster", sf.col("generation_after").alias("generation")).agg(first)
    known = (
        rows.select(sf.col("first.back_at").alias("at"), "cluster", "generation", "first.endpoint_after")
        .withColumnRenamed("endpoint_after", "endpoint")
        .orderBy(sf.desc("at"), "cluster")
        .limit(CHANGES)
    )
    own = primaries.groupBy(sf.col("cluster").alias("its"), sf.col("generation").alias("number")).agg(
        sf.min(sf.struct("t", "member")).alias("own")
    )
    same = sf.col("cluster").eqNullSafe(sf.col("its")) & (sf.col("generation") == sf.col("number"))
    named = (sf.col("own.t").alias("announced_at"), sf.col("own.member").alias("announced_by"))
    return known.join(own, same, "left").select(*known.columns, *named).orderBy(sf.desc("at"), "cluster")


def unrecovered(episodes: DataFrame) -> DataFrame:
    """Return groups of connections that are down, the largest first.

    Columns: ``service``, ``cluster``, ``endpoint`` (that was lost), ``result``, ``error`` and
    ``connections``.  ``error`` is the most frequent error of the attempts.  ``since`` and ``latest`` are the
    first and the last loss in the group.
    """
    counts = sf.transform(sf.map_entries("reasons"), _by_weight)
    result = sf.when(sf.col("never_connected"), "never_connected").otherwise(sf.col("episode_result"))
    rows = outages(episodes).where("away")
    keys: list[Column | str] = [
        "service",
        "cluster",
        sf.col("endpoint_before").alias("endpoint"),
        result.alias("result"),
    ]
    return (
        rows.groupBy([*keys, sf.array_max(counts)["error"].alias("error")])
        .agg(
            sf.count("*").alias("connections"),
            sf.min("began_at").alias("since"),
            sf.max("began_at").alias("latest"),
        )
        .orderBy(sf.desc("connections"), "since", "service", "endpoint")
        .limit(GROUPS)
    )


def _by_weight(entry: Column) -> Column:
    """Return the sort key of an error: failures before mere ends of attempts, then by frequency."""
    failure = ~entry["key"].isin(*NO_FAILURES)
    return sf.struct(failure.alias("failure"), entry["value"].alias("attempts"), entry["key"].alias("error"))


def lost_reasons(episodes: DataFrame) -> DataFrame:
    """Return the most frequent reasons for losses: ``endpoint``, ``kind``, ``reason``, ``outages``."""
    lost = episodes.where(~sf.col("first_connect"))
    return (
        lost.groupBy(
            sf.col("endpoint_before").alias("endpoint"),
            sf.col("lost_kind").alias("kind"),
            sf.col("lost_reason").alias("reason"),
        )
        .agg(sf.count("*").alias("outages"))
        .orderBy(sf.desc("outages"), "endpoint", "kind", "reason")
        .limit(REASONS)
    )


def _seconds(column: str) -> Column:
    return sf.unix_micros(column) / 1e6
