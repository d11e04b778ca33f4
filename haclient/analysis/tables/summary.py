"""The summary: the metrics that a threshold can be put on, computed from the tables (see ``thresholds``).

Rules
-----
* Exact: percentiles are those of all values, not estimates.
* A metric without anything to measure is null, a count of nothing is 0.
* A dropped line leaves a gap in its connection's sequence, so that gaps count it already.  ``coverage`` has
  what a process dropped beyond its gaps: at the end of a connection there is no gap to see.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.thresholds import METRICS

_RESULTS = ("back", "gave_up", "closed", "replaced", "open", "silent")
_DOWNTIME = {"p50_downtime": 0.5, "p90_downtime": 0.9, "p99_downtime": 0.99, "max_downtime": 1.0}


def summarize(tables: Mapping[str, DataFrame]) -> dict[str, float | None]:
    """All of ``thresholds.METRICS``.

    :param tables: as ``job.compute`` returns them.
    """
    found: dict[str, float | None] = {}
    for frame in (of_episodes(tables["episodes"]), of_storms(tables["storms"]), tables["coverage"]):
        (row,) = frame.collect()
        found |= row.asDict()
    found["events"] = found.pop("lines")
    found["lost_lines"] = (found.pop("missing") or 0) + (found.pop("dropped") or 0)
    found["alarms"] = tables["alarms"].count()
    found["bad_lines"] = tables["quarantine"].count()
    return {name: found[name] for name in METRICS}


def of_episodes(episodes: DataFrame) -> DataFrame:
    """One row: the metrics of outages."""
    outage = ~sf.col("first_connect")
    downtime = sf.when(outage, sf.col("downtime"))
    attempts = sf.sum(sf.when(outage, sf.col("attempts"))) / sf.nullif(sf.count_if(outage), sf.lit(0))
    made = episodes.agg(
        sf.count_if(outage).alias("outages"),
        *(sf.count_if(outage & (sf.col("episode_result") == name)).alias(name) for name in _RESULTS),
        sf.count_if(outage & (sf.col("episode_result") == "back") & sf.col("downtime").isNull()).alias(
            "back_untimed"
        ),
        sf.count_if("never_connected").alias("never_connected"),
        sf.percentile(downtime, list(_DOWNTIME.values())).alias("downtime"),
        attempts.alias("attempts_per_outage"),
    )
    percentiles = [sf.col("downtime")[index].alias(name) for index, name in enumerate(_DOWNTIME)]
    return made.select("*", *percentiles).drop("downtime")


def of_storms(storms: DataFrame) -> DataFrame:
    """One row: the metrics of storms."""
    return storms.agg(
        sf.count("*").alias("storms"),
        sf.max("amplification").alias("max_amplification"),
        sf.max("ratio_to_ideal").alias("max_ratio_to_ideal"),
    )
