"""The summary: the metrics for thresholds, computed from the tables (see ``thresholds``).

Rules
-----
* Percentiles are exact, not estimates.  For more than ``percentiles.EXACT`` outages they are values whose
  rank is off by at most 0.1 %.
* An outage that is open, silent or was given up counts as ``longer_than``.  A percentile at the rank
  of such an outage is only a bound, and ``BOUNDS`` marks it: an unfinished outage makes no percentile small.
  Outages that the application closed, or a newer process replaced, have no downtime and are left out.
* A metric without anything to measure is null, a count of nothing is 0.  The longest storm is also null
  while a saturated storm has not ended, because its length is unknown.
* A dropped line leaves a gap in its connection's sequence, so gaps count it already.  ``coverage`` has
  lines that a process dropped beyond its gaps: at the end of a connection no gap is visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.alarms import Severity
from haclient.analysis.percentiles import percentiles
from haclient.analysis.thresholds import BOUNDS, METRICS

_RESULTS = ("back", "gave_up", "closed", "replaced", "open", "silent")
_DOWNTIME = {"p50_downtime": 0.5, "p90_downtime": 0.9, "p99_downtime": 0.99, "max_downtime": 1.0}


def summarize(tables: Mapping[str, DataFrame]) -> dict[str, float | None]:
    """Compute all metrics of the summary (``thresholds.METRICS``).

    :param tables: from ``job.compute``.
    """
    frames = (
        of_storms(tables["storms"]),
        tables["coverage"],
        tables["alarms"].agg(*(_of_severity(each) for each in Severity)),
        tables["quarantine"].agg(sf.count("*").alias("bad_lines")),
    )
    with ThreadPoolExecutor(1) as pool:  # runs in parallel with the query of episodes
        rows = pool.submit(lambda: [frame.collect() for frame in frames])
        found: dict[str, float | None] = of_episodes(tables["episodes"]).collect()[0].asDict()
    for (row,) in rows.result():
        found |= row.asDict()
    found["events"] = found.pop("lines")
    found["lost_lines"] = (found.pop("missing") or 0) + (found.pop("dropped") or 0)
    critical, warnings = (found.pop(each.value) or 0 for each in (Severity.CRITICAL, Severity.WARNING))
    found["critical_alarms"], found["alarms"] = critical, critical + warnings
    return {name: found[name] for name in METRICS}


def _of_severity(severity: Severity) -> Column:
    return sf.count_if(sf.col("severity") == severity.value).alias(severity.value)


def of_episodes(episodes: DataFrame) -> DataFrame:
    """Compute the metrics of outages, in one row."""
    outage = ~sf.col("first_connect")
    attempts = sf.sum(sf.when(outage, sf.col("attempts"))) / sf.nullif(sf.count_if(outage), sf.lit(0))
    untimed = outage & (sf.col("episode_result") == "back") & sf.col("downtime").isNull()
    made = episodes.agg(
        sf.count_if(outage).alias("outages"),
        *(sf.count_if(outage & (sf.col("episode_result") == name)).alias(name) for name in _RESULTS),
        sf.count_if(untimed).alias("back_untimed"),
        sf.count_if("never_connected").alias("never_connected"),
        attempts.alias("attempts_per_outage"),
    )
    return made.crossJoin(_downtimes(episodes.where(outage), episodes.count()))


def _downtimes(outages: DataFrame, most: int) -> DataFrame:
    """Compute the percentiles of the downtime, and whether each is a bound, in one row.

    :param most: upper limit of the number of outages; counting rows of Parquet costs nothing.
    """
    known = sf.col("downtime").isNotNull()
    judged = outages.where(known | sf.col("longer_than").isNotNull()).select(
        sf.coalesce("downtime", "longer_than").alias("seconds"), (~known).alias("lasting")
    )
    found = judged.agg(percentiles("seconds", list(_DOWNTIME.values()), most).alias("found"))
    found = found.select(*(sf.col("found")[rank].alias(name) for rank, name in enumerate(_DOWNTIME)))
    seconds = sf.col("seconds")
    ends = judged.crossJoin(sf.broadcast(found)).agg(
        *(sf.max(sf.when(seconds <= sf.col(name), seconds)).alias(f"{name}_from") for name in _DOWNTIME),
        *(sf.min(sf.when(seconds >= sf.col(name), seconds)).alias(f"{name}_to") for name in _DOWNTIME),
    )
    bounds = judged.crossJoin(sf.broadcast(ends)).agg(*(_is_bound(name) for name in _DOWNTIME))
    return found.crossJoin(bounds)


def _is_bound(name: str) -> Column:
    """Test if an outage at the percentile, or next to it, has not ended."""
    there = sf.col("lasting") & sf.col("seconds").between(sf.col(f"{name}_from"), sf.col(f"{name}_to"))
    return sf.coalesce(sf.max(there.cast("int")), sf.lit(0)).alias(BOUNDS[name])


def of_storms(storms: DataFrame) -> DataFrame:
    """Compute the metrics of storms, in one row."""
    unended = sf.count_if(sf.col("saturated") & sf.col("ratio_to_ideal").isNull())
    return storms.agg(
        sf.count("*").alias("storms"),
        sf.count_if("saturated").alias("saturated_storms"),
        sf.max("amplification").alias("max_amplification"),
        sf.when(unended == 0, sf.max("ratio_to_ideal")).alias("max_ratio_to_ideal"),
    )
