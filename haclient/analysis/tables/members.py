"""What the clients saw of each member, and the alarms: states that must never occur.

Percentiles are exact, of durations in whole microseconds, which is how they are written: a member
that sees everything has few different values then, however many attempts.

Alarms
------
``split_claim``: two endpoints served clients under one generation, each of them more than ``SKEW`` seconds
after the other had begun to [1].  The times are those of ``clock``.
``generation_backwards``: a client found a lower generation after an outage than it had before.
``flapping``: an endpoint loses its clients again and again (``flapping``).
``lost_telemetry``: numbers are missing in the sequences of connections.  Writers that say that they dropped
more lines than are missing there, at the ends of connections, are an alarm of their own: no loss is in two.

[1] docs/replication.md: a generation belongs to one primary.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.tables import flapping
from haclient.analysis.tables.dictionary import endpoint_hash, name_hash
from haclient.analysis.tables.episodes import CONNECTION
from haclient.analysis.tables.rollup import micros, only
from haclient.telemetry.schema import Kind

ENDPOINT = ("server_address", "server_port")
SKEW = 5  # s; two claims that overlap by less may be one after the other, measured by two clocks
_SEEN = tuple(kind.value for kind in (Kind.ATTEMPT, Kind.CONNECTED, Kind.LOST, Kind.REDIRECT, Kind.ALIVE))


def connects(events: DataFrame) -> DataFrame:
    """How many attempts that succeeded took so many microseconds, by endpoint."""
    won = (sf.col("type") == Kind.ATTEMPT.value) & sf.col("error_type").isNull()
    lines = events.where(won & sf.col("server_address").isNotNull())
    return lines.groupBy(*ENDPOINT, micros("attempt_duration").alias("micros")).agg(
        sf.count("*").alias("attempts")
    )


def members(rolled_up: DataFrame, took: DataFrame, episodes: DataFrame, flaps: DataFrame) -> DataFrame:
    """One row an endpoint; docs/analysis.md has the columns.

    :param rolled_up: of ``rollup.roll_up``.
    :param took: of ``connects``.
    :param flaps: of ``flapping.flapping``.
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
    rows = rows.join(sf.broadcast(_times(took)), "endpoint_hash", "left")
    rows = rows.withColumn("endpoint", sf.concat_ws(":", *ENDPOINT))
    rows = rows.join(sf.broadcast(_losses(episodes)), "endpoint", "left")
    rows = rows.join(sf.broadcast(flaps.select("endpoint", "score")), "endpoint", "left")
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


def _times(took: DataFrame) -> DataFrame:
    return took.groupBy(endpoint_hash().alias("endpoint_hash")).agg(
        sf.percentile("micros", [0.5, 0.9, 0.99], sf.col("attempts")).alias("times")
    )


def _losses(episodes: DataFrame) -> DataFrame:
    lost = episodes.where(sf.col("endpoint_before").isNotNull())
    return lost.groupBy(sf.col("endpoint_before").alias("endpoint")).agg(sf.count("*").alias("losses"))


def alarms(
    rolled_up: DataFrame, outages: DataFrame, missing: DataFrame, dropped: DataFrame, flaps: DataFrame
) -> DataFrame:
    """One row for each alarm; docs/analysis.md has the columns.

    :param rolled_up: of ``rollup.roll_up``.
    :param outages: rows of ``episodes.classified``.
    :param missing: of ``gaps``.
    :param dropped: of ``drops``.
    :param flaps: of ``flapping.flapping``.
    """
    made = (
        *(_split_claims(rolled_up), _backwards(outages)),
        *(_missing(missing), _dropped(dropped), _flapping(flaps)),
    )
    return reduce(DataFrame.unionByName, made)


def _alarm(kind: str, at: Column, detail: Column, endpoints: Column) -> list[Column]:
    return [
        sf.lit(kind).alias("kind"),
        sf.col("cluster"),
        at.alias("at"),
        detail.alias("detail"),
        endpoints.alias("endpoints"),
    ]


def _no_endpoints() -> Column:
    return sf.array().cast("array<string>")


def _split_claims(rolled_up: DataFrame) -> DataFrame:
    claims = (
        rolled_up.where(sf.col("generation").isNotNull() & sf.col("server_address").isNotNull())
        .groupBy("cluster", "generation", sf.concat_ws(":", *ENDPOINT).alias("endpoint"))
        .agg(sf.min("first_seen").alias("since"), sf.max("last_seen").alias("until"))
    )
    other = claims.select(*(sf.col(name).alias(f"other_{name}") for name in claims.columns))
    same = sf.col("cluster").eqNullSafe(sf.col("other_cluster"))
    same &= sf.col("generation") == sf.col("other_generation")
    same &= sf.col("endpoint") < sf.col("other_endpoint")
    until, other_until = (sf.unix_micros(name) for name in ("until", "other_until"))
    same &= until - sf.unix_micros("other_since") > SKEW * 1_000_000
    same &= other_until - sf.unix_micros("since") > SKEW * 1_000_000
    detail = sf.concat(sf.lit("both served under generation "), "generation", sf.lit(" at the same time"))
    both = sf.array("endpoint", "other_endpoint")
    return claims.join(sf.broadcast(other), same).select(
        *_alarm("split_claim", sf.greatest("since", "other_since"), detail, both)
    )


def _backwards(outages: DataFrame) -> DataFrame:
    lower = outages.where(sf.col("generation_after") < sf.col("generation_before"))
    rows = lower.groupBy("cluster", "endpoint_after", "generation_before", "generation_after").agg(
        sf.min("back_at").alias("first"), sf.count("*").alias("times")
    )
    detail = sf.concat(
        *(sf.lit("from generation "), sf.col("generation_before"), sf.lit(" back to ")),
        *(sf.col("generation_after"), sf.lit(", seen "), sf.col("times"), sf.lit(" times")),
    )
    return rows.select(*_alarm("generation_backwards", sf.col("first"), detail, sf.array("endpoint_after")))


def gaps(known: DataFrame) -> DataFrame:
    """The connections with numbers missing in their sequences.

    Columns: ``cluster``, ``process``, ``last`` (line) and ``missing``.

    :param known: of ``episodes.facts``, with the lines of unknown types.
    """
    connections = known.groupBy(*CONNECTION).agg(
        sf.max("cluster").alias("cluster"),
        sf.max("last_event_at").alias("last"),
        (sf.max("highest") - sf.min("lowest") + 1 - sf.sum("lines")).alias("missing"),
    )
    return connections.where("missing > 0").select("cluster", "process", "last", "missing")


def drops(events: DataFrame, missing: DataFrame) -> DataFrame:
    """One row: lines that writers dropped beside those that are missing, of how many writers, and when last.

    :param missing: of ``gaps``.
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


def _flapping(flaps: DataFrame) -> DataFrame:
    detail = sf.concat("score", sf.lit(" times in an hour it lost at least half of its connections at once"))
    often = flaps.where(sf.col("score") >= flapping.ALARM)
    return often.select(*_alarm("flapping", sf.col("last"), detail, sf.array("endpoint")))


def _missing(rows: DataFrame) -> DataFrame:
    found = rows.groupBy("cluster").agg(
        sf.max("last").alias("last"), sf.sum("missing").alias("missing"), sf.count("*").alias("clients")
    )
    detail = sf.concat("missing", sf.lit(" lines are missing, of "), "clients", sf.lit(" connections"))
    return found.select(*_alarm("lost_telemetry", sf.col("last"), detail, _no_endpoints()))


def coverage(rolled_up: DataFrame, missing: DataFrame, dropped: DataFrame) -> DataFrame:
    """One row: how many lines there are, are missing in sequences, and were dropped beside those.

    :param rolled_up: of ``rollup.roll_up``.
    :param missing: of ``gaps``.
    :param dropped: of ``drops``.
    """

    def total(rows: DataFrame, name: str) -> DataFrame:
        return rows.agg(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name))

    return total(rolled_up, "lines").crossJoin(total(missing, "missing")).crossJoin(total(dropped, "dropped"))


def _dropped(rows: DataFrame) -> DataFrame:
    detail = sf.concat(
        "dropped", sf.lit(" lines were dropped by "), "writers", sf.lit(" processes: queue or disk was full")
    )
    named = rows.where("dropped > 0").withColumn("cluster", sf.lit(None).cast("string"))
    return named.select(*_alarm("lost_telemetry", sf.col("last"), detail, _no_endpoints()))
