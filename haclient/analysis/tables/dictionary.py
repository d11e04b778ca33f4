"""Names as hashes in aggregations, and the dictionary from hashes to names.

Spark aggregates numbers in a hash table, but sorts all lines for text.  So aggregations over lines
hold a name as its 64-bit hash.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

_NAMES = ("cluster", "service", "error_type", "reason", "close_kind", "state")
_ENDPOINT = ("server_address", "server_port")


def name_hash(name: str | Column) -> Column:
    """Return the hash of a name; null for null."""
    column = sf.col(name) if isinstance(name, str) else name
    return sf.when(column.isNotNull(), sf.xxhash64(column))


def endpoint_hash() -> Column:
    """Return the hash of a line's endpoint; null without a host."""
    return sf.when(sf.col("server_address").isNotNull(), sf.xxhash64(*_ENDPOINT))


def dictionary(rolled_up: DataFrame) -> DataFrame:
    """Build the dictionary: ``hash`` and ``name`` of every name and every endpoint (``host:port``).

    :param rolled_up: from ``rollup.roll_up``.
    """
    pairs = [sf.struct(name_hash(name).alias("hash"), sf.col(name).alias("name")) for name in _NAMES]
    endpoint = sf.struct(endpoint_hash().alias("hash"), sf.concat_ws(":", *_ENDPOINT).alias("name"))
    every = rolled_up.select(sf.inline(sf.array(*pairs, endpoint)))
    return every.where("hash IS NOT NULL").groupBy("hash").agg(sf.max("name").alias("name"))


def with_names(rows: DataFrame, dictionary: DataFrame, *names: str) -> DataFrame:
    """Replace the hashes in the columns ``names`` by names.

    :param dictionary: from ``dictionary``.
    """
    others = [name for name in rows.columns if name not in names]
    for name in names:
        its = dictionary.select(sf.col("hash").alias(f"{name}_hash"), sf.col("name").alias(f"{name}_name"))
        rows = rows.join(its, sf.col(name) == sf.col(f"{name}_hash"), "left")
    return rows.select(*others, *(sf.col(f"{name}_name").alias(name) for name in names))
