"""The clients that never came back, with the last thing known of each."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.tables.rollup import spelled
from haclient.telemetry.schema import Kind


def absent(outages: DataFrame, dictionary: DataFrame) -> DataFrame:
    """One row a connection whose last outage ended in nothing, or that gave up.

    :param outages: rows of ``episodes.judged``; docs/analysis.md has the columns.
    :param dictionary: of ``survey.words``.
    """
    gave_up = sf.col("outcome") == "gave_up"
    then = sf.when(gave_up, "gave up").when(sf.col("last_type") == Kind.LOST.value, "lost")
    gone = outages.where(gave_up | (sf.col("outcome") == "never_came_back"))
    return spelled(gone, dictionary, "last_error", "last_endpoint", "state_then").select(
        *("client_id", "connection", "service", "instance", "cluster"),
        sf.col("heard_at").alias("last_seen"),
        *("last_type", "last_error", "last_endpoint"),
        sf.coalesce(then, sf.col("state_then"), sf.lit("reconnecting")).alias("state_then"),
        "outage_id",
    )
