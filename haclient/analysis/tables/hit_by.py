"""The table ``hit_by``: outages by each attribute of the fleet.

Rules
-----
1. ``schema.RESOURCE`` lists the attributes of a line.  ``resources`` has each combination of them
   once, under a number that ``episodes`` has too.  Service and instance are not among them: ``episodes``
   has both columns, and the instance differs in each process.
2. The table has only attributes that some connection has.
3. Each attribute has a row for each of the ``VALUES`` values with the most outages, and then the most
   connections.  All other values share one row, and connections without the attribute have one.
4. A connection is hit if it had an outage.  Percentiles are computed as in the summary: an unfinished outage
   counts as longer than its time so far, and a percentile at its rank is a bound.
5. A connection has ended if it connected, never had an outage and wrote no line lately: its application
   closed it, or its process ended.  In shares, a replaced process and its successor count as one.

Counts are made for each combination first and then spread over the attributes: a few numbers per
combination, instead of all of its outages.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.io.session import single
from haclient.analysis.percentiles import percentiles
from haclient.analysis.thresholds import BOUNDS
from haclient.telemetry.schema import RESOURCE

VALUES = 100
RESULTS = ("back", "gave_up", "closed", "replaced", "open", "silent")
PERCENTILES = {"p50_downtime": 0.5, "p90_downtime": 0.9, "p99_downtime": 0.99, "max_downtime": 1.0}

COLUMNS = tuple(key.column for key in RESOURCE)
_OWN = ("service", "instance")  # columns of ``episodes``
_COMBINED = tuple(column for column in COLUMNS if column not in _OWN)
_CONNECTION = ("client_id", "instance", "process", "connection")
_COUNTS = ("connections", "connections_hit", "connections_ended", "outages", *RESULTS, "never_connected")
_GROUP = ("number", "kind", "value")
_NAMED, _LACKING, _OTHERS = range(3)  # kinds of rows


def resource_number() -> Column:
    """Return the number of a line's combination; null if it has no attribute."""
    return sf.when(sf.coalesce(*_COMBINED).isNotNull(), sf.xxhash64(*_COMBINED))


def resources(events: DataFrame) -> DataFrame:
    """Return the combinations of attributes in the lines, each with its number (``resource``)."""
    known = events.where(sf.coalesce(*_COMBINED).isNotNull())
    return known.select(*_COMBINED).distinct().select(resource_number().alias("resource"), *_COMBINED)


def hit_by(rows: DataFrame, known: DataFrame, *, heard_since: int | None = None) -> DataFrame:
    """Return the table ``hit_by``: outages by attribute; docs/analysis.md has its columns.

    :param rows: from ``episodes.classified``.
    :param known: from ``resources``, preferably stored.
    :param heard_since: microseconds since the epoch; a connection without a later line may have ended.
        Without it, no connection has ended.
    """
    combinations = _with_attributes(_combinations(rows, heard_since), known).localCheckpoint()
    present, outages = _present(combinations)
    sums = [sf.sum(name).alias(name) for name in _COUNTS]
    spread = _spread(combinations, present, *_COUNTS)
    counted = _ranked(spread.groupBy("number", "value").agg(*sums)).localCheckpoint()
    # a single value beyond the limit keeps its own row
    others = (sf.col("rank") > VALUES) & (sf.col("ranks") > VALUES + 1)
    kind = sf.when(sf.col("value").isNull(), _LACKING).when(others, _OTHERS).otherwise(_NAMED)
    kinds = counted.withColumn("kind", kind)
    shown = kinds.where(sf.col("kind") == _NAMED).select("number", "value")
    named = sf.when(sf.col("kind") == _NAMED, sf.col("value")).alias("value")
    table = kinds.groupBy("number", "kind", named).agg(sf.count("value").alias("values"), *sums)
    times = _placed(_spread(_with_attributes(_times(rows), known), present, "seconds", "lasting"), shown)
    return _published(_joined(table, _percentiles(times, outages)))


def _combinations(rows: DataFrame, heard_since: int | None) -> DataFrame:
    """Count by combination, service and instance."""
    outage = ~sf.col("first_connect")
    since = sf.timestamp_micros(sf.lit(heard_since).cast("bigint"))
    ended = (sf.count_if(outage | sf.col("never_connected")) == 0) & (sf.max("last_event_at") < since)
    ends = [sf.count_if(outage & (sf.col("episode_result") == name)).alias(name) for name in RESULTS]
    connections = rows.groupBy("resource", "service", *_CONNECTION).agg(
        sf.when(ended, 1).otherwise(0).alias("connections_ended"),
        sf.count_if(outage).alias("outages"),
        *ends,
        sf.count_if("never_connected").alias("never_connected"),
    )
    added = [sf.sum(name).alias(name) for name in _COUNTS[2:]]
    return connections.groupBy("resource", *_OWN).agg(
        sf.count("*").alias("connections"),
        sf.count_if(sf.col("outages") > 0).alias("connections_hit"),
        *added,
    )


def _with_attributes(rows: DataFrame, known: DataFrame) -> DataFrame:
    its = known.withColumnRenamed("resource", "its_resource")
    return rows.join(its, sf.col("resource") == sf.col("its_resource"), "left").drop("its_resource")


def _present(combinations: DataFrame) -> tuple[list[str], int]:
    """Return the attributes that occur, and the number of outages."""
    there = [sf.max(sf.col(name).isNotNull()).alias(name) for name in COLUMNS]
    row = combinations.agg(*there, sf.coalesce(sf.sum("outages"), sf.lit(0)).alias("outages")).first()
    assert row is not None
    return [name for name in COLUMNS if row[name]], row["outages"]


def _spread(rows: DataFrame, present: list[str], *columns: str) -> DataFrame:
    """Return one row per attribute: its ``number`` among ``COLUMNS`` and its ``value``."""
    pairs = [
        sf.struct(sf.lit(COLUMNS.index(name)).alias("number"), sf.col(name).alias("value"))
        for name in present
    ]
    nothing = sf.array().cast("array<struct<number: int, value: string>>")
    return rows.select(*columns, sf.inline(sf.array(*pairs) if pairs else nothing))


def _ranked(counted: DataFrame) -> DataFrame:
    """Add the ``rank`` of each value, the worst first, and ``ranks``, the attribute's number of values."""
    worst = (sf.desc("outages"), sf.desc("connections"), sf.asc("value"))
    values = counted.where("value IS NOT NULL").groupBy("number").agg(sf.count("*").alias("ranks"))
    rank = sf.row_number().over(Window.partitionBy("number").orderBy(*worst))
    known = counted.where("value IS NOT NULL").withColumn("rank", rank)
    lacking = counted.where("value IS NULL").withColumn("rank", sf.lit(0))
    return single(known.unionByName(lacking)).join(sf.broadcast(values), "number")


def _times(rows: DataFrame) -> DataFrame:
    """Return the time of each outage, complete or so far (``lasting``)."""
    known = sf.col("downtime").isNotNull()
    outages = rows.where(~sf.col("first_connect") & (known | sf.col("longer_than").isNotNull()))
    seconds = sf.coalesce("downtime", "longer_than").alias("seconds")
    return outages.select("resource", *_OWN, seconds, (~known).cast("int").alias("lasting"))


def _placed(spread: DataFrame, shown: DataFrame) -> DataFrame:
    """Map the rows of ``_spread`` to the rows of the table."""
    its = shown.select(sf.col("number").alias("its_number"), sf.col("value").alias("its_value"))
    same = (sf.col("number") == sf.col("its_number")) & (sf.col("value") == sf.col("its_value"))
    joined = spread.join(sf.broadcast(its), same, "left")
    kind = sf.when(sf.col("value").isNull(), _LACKING).when(sf.col("its_value").isNull(), _OTHERS)
    return joined.select(
        "number",
        kind.otherwise(_NAMED).alias("kind"),
        sf.col("its_value").alias("value"),
        "seconds",
        "lasting",
    )


def _percentiles(times: DataFrame, most: int) -> DataFrame:
    """Return each group's percentiles, and whether they are bounds; a group has ``most`` outages at most."""
    ranks = percentiles("seconds", list(PERCENTILES.values()), most)
    found = times.groupBy(*_GROUP).agg(ranks.alias("found"), sf.max("lasting").alias("any"))
    found = found.select(
        *_GROUP, "any", *(sf.col("found")[at].alias(name) for at, name in enumerate(PERCENTILES))
    ).localCheckpoint()
    judged = _joined(times, found.where("any = 1"), how="inner")
    bounds = judged.groupBy(*_GROUP).agg(*(_is_bound(name) for name in PERCENTILES))
    return _joined(found.drop("any"), bounds)


def _is_bound(name: str) -> Column:
    """Test if an outage at the percentile, or next to it, has not ended."""
    seconds, lasting = sf.col("seconds"), sf.col("lasting")
    below = sf.max(sf.when(seconds <= sf.col(name), sf.struct(seconds, lasting)))
    above = sf.min(sf.when(seconds >= sf.col(name), sf.struct(seconds, 1 - lasting)))
    return ((below["lasting"] == 1) | (above["col2"] == 0)).alias(BOUNDS[name])


def _joined(rows: DataFrame, others: DataFrame, *, how: str = "left") -> DataFrame:
    """Join the columns of ``others`` for the same group."""
    its = others.select(
        *(sf.col(name).alias(f"its_{name}") for name in _GROUP),
        *(name for name in others.columns if name not in _GROUP),
    )
    same = [sf.col(name).eqNullSafe(sf.col(f"its_{name}")) for name in _GROUP]
    return rows.join(sf.broadcast(its), same, how).drop(*(f"its_{name}" for name in _GROUP))


def _published(found: DataFrame) -> DataFrame:
    names = sf.array(*(sf.lit(key.name) for key in RESOURCE))
    measured = [
        column
        for name in PERCENTILES
        for column in (sf.col(name), sf.coalesce(BOUNDS[name], sf.lit(False)).alias(BOUNDS[name]))
    ]
    worst = (sf.asc("kind"), sf.desc("outages"), sf.desc("connections"), sf.asc("value"))
    return found.orderBy("number", *worst).select(
        sf.get(names, sf.col("number")).alias("attribute"),
        "value",
        "values",
        *_COUNTS[:2],
        (sf.col("connections_hit") / sf.col("connections")).alias("hit_share"),
        *_COUNTS[2:],
        *measured,
    )
