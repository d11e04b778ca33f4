"""Everybody who is away: connections that are not back, or were never there, and what is known of each."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.tables import episodes
from haclient.analysis.tables.dictionary import with_names
from haclient.telemetry.schema import Kind


def not_recovered(outages: DataFrame, dictionary: DataFrame) -> DataFrame:
    """One row a connection that is still searching, silent since a loss, gave up, or never connected.

    :param outages: rows of ``episodes.classified``; docs/analysis.md has the columns.
    :param dictionary: of ``dictionary.dictionary``.
    """
    gave_up = sf.col("episode_result") == "gave_up"
    then = sf.when(gave_up, "gave up").when(sf.col("last_type") == Kind.LOST.value, "lost")
    lasting = sf.col("episode_result").isin(*episodes.LASTING) & (sf.col("outage") > 1)
    gone = outages.where(lasting | sf.col("never_connected"))
    return with_names(gone, dictionary, "last_error", "last_endpoint", "last_state").select(
        *("client_id", "connection", "service", "instance", "cluster"),
        sf.col("last_event_at").alias("last_seen"),
        *("last_type", "last_error", "last_endpoint"),
        sf.coalesce(then, sf.col("last_state"), sf.lit("reconnecting")).alias("last_state"),
        *("outage_id", "episode_result", "never_connected"),
    )
