"""The table ``members``: clients' attempts at each member; and the completeness of the telemetry.

Percentiles are exact, of durations in whole microseconds, as they are written.  A member with very many
attempts then still has few different values.  Groups of more than ``percentiles.EXACT`` attempts
use a sketch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.percentiles import EXACT, percentiles
from haclient.analysis.tables.dictionary import endpoint_hash, name_hash
from haclient.analysis.tables.episodes import CONNECTION
from haclient.analysis.tables.rollup import micros, only
from haclient.telemetry.schema import Kind

ENDPOINT = ("server_address", "server_port")
_SHARES = (0.5, 0.9, 0.99)
_SEEN = tuple(kind.value for kind in (Kind.ATTEMPT, Kind.CONNECTED, Kind.LOST, Kind.REDIRECT, Kind.ALIVE))


def connects(events: DataFrame, rolled_up: DataFrame) -> DataFrame:
    """Return percentiles of the time that successful attempts took, by endpoint.

    Columns: ``endpoint_hash``, and ``times``, an array of p50, p90 and p99 in microseconds.

    :param rolled_up: from ``rollup.roll_up``.
    """
    won = (sf.col("type") == Kind.ATTEMPT.value) & sf.col("error_type").isNull()
    known = won & sf.col("server_address").isNotNull()
    counted = rolled_up.where(known).groupBy(*ENDPOINT).agg(sf.sum("lines").alias("lines"))
    row = counted.agg(sf.max("lines").alias("most")).first()
    most = row["most"] or 0 if row is not None else 0
    took = micros("attempt_duration").alias("micros")
    lines = events.where(known).select(endpoint_hash().alias("endpoint_hash"), took)
    if most > EXACT:
        return lines.groupBy("endpoint_hash").agg(percentiles("micros", _SHARES, most).alias("times"))
    # exact percentiles from few rows per endpoint, so that most of the work is counting numbers
    cells = lines.groupBy("endpoint_hash", "micros").agg(sf.count("*").alias("attempts"))
    times = sf.percentile("micros", list(_SHARES), sf.col("attempts"))
    return cells.groupBy("endpoint_hash").agg(times.alias("times"))


def members(rolled_up: DataFrame, took: DataFrame, episodes: DataFrame, flaps: DataFrame) -> DataFrame:
    """Return one row per endpoint; docs/analysis.md has the columns.

    :param rolled_up: from ``rollup.roll_up``.
    :param took: from ``connects``.
    :param flaps: from ``flapping.flapping``.
    """
    seen = rolled_up.where(sf.col("server_address").isNotNull() & sf.col("type").isin(*_SEEN))
    by_error = seen.groupBy(*ENDPOINT, "error_type").agg(
        sf.coalesce(sf.sum(only(Kind.ATTEMPT, "lines")), sf.lit(0)).alias("attempts"),
        sf.coalesce(sf.sum(only(Kind.REDIRECT, "lines")), sf.lit(0)).alias("redirects"),
        sf.min("first_seen").alias("first_seen"),
        sf.max("last_seen").alias("last_seen"),
        sf.min("generation").alias("generation_min"),
        sf.max("generation").alias("generation_max"),
    )
    failed = sf.col("error_type").isNotNull()
    refused = sf.when(failed, sf.col("attempts")).otherwise(0)
    entry = sf.when(failed & (sf.col("attempts") > 0), sf.struct("error_type", "attempts"))
    rows = by_error.groupBy(*ENDPOINT).agg(
        sf.sum("attempts").alias("attempts"),
        sf.sum(refused).alias("refusals"),
        sf.sum("redirects").alias("redirects"),
        sf.map_from_entries(sf.sort_array(sf.collect_list(entry))).alias("failures"),
        sf.min("first_seen").alias("first_seen"),
        sf.max("last_seen").alias("last_seen"),
        sf.min("generation_min").alias("generation_min"),
        sf.max("generation_max").alias("generation_max"),
    )
    rows = rows.withColumn("endpoint_hash", endpoint_hash())
    rows = rows.join(took, "endpoint_hash", "left")
    rows = rows.withColumn("endpoint", sf.concat_ws(":", *ENDPOINT))
    rows = rows.join(_losses(episodes), "endpoint", "left")
    rows = rows.join(flaps.select("endpoint", "score"), "endpoint", "left")
    successes = sf.col("attempts") - sf.col("refusals")
    times = [(sf.col("times")[at] / 1e6).alias(f"connect_p{p}") for at, p in enumerate((50, 90, 99))]
    return rows.select(
        *ENDPOINT,
        "attempts",
        successes.alias("successes"),
        *("refusals", "redirects", "failures"),
        (successes / sf.nullif("attempts", sf.lit(0))).alias("success_rate"),
        *times,
        *("first_seen", "last_seen"),
        sf.coalesce("losses", sf.lit(0)).alias("losses"),
        sf.coalesce("score", sf.lit(0)).alias("flapping_score"),
        *("generation_min", "generation_max"),
    )


def _losses(episodes: DataFrame) -> DataFrame:
    lost = episodes.where(sf.col("endpoint_before").isNotNull())
    return lost.groupBy(sf.col("endpoint_before").alias("endpoint")).agg(sf.count("*").alias("losses"))


def gaps(known: DataFrame) -> DataFrame:
    """Return the connections with missing numbers in their sequences.

    Columns: ``cluster``, ``process``, ``last`` (time of the last line), and ``missing`` (number of lines).

    :param known: from ``episodes.facts``, including lines of unknown types.
    """
    connections = known.groupBy(*CONNECTION).agg(
        sf.max("cluster").alias("cluster"),
        sf.max("last_event_at").alias("last"),
        (sf.max("highest") - sf.min("lowest") + 1 - sf.sum("lines")).alias("missing"),
    )
    return connections.where("missing > 0").select("cluster", "process", "last", "missing")


def drops(events: DataFrame, missing: DataFrame) -> DataFrame:
    """Count dropped lines that left no gap, in one row: ``dropped``, ``writers`` and ``last`` (time).

    :param missing: from ``gaps``.
    """
    reported = (
        events.where(sf.col("type") == Kind.DROPPED.value)
        .groupBy(name_hash("source").alias("process"))
        .agg(sf.sum("dropped").alias("dropped"), sf.max("t").alias("last"))
    )
    its = missing.groupBy(sf.col("process").alias("its")).agg(sf.sum("missing").alias("missing"))
    both = reported.join(its, sf.col("process").eqNullSafe(sf.col("its")), "left")
    beside = sf.col("dropped") - sf.coalesce("missing", sf.lit(0))
    return (
        both.select("last", beside.alias("dropped"))
        .where("dropped > 0")
        .agg(sf.max("last").alias("last"), sf.sum("dropped").alias("dropped"), sf.count("*").alias("writers"))
    )


def coverage(rolled_up: DataFrame, missing: DataFrame, dropped: DataFrame) -> DataFrame:
    """Count lines, lines missing in sequences, and other dropped lines, in one row.

    Columns: ``lines``, ``missing`` and ``dropped``.

    :param rolled_up: from ``rollup.roll_up``.
    :param missing: from ``gaps``.
    :param dropped: from ``drops``.
    """

    def total(rows: DataFrame, name: str) -> DataFrame:
        return rows.agg(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name))

    return total(rolled_up, "lines").crossJoin(total(missing, "missing")).crossJoin(total(dropped, "dropped"))
