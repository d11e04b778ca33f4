"""Storms over time: attempts and connection setups of their outages, in tenths of a second.

Rules
-----
1. A line belongs to the storm of its connection and outage, whenever it was written.
2. Times count from the start of the storm.  If a client's clock is slow, so that its loss seems to
   precede the storm, they count from its own loss.
3. An attempt counts in the tenth in which it begins.  A setup counts in the tenth that it ends: a connection
   set up at 1.0 s is the last one of the first second.
4. An attempt that lasts ``HANGS`` seconds or more hangs, in each second in which it is open.
5. Lines more than ``EXTENT`` after the start are left out: a device whose clock is set may seem to take
   decades.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.tables.clock import BROADCAST
from haclient.analysis.tables.dictionary import name_hash
from haclient.analysis.tables.rollup import micros, only
from haclient.telemetry.schema import Kind

EXTENT = 86_400.0  # s
HANGS = 1.0  # s; the first repeat of a lost SYN
LONGEST = 600  # s; the rest of a longer attempt is ignored
_TENTH = 100_000  # microseconds


def time_buckets(events: DataFrame, hit: DataFrame) -> DataFrame:
    """Count attempts and connection setups of each storm by tenth of a second, endpoint and error.

    Every table of a storm over time is computed from this one: ``storm``, ``tenth`` (long, from the
    start), ``server_address``, ``server_port``, ``error_type``, ``hangs`` (seconds after the first one in
    which the attempts are still open; null if they do not hang), ``attempts``, ``connected``.

    :param events: from ``clock.placed``.
    :param hit: from ``cores.losses``.
    """
    took = sf.coalesce(only(Kind.ATTEMPT, micros("attempt_duration")), sf.lit(0))
    lines = events.where(sf.col("type").isin(Kind.ATTEMPT.value, Kind.CONNECTED.value)).select(
        *("type", "server_address", "server_port", "error_type"),
        _outage(name_hash("source")).alias("key"),
        (sf.unix_micros("t") - took).alias("begin"),
        took.alias("took"),
    )
    wanted = hit.select(
        "storm", _outage(sf.col("process")).alias("key"), sf.unix_micros("zero").alias("zero")
    )
    few = hit.count() <= BROADCAST
    both = lines.join(sf.broadcast(wanted) if few else wanted, "key")
    begin = sf.greatest(sf.col("begin") - sf.col("zero"), sf.lit(0))
    end = begin + sf.col("took")
    setup = sf.col("type") == Kind.CONNECTED.value
    tenth = sf.when(setup, sf.greatest(sf.ceil(begin / _TENTH) - 1, sf.lit(0))).otherwise(_tenths(begin))
    open_for = sf.least(_tenths(end) / 10, _tenths(begin) / 10 + LONGEST)
    hangs = sf.when(sf.col("took") >= int(HANGS * 1e6), sf.floor(open_for) - sf.floor(_tenths(begin) / 10))
    named = both.select(
        *("storm", "type", "server_address", "server_port", "error_type"),
        tenth.alias("tenth"),
        hangs.alias("hangs"),
    )
    return (
        named.where(sf.col("tenth") <= int(EXTENT * 10))
        .groupBy("storm", "tenth", "server_address", "server_port", "error_type", "hangs")
        .agg(
            sf.count(only(Kind.ATTEMPT, "type")).alias("attempts"),
            sf.count(only(Kind.CONNECTED, "type")).alias("connected"),
        )
    )


def _outage(process: Column) -> Column:
    """Return one number per outage, which is cheaper to join than five columns."""
    return sf.xxhash64("client_id", "instance", process, "connection", "outage")


def _tenths(time: Column) -> Column:
    return sf.floor(time / _TENTH)


def timeline(buckets: DataFrame, storms: DataFrame) -> DataFrame:
    """Return the table ``storm_timeline``: counts of each endpoint in each tenth of a second.

    :param buckets: from ``time_buckets``.
    :param storms: from ``table.extents``.
    """
    failed = sf.when(sf.col("error_type").isNotNull(), sf.col("attempts")).otherwise(0)
    rows = buckets.join(sf.broadcast(storms.select("storm", "storm_id")), "storm")
    second = (sf.col("tenth") / 10).alias("second")
    return rows.groupBy("storm_id", second, "server_address", "server_port").agg(
        sf.sum("attempts").alias("attempts"),
        sf.sum(failed).alias("failures"),
        sf.sum("connected").alias("connected"),
    )


def reasons(buckets: DataFrame, storms: DataFrame) -> DataFrame:
    """Return the table ``storm_reasons``: failed attempts by error in each second; same parameters."""
    failed = buckets.where(sf.col("error_type").isNotNull())
    rows = failed.join(sf.broadcast(storms.select("storm", "storm_id")), "storm")
    second = sf.floor(sf.col("tenth") / 10).cast("double").alias("second")
    return rows.groupBy("storm_id", second, "error_type").agg(sf.sum("attempts").alias("failures"))
