"""The roll-up: one pass over the columns whose values many lines share; small tables are computed from it.

Rules
-----
* ``roll_up`` has as many rows as there are combinations of names, not lines.
* ``seen_values`` is what expressions over lines are built from: which errors and which endpoints there are.
* Aggregations hold a name as its 64-bit hash: Spark aggregates numbers in a hash table,
  and for text sorts every line first.  ``dictionary`` maps hashes back to names.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.telemetry.schema import Kind

_NAMES = ("cluster", "service", "error_type", "reason", "state")
_ENDPOINT = ("server_address", "server_port")


@dataclass(frozen=True, slots=True)
class SeenValues:
    """The distinct values in the lines that later expressions are built from.

    :param last: time of the last line, in microseconds since the epoch; ``None`` without lines.
    :param errors: of failed attempts, in order.
    :param endpoints: hashes of the endpoints that were tried, in order.
    """

    last: int | None
    errors: tuple[str, ...]
    endpoints: tuple[int, ...]


def only(kind: Kind, column: str | Column) -> Column:
    """The column on lines of this kind, null on others."""
    return sf.when(sf.col("type") == kind.value, sf.col(column) if isinstance(column, str) else column)


def micros(seconds: str | Column) -> Column:
    """Whole microseconds.  Spark's ``round`` writes each number as text and reads it as a decimal."""
    column = sf.col(seconds) if isinstance(seconds, str) else seconds
    return sf.rint(column * 1e6).cast("bigint")


def roll_up(events: DataFrame) -> DataFrame:
    """For each combination: how many lines, their first and last time, the highest cap of a delay."""
    keys = [sf.col(name) for name in ("type", "cluster", "service", "error_type", "state", *_ENDPOINT)]
    generation = only(Kind.CONNECTED, "generation").alias("generation")
    return events.groupBy(*keys, generation, only(Kind.LOST, "reason").alias("reason")).agg(
        sf.count("*").alias("lines"),
        sf.min("time").alias("first_seen"),
        sf.max("time").alias("last_seen"),
        sf.max(only(Kind.BACKOFF, "backoff_max")).alias("backoff_max"),
    )


def seen_values(rolled_up: DataFrame) -> SeenValues:
    """Collect the roll-up's distinct values; this runs the roll-up."""
    row = rolled_up.agg(
        sf.max(sf.unix_micros("last_seen")).alias("last"),
        sf.sort_array(sf.collect_set(only(Kind.ATTEMPT, "error_type"))).alias("errors"),
        sf.sort_array(sf.collect_set(only(Kind.ATTEMPT, endpoint_hash()))).alias("endpoints"),
    ).first()
    assert row is not None
    return SeenValues(row["last"], tuple(row["errors"]), tuple(row["endpoints"]))


def name_hash(name: str | Column) -> Column:
    """The hash of a name; null of null."""
    column = sf.col(name) if isinstance(name, str) else name
    return sf.when(column.isNotNull(), sf.xxhash64(column))


def endpoint_hash() -> Column:
    """The hash of a line's endpoint; null without a host."""
    return sf.when(sf.col("server_address").isNotNull(), sf.xxhash64(*_ENDPOINT))


def dictionary(rolled_up: DataFrame) -> DataFrame:
    """``hash`` and ``name``, of every name and every endpoint (``host:port``)."""
    pairs = [sf.struct(name_hash(name).alias("hash"), sf.col(name).alias("name")) for name in _NAMES]
    endpoint = sf.struct(endpoint_hash().alias("hash"), sf.concat_ws(":", *_ENDPOINT).alias("name"))
    every = rolled_up.select(sf.inline(sf.array(*pairs, endpoint)))
    return every.where("hash IS NOT NULL").groupBy("hash").agg(sf.max("name").alias("name"))


def with_names(rows: DataFrame, dictionary: DataFrame, *names: str) -> DataFrame:
    """``rows`` with names instead of hashes in the columns ``names``.

    :param dictionary: of ``dictionary``.
    """
    others = [name for name in rows.columns if name not in names]
    for name in names:
        its = dictionary.select(sf.col("hash").alias(f"{name}_hash"), sf.col("name").alias(f"{name}_name"))
        rows = rows.join(its, sf.col(name) == sf.col(f"{name}_hash"), "left")
    return rows.select(*others, *(sf.col(f"{name}_name").alias(name) for name in names))
