"""The roll-up: lines grouped by their names in one pass; small tables are computed from it.

Rules
-----
* ``roll_up`` has one row per combination of names, not per line.
* ``seen_values`` returns the distinct errors and endpoints, from which expressions over lines are built.
* Small tables are materialized.  Spark processes the whole plan of a frame at each added step, and a plan
  that uses another one several times contains it as often; a checkpoint has no plan.  One partition is
  grouped, joined and sorted in place; otherwise each of these steps is a shuffle.  A table that turns out to
  be large keeps its partitions: no task sorts more than ``FEW`` rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf

from haclient.analysis.io.session import computed_once, is_single
from haclient.analysis.tables.dictionary import endpoint_hash
from haclient.telemetry.schema import Kind

FEW = 50_000
"""Most rows for one task."""


@dataclass(frozen=True, slots=True)
class SeenValues:
    """The distinct values in the lines from which later expressions are built.

    :param errors: errors of failed attempts, sorted.
    :param endpoints: hashes of the endpoints that were tried, sorted.
    """

    errors: tuple[str, ...]
    endpoints: tuple[int, ...]


def only(kind: Kind, column: str | Column) -> Column:
    """Return the column on lines of this kind, null on others."""
    return sf.when(sf.col("type") == kind.value, sf.col(column) if isinstance(column, str) else column)


def micros(seconds: str | Column) -> Column:
    """Convert to the nearest whole microseconds; null if the number is too large.

    Spark's ``round`` writes each number as text and reads it as a decimal; its ``cast`` fails the whole job
    for one number that is too large.
    """
    column = sf.col(seconds) if isinstance(seconds, str) else seconds
    return sf.rint(column * 1e6).try_cast("bigint")


def checkpoint(frame: DataFrame, **aggregates: Column) -> tuple[DataFrame, Mapping[str, int]]:
    """Checkpoint ``frame`` and aggregate its rows, in one query unless Spark is remote."""
    named = [aggregate.alias(name) for name, aggregate in aggregates.items()]
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        checkpointed = frame.localCheckpoint()
        row = checkpointed.agg(*named).first()
        assert row is not None
        return checkpointed, row.asDict()
    seen = Observation()
    checkpointed = frame.observe(seen, *named).localCheckpoint()
    return checkpointed, seen.get


def materialize(frame: DataFrame) -> DataFrame:
    """Checkpoint ``frame`` for repeated reading; in one partition if it is small."""
    if is_single(frame.sparkSession):
        return computed_once(frame)
    checkpointed, found = checkpoint(frame, rows=sf.count("*"))
    return checkpointed.coalesce(1) if found["rows"] <= FEW else checkpointed


def roll_up(events: DataFrame) -> DataFrame:
    """Group lines by their combination of names; return their number, first and last time, backoff facts.

    The names are the type, cluster, service, error, state and endpoint of a line.  Also the generation of
    a connect, the reason and close kind of a loss, and the strategy of a backoff.  The backoff facts are the
    highest ``backoff_max`` and the number of ``retry_after``.
    """
    keys = [
        sf.col(name)
        for name in ("type", "cluster", "service", "error_type", "state", "server_address", "server_port")
    ]
    generation = only(Kind.CONNECTED, "generation").alias("generation")
    keys += [generation, *(only(Kind.LOST, name).alias(name) for name in ("reason", "close_kind"))]
    keys += [only(Kind.BACKOFF, "backoff_strategy").alias("strategy")]
    return events.groupBy(*keys).agg(
        sf.count("*").alias("lines"),
        sf.min("t").alias("first_seen"),
        sf.max("t").alias("last_seen"),
        sf.max(only(Kind.BACKOFF, "backoff_max")).alias("backoff_max"),
        sf.count(only(Kind.BACKOFF, "retry_after")).alias("retry_afters"),
    )


def seen_values(rolled_up: DataFrame) -> SeenValues:
    """Collect the roll-up's distinct values; this runs the roll-up."""
    row = rolled_up.agg(
        sf.sort_array(sf.collect_set(only(Kind.ATTEMPT, "error_type"))).alias("errors"),
        sf.sort_array(sf.collect_set(only(Kind.ATTEMPT, endpoint_hash()))).alias("endpoints"),
    ).first()
    assert row is not None
    return SeenValues(tuple(row["errors"]), tuple(row["endpoints"]))
