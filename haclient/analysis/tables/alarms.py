"""The table ``alarms``: problems that need action or attention; ``analysis/alarms.py`` has the severities.

``split_claim``: two endpoints served clients under one generation, each of them more than ``SKEW`` seconds
after the other had begun to [1].  The times are corrected by ``clock``.
``generation_backwards``: a client found a lower generation after an outage than it had before.
``not_back``: outages that are silent, were given up, or are open for over ``PATIENCE``; one per cluster.
``never_connected``: first connects with that column set; one per cluster.
``flapping``: an endpoint loses its clients again and again (``flapping``).
``uneven_delays``: a group of delays is marked (``jitter``).
``lost_telemetry``: numbers are missing in the sequences of connections.  Writers that report more dropped
lines, at the ends of connections, have a separate alarm: no lost line counts in both.
``quarantine``: lines are in quarantine.
``clock``: wall clocks were set by more than the tolerance, or are ahead of ``as_of`` (``clock.wrong``).
``storm``: a storm occurred (``storms``).

[1] docs/replication.md: a generation belongs to one primary.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.alarms import KINDS
from haclient.analysis.io.session import single
from haclient.analysis.marks import Verdict
from haclient.analysis.tables import flapping as flapping_module
from haclient.analysis.tables.episodes import PATIENCE

SKEW = 5  # s; a shorter overlap of two claims may be an error of two clocks


def together(*found: DataFrame) -> DataFrame:
    """Combine the alarms, one row each; docs/analysis.md has the columns.

    :param found: from the functions below.
    """
    alarms = single(reduce(DataFrame.unionByName, found))
    said = {
        name: _by_kind({kind: getattr(known, name) for kind, known in KINDS.items()})
        for name in ("severity", "meaning", "action")
    }
    return alarms.select(
        "kind",
        said["severity"].alias("severity"),
        *("cluster", "at", "detail", "endpoints"),
        *(said[name].alias(name) for name in ("meaning", "action")),
    )


def first(alarms: DataFrame, count: int) -> list[dict[str, Any]]:
    """Return the most urgent alarms, the newest first among equals, with times as text.

    :param alarms: from ``together``.
    """
    at = sf.date_format("at", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("at")
    columns = (at if name == "at" else sf.col(name) for name in alarms.columns)
    rows = alarms.orderBy(urgency(), sf.desc("at"), "detail").limit(count)
    return [row.asDict() for row in rows.select(*columns).collect()]


def urgency() -> Column:
    """Return the sort key of an alarm: the position of its kind in ``KINDS``."""
    return sf.array_position(sf.array(*(sf.lit(kind) for kind in KINDS)), sf.col("kind"))


def _by_kind(values: dict[str, str]) -> Column:
    pairs = [sf.lit(part) for pair in values.items() for part in pair]
    return sf.create_map(*pairs)[sf.col("kind")]


def _alarm(kind: str, at: Column, detail: Column, endpoints: Column | None = None) -> list[Column]:
    none = sf.array().cast("array<string>")
    return [
        sf.lit(kind).alias("kind"),
        sf.col("cluster"),
        at.alias("at"),
        detail.alias("detail"),
        (none if endpoints is None else endpoints).alias("endpoints"),
    ]


def _of_no_cluster(rows: DataFrame) -> DataFrame:
    return rows.withColumn("cluster", sf.lit(None).cast("string"))


def split_claims(rolled_up: DataFrame) -> DataFrame:
    """Return alarms of two primaries at the same time.

    :param rolled_up: from ``rollup.roll_up``.
    """
    claims = (
        rolled_up.where(sf.col("generation").isNotNull() & sf.col("server_address").isNotNull())
        .groupBy(
            "cluster",
            "generation",
            sf.concat_ws(":", "server_address", "server_port").alias("endpoint"),
        )
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


def backwards(outages: DataFrame) -> DataFrame:
    """Return alarms of generations that went backwards.

    :param outages: rows of ``episodes.classified``.
    """
    lower = outages.where(sf.col("generation_after") < sf.col("generation_before"))
    rows = lower.groupBy("cluster", "endpoint_after", "generation_before", "generation_after").agg(
        sf.min("back_at").alias("first"), sf.count("*").alias("times")
    )
    detail = sf.concat(
        *(sf.lit("from generation "), sf.col("generation_before"), sf.lit(" back to ")),
        *(sf.col("generation_after"), sf.lit(", seen "), sf.col("times"), sf.lit(" times")),
    )
    return rows.select(*_alarm("generation_backwards", sf.col("first"), detail, sf.array("endpoint_after")))


def without_connection(outages: DataFrame) -> DataFrame:
    """Return alarms of connections that are not back, or were never established.

    :param outages: rows of ``episodes.classified``.
    """
    outage, result = sf.col("outage") > 1, sf.col("episode_result")
    lasting = (result == "open") & (sf.col("longer_than") > PATIENCE)
    kinds = {"silent": result == "silent", "gave_up": result == "gave_up", "open": lasting}
    gone = outage & (kinds["silent"] | kinds["gave_up"] | kinds["open"])
    counts = outages.groupBy("cluster").agg(
        sf.count_if(gone).alias("gone"),
        sf.min(sf.when(gone, sf.col("began_at"))).alias("since"),
        *(sf.count_if(outage & holds).alias(name) for name, holds in kinds.items()),
        sf.count_if("never_connected").alias("never"),
        sf.min(sf.when(sf.col("never_connected"), sf.col("began_at"))).alias("never_since"),
    )
    detail = sf.format_string(
        "%d connections are not back: %d silent, %d gave up, %d still searching",
        *("gone", "silent", "gave_up", "open"),
    )
    never = sf.format_string("%d connections were never there", "never")
    both = sf.array(
        sf.when(sf.col("gone") > 0, sf.struct(*_alarm("not_back", sf.col("since"), detail))),
        sf.when(sf.col("never") > 0, sf.struct(*_alarm("never_connected", sf.col("never_since"), never))),
    )
    return counts.select(sf.inline(sf.array_compact(both)))


def flapping(flaps: DataFrame) -> DataFrame:
    """Return alarms of endpoints that lose their clients again and again.

    :param flaps: from ``flapping.flapping``.
    """
    detail = sf.concat("score", sf.lit(" times in an hour it lost at least half of its connections at once"))
    often = flaps.where(sf.col("score") >= flapping_module.ALARM)
    return often.select(*_alarm("flapping", sf.col("last"), detail, sf.array("endpoint")))


def missing(gaps: DataFrame) -> DataFrame:
    """Return alarms of lines that are missing in sequences.

    :param gaps: from ``members.gaps``.
    """
    found = gaps.groupBy("cluster").agg(
        sf.max("last").alias("last"), sf.sum("missing").alias("missing"), sf.count("*").alias("clients")
    )
    detail = sf.concat("missing", sf.lit(" lines are missing, of "), "clients", sf.lit(" connections"))
    return found.select(*_alarm("lost_telemetry", sf.col("last"), detail))


def dropped(drops: DataFrame) -> DataFrame:
    """Return alarms of lines that writers dropped.

    :param drops: from ``members.drops``.
    """
    detail = sf.concat(
        "dropped", sf.lit(" lines were dropped by "), "writers", sf.lit(" processes: queue or disk was full")
    )
    named = _of_no_cluster(drops.where("dropped > 0"))
    return named.select(*_alarm("lost_telemetry", sf.col("last"), detail))


def quarantine(lines: DataFrame) -> DataFrame:
    """Return alarms of lines in quarantine.

    :param lines: the table ``quarantine``.
    """
    counts = lines.agg(sf.count("*").alias("lines"), sf.count_distinct("file").alias("files"))
    detail = sf.format_string("%d lines of %d files are in quarantine", "lines", "files")
    found = _of_no_cluster(counts.where("lines > 0"))
    return found.select(*_alarm("quarantine", sf.lit(None).cast("timestamp"), detail))


def clocks(wrong: DataFrame) -> DataFrame:
    """Return alarms of wall clocks.

    :param wrong: from ``clock.wrong``.
    """
    set_ = sf.format_string("%d wall clocks were set while their process ran, by up to %.1f s", "many", "by")
    ahead = sf.format_string(
        "%d processes were heard up to %.1f s later than all others: "
        "their clocks are fast, or the others are gone",
        *("many", "by"),
    )
    rows = _of_no_cluster(wrong.where("many > 0"))
    detail = sf.when(sf.col("how") == "set", set_).otherwise(ahead)
    return rows.select(*_alarm("clock", sf.col("last"), detail))


def uneven_delays(rows: DataFrame) -> DataFrame:
    """Return alarms of delays that are not spread as promised.

    :param rows: the table ``jitter``.
    """
    marked = _of_no_cluster(rows.where(sf.col("verdict") == Verdict.MARKED.value))
    base = sf.when(sf.col("backoff_base").isNull(), "").otherwise(
        sf.format_string(", ceiling %.3f s", "backoff_base")
    )
    detail = sf.format_string(
        "strategy %s%s, round %d: distance %.3f of %d delays",
        *("strategy", base, "round", "ks_statistic", "judged"),
    )
    return marked.select(*_alarm("uneven_delays", sf.lit(None).cast("timestamp"), detail))


def storms(rows: DataFrame) -> DataFrame:
    """Return alarms of storms.

    :param rows: the table ``storms``.
    """
    detail = sf.format_string("%d connections were lost at once", "clients_hit")
    return rows.select(*_alarm("storm", sf.col("started_at"), detail))
