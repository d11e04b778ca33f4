"""The lag between two sites, from the lines of their members."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.tables.site_lag import site_lag
from haclient.telemetry.schema import KEYS, Kind

START = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
SCHEMA = ", ".join(f"{key.column} {key.type.value}" for key in KEYS)


def line(at: float, **facts: Any) -> tuple[Any, ...]:
    known = {
        "type": Kind.MEMBER_SITE.value,
        "time": START + timedelta(seconds=at),
        "cluster": "west",
        **facts,
    }
    return tuple(known.get(key.column) for key in KEYS)


def test_the_lag_of_each_minute_has_its_percentiles(spark: SparkSession) -> None:
    source = [
        line(at, site_lag_events=at, site_lag_seconds=at / 10, site_sequence=at * 2) for at in range(100)
    ]
    link = [
        line(
            30,
            cluster="east",
            site_link="from-a",
            site_lag_seconds=0.5,
            site_sequence=7,
            site_duplicates=3,
            site_gaps=0,
        )
    ]
    odd = [
        line(
            at,
            type=Kind.MEMBER_ANOMALY.value,
            cluster="east",
            site_link="from-a",
            site_case=case,
            site_count=count,
            site_sequence=99,
        )
        for at, case, count in ((1, "duplicates", 1), (2, "duplicates", 40), (3, "gone", 2), (4, "new", 5))
    ]
    other = [line(5, type=Kind.MEMBER_ROLE.value, cluster="north")]
    rows = [
        row.asDict()
        for row in site_lag(
            spark.createDataFrame([*source, *link, *odd, *other], SCHEMA).withColumn("t", sf.col("time"))
        ).collect()
    ]
    assert [(row["cluster"], row["link"], row["lines"]) for row in rows] == [
        ("east", "from-a", 1),
        ("west", None, 60),
        ("west", None, 40),
    ]
    assert (rows[0]["duplicates"], rows[0]["gaps"], rows[0]["lag_events_p50"]) == (3, 0, None)
    assert (rows[0]["anomalies"], rows[0]["sequence"]) == ({"duplicates": 41, "gone": 2}, 7)
    first = rows[1]
    assert first["anomalies"] == {}
    assert (first["sequence"], first["lag_events_max"], first["lag_events_p50"]) == (118, 59, 29.5)
    assert first["lag_seconds_max"] == 5.9
    assert rows[2]["start"] - first["start"] == timedelta(minutes=1)
