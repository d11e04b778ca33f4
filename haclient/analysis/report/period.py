"""The period as a whole: who was connected and away, when, and why; a few rows of the table of episodes.

Rules
-----
* Away are those whose outage nobody has seen the end of: open, silent, given up, and never connected.
* An outage ends when its connection is back, closed or replaced; of the last two the last line says when.
* A connection is observed from its first line to its last, or to the question where it is away.
* Every frame here has a number of rows that does not depend on the fleet's size.
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
"""What connections are grouped by here; for the other attributes there is ``hit_by``."""

GROUPS, REASONS, CHANGES = 20, 40, 40
"""Rows at most."""

SETTLING = 120.0
"""Seconds: two intervals of the ``alive`` lines."""

_VERSIONS = {"service.version": "service_version", "haclient.version": "client_version"}

_LASTING = ("open", "silent", "gave_up")


def outages(episodes: DataFrame) -> DataFrame:
    """Losses, and first connects that never succeeded; with ``ended_at`` (null: away) and ``away``."""
    lasting = sf.col("episode_result").isin(*_LASTING) | sf.col("never_connected")
    ended = sf.when(~lasting, sf.coalesce("back_at", "last_event_at"))
    return episodes.where(~sf.col("first_connect") | sf.col("never_connected")).select(
        "*", ended.alias("ended_at"), lasting.alias("away")
    )


def groups(episodes: DataFrame) -> DataFrame:
    """One row for the fleet, and one for each service and cluster; of those with the most lost time.

    Columns: ``grouped`` (``everyone`` or one of ``BY``), ``service``, ``cluster``, ``connections``,
    ``clients_hit``, ``away``, ``ended`` (never hit, and not heard in the last ``SETTLING`` seconds),
    ``first_at``, ``last_at``, ``seconds`` that they were observed in sum, and of them ``lost``.
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
    down = sf.coalesce("down", sf.lit(0.0))  # the least of nothing and something is something
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
    """Versions that began to run: ``at``, ``service``, ``attribute``, ``value``, ``before``; the newest.

    What a service runs within ``SETTLING`` seconds of its first line ran before: who runs has a line by then.

    :param resources: the table.
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
    """Seconds of a column, so that there are at most ``COLUMNS`` from ``first`` to ``last`` (epoch)."""
    needed = max(last - first, 1.0) / (COLUMNS - 1)  # columns begin at round times
    day = WIDTHS[-1]
    return next((each for each in WIDTHS if each >= needed), math.ceil(needed / day) * day)


def columns(episodes: DataFrame, storms: DataFrame, seconds: int) -> DataFrame:
    """The timeline: ``at`` (epoch), ``lost``, of those ``in_storm`` and ``never`` connected, and ``ended``.

    :param seconds: of a column; columns begin at its multiples.
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
    """The few lines in which members announce that they are primary."""
    announced = (sf.col("type") == Kind.MEMBER_ROLE.value) & (sf.col("role") == "primary")
    return events.where(announced).select("type", "role", "cluster", "generation", "t", "member")


def promotions(episodes: DataFrame, primaries: DataFrame) -> DataFrame:
    """When clients first came back under a generation higher than before: the newest ``CHANGES``.

    Columns: ``at``, ``cluster``, ``generation``, ``endpoint``, and ``announced_at`` and ``announced_by``:
    when a member announced it, where members write telemetry.

    :param primaries: of the function of that name.
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
    """Who is away, grouped, the largest groups first.

    Columns: ``service``, ``cluster``, ``endpoint`` (that was lost), ``result``, ``error`` (the most frequent
    one of its attempts), ``connections``, ``since`` and ``latest`` (the first and the last loss of them).
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
    """What orders the errors of an episode: failures before mere ends of attempts, then the most frequent."""
    failure = ~entry["key"].isin(*NO_FAILURES)
    return sf.struct(failure.alias("failure"), entry["value"].alias("attempts"), entry["key"].alias("error"))


def lost_reasons(episodes: DataFrame) -> DataFrame:
    """Why connections were lost: ``endpoint``, ``kind``, ``reason``, ``outages``; the most frequent ones."""
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
