"""The stream's memory of outages that wait for their other end, and its duration."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis import unmatched
from haclient.analysis.unmatched import Alerts, bounded, down_since, losses_given_up, merged, unmatched_events
from haclient.telemetry.schema import Kind
from tests.analysis.stories import START, framed, rows

NOW = START + timedelta(hours=1)
DAY = timedelta(days=1)

Said = tuple[Kind, float, dict[str, Any]]


def state(spark: SparkSession, now: datetime, *lines: Said) -> DataFrame:
    """Return the state of one batch, as the stream stores it."""
    return unmatched_events(framed(spark, rows("s", lines)), now).localCheckpoint()


def clients(found: DataFrame, condition: str = "outage_id IS NOT NULL") -> list[str]:
    return sorted(row["client_id"].partition(" ")[0] for row in found.where(condition).collect())


def down(found: DataFrame) -> list[str]:
    return clients(found, "lost_at IS NOT NULL AND coalesce(over_at, replaced_at) IS NULL")


def lost(client: str, at: float = 0.0, **facts: Any) -> Said:
    return Kind.LOST, at, {"client_id": client, **facts}


def began(client: str, at: float, **facts: Any) -> Said:
    return Kind.CONNECTED, at, {"client_id": client, "outage": 1, **facts}


def ended(client: str, at: float, **facts: Any) -> Said:
    return Kind.CONNECTED, at, {"client_id": client, **facts}


@pytest.mark.slow
def test_a_week_in_the_state(spark: SparkSession) -> None:
    """Each client is a story; ``down`` lists the clients whose alert is due."""

    def after(before: DataFrame, now: datetime, *lines: Said) -> DataFrame:
        return merged(before, state(spark, now, *lines), now).localCheckpoint()

    old = state(spark, NOW - 9 * DAY, ended("former", 0.0), lost("upgraded", -9.0))
    nothing = {"read_at": sf.lit(None).cast("timestamp"), "source": sf.lit(None).cast("string")}
    first = after(
        old.withColumns(nothing),  # as it was written before it had these columns
        NOW,
        *(lost(client, 10.0) for client in ("pod", "shared", "same", "gone")),
        *(lost("fast", 1.9 * 86_400), lost("dated_again", 1.0), lost("moved", 10.0, instance="fixed")),
        *(ended("early_end", 0.0), ended("no_loss", 1.0), ended("dated_again", 2.0), ended("upgraded", 9.0)),
        began("late", 100.0, source="/new", instance="two"),
    )
    assert down(first) == ["fast", "gone", "moved", "pod", "same", "shared"]
    second = after(
        first,
        NOW + timedelta(seconds=60),
        *(began(client, 3500.0, source="/new", instance="two") for client in ("pod", "shared")),
        began("other", 3500.0, source="/new", instance="fixed"),
        began("same", 5.0),  # read late: this life has the loss
    )
    assert down(second) == ["fast", "gone", "same"]
    later = NOW + timedelta(seconds=90)
    third = after(
        second,
        later,
        (Kind.ATTEMPT, 3655.0, {"client_id": "shared"}),  # two processes have one client id, and both live
        *(lost("early_end", -5.0), lost("late", 10.0), lost("dated_again", 3000.0)),
    )
    assert down(third) == ["fast", "gone", "same", "shared"]
    assert {"former", "no_loss", "early_end", "pod"} < set(clients(third))
    fourth = after(third, later + 1.1 * DAY)
    assert clients(fourth) == down(fourth) == ["fast", "gone", "same"], "shared is silent by now"
    assert losses_given_up(fourth, fourth, NOW + 6.9 * DAY) == 0
    assert losses_given_up(fourth, fourth, NOW + 7.1 * DAY) == 3
    assert merged(fourth, state(spark, NOW), NOW + 7.1 * DAY).count() == 0


def test_a_loss_that_says_it_is_later_than_its_reading_has_an_alert_in_time(spark: SparkSession) -> None:
    read = state(spark, NOW, lost("none", 0.0, time=None), lost("fast", 9e4), lost("right", 3600.0))
    assert down_since(read, NOW) == []
    alerts = down_since(read, NOW + timedelta(seconds=61))
    assert [datetime.fromisoformat(alert["lost_at"]) for alert in alerts] == [NOW.astimezone(UTC)] * 3


def test_of_too_many_the_oldest_go(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmatched, "MOST", 2)
    names = [f"{day}{one}" for day, size in enumerate((1, 3, 1)) for one in "abc"[:size]]
    lines = (said for name in names for said in (lost(name), ended(name, 0.0, outage=3)))
    whole = state(spark, NOW, *lines).where("outage_id IS NOT NULL")
    read_at = sf.lit(NOW).cast("timestamp") + sf.make_dt_interval(sf.substring("client_id", 1, 1).cast("int"))
    stored = whole.withColumn("read_at", read_at).localCheckpoint()
    kept = bounded(stored).localCheckpoint()
    assert down(kept) == ["2a"], "the batch before it is too large"
    assert len(clients(kept)) == 2
    assert losses_given_up(stored, kept, NOW) == 4
    assert down(bounded(stored.where("client_id < '2'"))) == ["1a", "1b", "1c"], "the newest batch stays"


def test_alerts_go_on_after_a_page_of_them_and_each_outage_has_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmatched, "_PAGE", 2)
    losses = state(spark, NOW, *(lost(client, 1.0) for client in "abcde"), lost("f", 1.0, instance=None))
    alerts = Alerts(tmp_path / "alerts.jsonl")
    rounds = [sorted(one["client_id"][0] for one in alerts.of(losses, NOW)) for _ in range(5)]
    assert rounds == [["a", "b"], ["c", "d"], ["e", "f"], [], []]
    recorded = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert [json.loads(line)["client_id"][0] for line in recorded] == list("abcdef")
    again = Alerts(tmp_path / "alerts.jsonl")
    assert [again.of(losses, NOW) for _ in range(3)] == [[], [], []]
