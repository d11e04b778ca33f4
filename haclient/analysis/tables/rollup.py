"""One pass over the few columns whose values many lines share; what is small is made of its result.

Rules
-----
* ``survey`` has as many rows as there are combinations of names, not lines.
* ``known`` is what expressions over lines are built from: which errors and which endpoints there are.
* A name inside an aggregation is its ``code``, a 64-bit hash: Spark aggregates numbers in a hash table,
  and for text sorts every line first.  ``words`` has the names of the codes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.telemetry.schema import Kind

_NAMES = ("cluster", "service", "error_type", "reason", "state")
_PLACE = ("server_address", "server_port")


@dataclass(frozen=True, slots=True)
class Known:
    """What occurs in the lines.

    :param last: time of the last line, in microseconds since the epoch; ``None`` without lines.
    :param errors: of failed attempts, in order.
    :param places: codes of the endpoints that were tried, in order.
    """

    last: int | None
    errors: tuple[str, ...]
    places: tuple[int, ...]


def only(kind: Kind, column: str | Column) -> Column:
    """The column on lines of this kind, null on others."""
    return sf.when(sf.col("type") == kind.value, sf.col(column) if isinstance(column, str) else column)


def micros(seconds: str | Column) -> Column:
    """Whole microseconds.  Spark's ``round`` writes each number as text and reads it as a decimal."""
    column = sf.col(seconds) if isinstance(seconds, str) else seconds
    return sf.rint(column * 1e6).cast("bigint")


def survey(events: DataFrame) -> DataFrame:
    """For each combination: how many lines, their first and last time, the highest cap of a delay."""
    keys = [sf.col(name) for name in ("type", "cluster", "service", "error_type", "state", *_PLACE)]
    generation = only(Kind.CONNECTED, "generation").alias("generation")
    return events.groupBy(*keys, generation, only(Kind.LOST, "reason").alias("reason")).agg(
        sf.count("*").alias("lines"),
        sf.min("time").alias("first_seen"),
        sf.max("time").alias("last_seen"),
        sf.max(only(Kind.BACKOFF, "backoff_max")).alias("backoff_max"),
    )


def known(surveyed: DataFrame) -> Known:
    """Runs the survey."""
    row = surveyed.agg(
        sf.max(sf.unix_micros("last_seen")).alias("last"),
        sf.sort_array(sf.collect_set(only(Kind.ATTEMPT, "error_type"))).alias("errors"),
        sf.sort_array(sf.collect_set(only(Kind.ATTEMPT, place()))).alias("places"),
    ).first()
    assert row is not None
    return Known(row["last"], tuple(row["errors"]), tuple(row["places"]))


def code(name: str | Column) -> Column:
    """The code of a name; null of null."""
    column = sf.col(name) if isinstance(name, str) else name
    return sf.when(column.isNotNull(), sf.xxhash64(column))


def place() -> Column:
    """The code of a line's endpoint; null without a host."""
    return sf.when(sf.col("server_address").isNotNull(), sf.xxhash64(*_PLACE))


def words(surveyed: DataFrame) -> DataFrame:
    """``code`` and ``word``, of every name and every endpoint (``host:port``)."""
    pairs = [sf.struct(code(name).alias("code"), sf.col(name).alias("word")) for name in _NAMES]
    endpoint = sf.struct(place().alias("code"), sf.concat_ws(":", *_PLACE).alias("word"))
    every = surveyed.select(sf.inline(sf.array(*pairs, endpoint)))
    return every.where("code IS NOT NULL").groupBy("code").agg(sf.max("word").alias("word"))


def spelled(rows: DataFrame, dictionary: DataFrame, *names: str) -> DataFrame:
    """``rows`` with words in place of the codes in the columns ``names``.

    :param dictionary: of ``words``.
    """
    others = [name for name in rows.columns if name not in names]
    for name in names:
        its = dictionary.select(sf.col("code").alias(f"{name}_code"), sf.col("word").alias(f"{name}_word"))
        rows = rows.join(its, sf.col(name) == sf.col(f"{name}_code"), "left")
    return rows.select(*others, *(sf.col(f"{name}_word").alias(name) for name in names))
