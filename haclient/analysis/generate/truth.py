"""What an analysis of a generated fleet should find."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.generate.fleet import Fleet, cluster, end
from haclient.telemetry.schema import Kind


def truth(fleet: Fleet, rows: DataFrame) -> DataFrame:
    """What an analysis should find."""
    count = sf.size("steps")
    tries = sf.filter("steps", lambda step: step["kind"] == Kind.ATTEMPT.value)
    lost = sf.filter(sf.sequence(sf.lit(1), count), lambda n: fleet.is_lost(sf.col("before") + n))
    episode_result = sf.when(sf.col("end") == "dies", "silent").when(sf.col("end") == "gives up", "gave_up")
    return rows.select(
        "client_id",
        sf.lit(1).cast("bigint").alias("connection"),
        sf.col("outage").cast("bigint"),
        cluster().alias("cluster"),
        sf.when(~sf.col("end").isin("dies", "gives up"), sf.round(end("last"), 6)).alias("downtime"),
        sf.size(tries).cast("bigint").alias("attempts"),
        episode_result.otherwise("back").alias("episode_result"),
        sf.size(lost).cast("bigint").alias("lost_lines"),
    )
