"""The times of events of processes with all kinds of wrong clocks; the truth is computed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.io import ingest
from haclient.analysis.tables import clock
from haclient.telemetry.schema import KEYS, Kind

NINE = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
SCHEMA = "source STRING, event_id STRING, monotonic DOUBLE, time TIMESTAMP"

Story = Iterable[tuple[float | None, float | None, float | None]]
"""Lines: monotonic clock, wall clock and ``t``; the last two in seconds from nine o'clock."""

STORIES: dict[str, Story] = {
    "median of the offsets": [(10, 10.000, 10.002), (20, 20.002, 20.002), (30, 30.009, 30.002)],
    "even number": [(10, 10.0, 10.001), (20, 20.002, 20.001)],
    "one line": [(5, 77.0, 77.0)],
    "an hour fast for four lines": [
        *((at, at, at) for at in (1, 2, 3, 4, 5)),
        *((at, at + 3600, at + 3600) for at in (6, 7, 8, 9)),
        *((at, at, at) for at in (10, 11, 12)),
    ],
    "set twice, three lines each": [
        *((at, at, at) for at in (1, 2, 3)),
        *((at, at - 60, at - 60) for at in (4, 5, 6)),
        *((at, at + 60, at + 60) for at in (7, 8, 9)),
    ],
    "two strange lines": [
        *((at, at, at) for at in (1, 2, 3)),
        (4, 3604.0, 4),
        (5, 3605.0, 5),
        *((at, at, at) for at in (6, 7)),
    ],
    "a strange line, and then it was set": [
        *((at, at, at) for at in (1, 2, 3)),
        (4, 9999.0, 4),  # belongs to the piece before the three lines that agree
        *((at, at + 60, at + 60) for at in (5, 6, 7)),
    ],
    "no time before it got one": [
        *((at, None, at + 500) for at in (1, 2, 3)),
        *((at, at + 500, at + 500) for at in (4, 5)),
    ],
    "no monotonic clock": [(None, 3.0, 3.0), (None, 1.0, 1.0)],
    "no clock at all": [(7, None, None), (None, None, None)],
    "clocks that no machine has": [(float("nan"), 1.0, 1.0), (float("inf"), 2.0, 2.0), (1e300, 3.0, 3.0)],
}
STORIES["a long life in two pieces"] = [
    *((at, at, at) for at in range(500)),
    *((at, at + 0.3, at + 0.3) for at in range(500, 1000)),
]


def at(second: float | None) -> datetime | None:
    return None if second is None else NINE + timedelta(seconds=second)


def frame(spark: SparkSession, stories: dict[str, Story]) -> DataFrame:
    rows = [
        (name, f"{name}/{number}", None if monotonic is None else float(monotonic), at(wall))
        for name, story in stories.items()
        for number, (monotonic, wall, _) in enumerate(story)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_each_line_happened_when_its_process_says_by_most_of_its_lines(spark: SparkSession) -> None:
    events = frame(spark, STORIES).repartition(3)
    found = {row["event_id"]: row["t"] for row in clock.placed(events).select("event_id", told()).collect()}
    expected = {
        f"{name}/{number}": round(t * 1_000_000)
        for name, story in STORIES.items()
        for number, (_, _, t) in enumerate(story)
        if t is not None
    }
    assert found == expected


def told() -> sf.Column:
    return (sf.unix_micros("t") - sf.lit(int(NINE.timestamp()) * 1_000_000)).alias("t")


def test_lines_without_a_source_share_no_clock(spark: SparkSession) -> None:
    rows = [(None, "a", 1.0, at(0)), (None, "b", 1.0, at(50)), (None, "c", 1.0, at(9000))]
    placed = clock.placed(spark.createDataFrame(rows, SCHEMA)).select("event_id", told())
    assert {row["event_id"]: row["t"] for row in placed.collect()} == {
        "a": 0,
        "b": 50_000_000,
        "c": 9_000_000_000,
    }


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([0.0] * 19 + [3600.0], 0.0),
        ([7.0], 7.0),
        ([5.0, 3600.0], 5.0),
        ([float(number) for number in range(250)], 247.0),  # 1 % of them are three
        ([], None),
    ],
)
def test_the_question_is_asked_when_the_last_ones_were_heard(
    spark: SparkSession, ends: list[float], expected: float | None
) -> None:
    rows = [(f"process {number}", at(second)) for number, end in enumerate(ends) for second in (-9, end)]
    events = spark.createDataFrame(rows, "source STRING, t TIMESTAMP").repartition(2)
    events = events.withColumn("monotonic", sf.lit(None).cast("double"))
    moment = at(expected)
    assert clock.as_of(clock.lives(events)) == (None if moment is None else clock.microseconds(moment))


def line(source: str, number: int, time: str, monotonic: float | None = None) -> str:
    data = {"messaging.client.id": source, "haclient.sequence": number, "haclient.monotonic": monotonic}
    known = {
        "id": f"{source}-{number}",
        "source": source,
        "type": Kind.ALIVE.value,
        "time": time,
        "data": data,
    }
    return json.dumps(known)


@pytest.mark.slow
def test_a_time_that_is_not_plausible_is_in_quarantine_and_its_line_where_it_belongs(
    spark: SparkSession, tmp_path: Path
) -> None:
    ahead = (datetime.now(UTC) + timedelta(hours=23)).isoformat()
    too_far = (datetime.now(UTC) + timedelta(hours=25)).isoformat()
    odd = [
        line("a", 3, "+12026-11-21T09:00:03Z", 103.0),
        line("a", 4, too_far, 104.0),
        line("b", 1, "1970-01-01T00:00:05Z", 5.0),
        line("lost", 1, "1999-12-31T23:59:59Z"),
    ]
    good = [
        line("a", 1, "2026-11-21T09:00:01Z", 101.0),
        line("a", 2, "2026-11-21T09:00:02Z", 102.0),
        line("b", 2, "2026-11-21T09:00:06Z", 6.0),
        line("c", 1, ahead),
        line("c", 2, "2000-01-01T00:00:00Z"),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(odd + good) + "\n")
    read = ingest.read(spark, str(tmp_path))
    bad = {row["line"]: row["error"] for row in read.quarantine.collect()}
    assert bad.keys() == set(odd)
    assert all(error.startswith("a time before 2000, or more than a day ahead") for error in bad.values())

    found = {
        row["event_id"]: row["t"] for row in clock.placed(read.events).select("event_id", told()).collect()
    }
    assert found.keys() == {"a-1", "a-2", "a-3", "a-4", "b-1", "b-2", "c-1", "c-2"}
    assert [found[f"a-{number}"] for number in (1, 2, 3, 4)] == [1_000_000, 2_000_000, 3_000_000, 4_000_000]
    assert (found["b-1"], found["b-2"]) == (5_000_000, 6_000_000)

    ingest.store(read.events, str(tmp_path / "store"))
    again = ingest.read(spark, str(tmp_path / "store"))
    assert again.quarantine.count() == 0
    stored = clock.placed(again.events).select("event_id", told())
    assert {row["event_id"]: row["t"] for row in stored.collect()} == found


@pytest.mark.slow
def test_a_time_in_parquet_that_is_not_plausible_is_in_quarantine_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [("a", "1", 5.0, datetime(1970, 1, 1, tzinfo=UTC)), ("a", "2", 6.0, at(6)), ("a", "3", 7.0, None)]
    spark.createDataFrame(rows, SCHEMA).write.parquet(str(tmp_path / "a.parquet"))
    read = ingest.read(spark, str(tmp_path / "a.parquet"))
    (bad,) = read.quarantine.collect()
    assert json.loads(bad["line"])["event_id"] == "1"
    assert [key.column for key in KEYS] == [name for name in read.events.columns if name != "date"]
    found = {
        row["event_id"]: row["t"] for row in clock.placed(read.events).select("event_id", told()).collect()
    }
    assert found == {"1": 5_000_000, "2": 6_000_000, "3": 7_000_000}
