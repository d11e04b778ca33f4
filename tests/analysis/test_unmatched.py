"""What the stream remembers of outages that wait for their other end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.unmatched import down_since, merged, unmatched_events
from haclient.telemetry.schema import Kind
from tests.analysis.stories import START, framed, rows

NOW = START + timedelta(hours=1)
DAY = timedelta(days=1)


def state(spark: SparkSession, now: datetime, *lines: tuple[Kind, float, dict[str, Any]]) -> DataFrame:
    return unmatched_events(framed(spark, rows("s", lines)), now)


def clients(found: DataFrame) -> list[str]:
    return sorted(row["client_id"].partition(" ")[0] for row in found.collect())


def test_a_fast_clock_does_not_make_the_stream_forget_the_ends_of_others(spark: SparkSession) -> None:
    ends = state(
        spark, NOW, (Kind.CONNECTED, 0.0, {"client_id": "a"}), (Kind.CONNECTED, 1.0, {"client_id": "b"})
    )
    fast = state(spark, NOW, (Kind.LOST, 86_400.0 * 1.9, {"client_id": "fast"}))
    both = merged(ends, fast, NOW).localCheckpoint()
    assert clients(both) == ["a", "b", "fast"]

    loss = state(spark, NOW + DAY / 2, (Kind.LOST, -5.0, {"client_id": "a"}))
    later = merged(both, loss, NOW + DAY / 2).localCheckpoint()
    assert clients(later) == ["b", "fast"]
    assert clients(merged(later, loss.limit(0), NOW + DAY)) == ["fast"], "the loss of b was never written"


def test_a_state_of_before_is_as_old_as_its_first_reading(spark: SparkSession) -> None:
    before = state(spark, NOW - 9 * DAY, (Kind.CONNECTED, 0.0, {"client_id": "a"})).withColumn(
        "read_at", sf.lit(None).cast("timestamp")
    )
    assert clients(merged(before, before.limit(0), NOW)) == ["a"]


def test_a_loss_without_a_plausible_time_has_an_alert(spark: SparkSession) -> None:
    lost = state(spark, NOW, (Kind.LOST, 0.0, {"client_id": "a", "time": None}))
    assert down_since(lost, NOW) == []
    (alert,) = down_since(lost, NOW + timedelta(seconds=61))
    assert datetime.fromisoformat(alert["lost_at"]) == NOW.astimezone(UTC)
