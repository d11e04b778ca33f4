"""Telemetry that was written under the old names of keys, columns and types."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.io import ingest
from haclient.analysis.io.batches import Batches
from haclient.telemetry.schema import DATA, FORMER_COLUMNS, FORMER_KEYS, FORMER_KINDS, Kind

pytestmark = pytest.mark.slow

BACKOFF = (
    '{"specversion":"1.0","id":"1","source":"/haclient/i","type":"haclient.connection.backoff",'
    '"time":"2026-11-21T02:00:00.500000Z","subject":"c/1","dataschema":"urn:haclient:telemetry:1",'
    '"data":{"messaging.client.id":"c","haclient.connection.number":1,"haclient.sequence":3,'
    '"haclient.backoff.base":0.5,"haclient.backoff.delay":1.5,"haclient.backoff.round":1,"KEY":1.5}}'
)
ANOMALY = (
    '{"specversion":"1.0","id":"2","source":"/broker_stub/i","type":"KIND",'
    '"time":"2026-11-21T02:00:01.000000Z","subject":"member-b","dataschema":"urn:haclient:telemetry:1",'
    '"data":{"haclient.cluster":"west","haclient.site.link":"from-a","haclient.site.case":"gone",'
    '"haclient.site.count":2}}'
)
BEFORE = (
    BACKOFF.replace("KEY", "haclient.hint"),
    ANOMALY.replace("KIND", "haclient.member.odd_event"),
)
TODAY = (
    BACKOFF.replace("KEY", "haclient.retry_after"),
    ANOMALY.replace("KIND", "haclient.member.anomaly"),
)


def parsed(spark: SparkSession, folder: Path, lines: tuple[str, ...]) -> ingest.Ingested:
    folder.mkdir()
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    return ingest.read(spark, str(folder))


def as_before(events: DataFrame) -> DataFrame:
    """Return the rows in their old stored form."""
    kind = sf.col("type")
    for former, today in FORMER_KINDS.items():
        kind = sf.when(kind == today.value, former).otherwise(kind)
    return events.withColumnsRenamed(FORMER_COLUMNS).withColumn("type", kind)


def test_a_former_name_belongs_to_a_key_of_today() -> None:
    names, columns = {key.name for key in DATA}, {key.column for key in DATA}
    assert FORMER_KEYS.keys() <= names
    assert FORMER_COLUMNS.keys() <= columns
    assert not {*FORMER_KEYS.values(), *FORMER_COLUMNS.values()} & (names | columns)


def test_lines_of_before_are_the_events_of_today(spark: SparkSession, tmp_path: Path) -> None:
    before = parsed(spark, tmp_path / "before", BEFORE).events
    today = parsed(spark, tmp_path / "today", TODAY).events
    found = sorted(before.collect())
    assert found == sorted(today.select(before.columns).collect())
    assert {row["type"] for row in found} == {Kind.BACKOFF.value, Kind.MEMBER_ANOMALY.value}
    assert {row["retry_after"] for row in found} == {1.5, None}


def test_a_store_of_before_has_the_events_of_today(spark: SparkSession, tmp_path: Path) -> None:
    events = parsed(spark, tmp_path / "today", TODAY).events
    ingest.store(as_before(events), str(tmp_path / "store"))
    found = ingest.read(spark, str(tmp_path / "store")).events
    assert found.schema["event_id"].metadata == ingest.UNIQUE
    assert sorted(found.select(events.columns).collect()) == sorted(events.collect())


def test_a_stream_goes_on_with_the_batches_of_before(spark: SparkSession, tmp_path: Path) -> None:
    found = parsed(spark, tmp_path / "in", (*TODAY, "no line"))
    events = Batches(spark, tmp_path / "events", found.events.schema)
    bad = Batches(spark, tmp_path / "quarantine", found.quarantine.schema)
    Batches(spark, tmp_path / "events", as_before(found.events).schema).write(0, as_before(found.events))
    renamed = found.quarantine.withColumnRenamed("error", "why")
    Batches(spark, tmp_path / "quarantine", renamed.schema).write(0, renamed)
    events.write(1, found.events.withColumn("event_id", sf.concat("event_id", sf.lit("-1"))))

    columns = [name for name in found.events.columns if name != "event_id"]
    for batch in (0, 1):
        assert sorted(events.of(batch).select(columns).collect()) == sorted(
            found.events.select(columns).collect()
        )
    assert [row["error"] for row in bad.everything().collect()] == ["not JSON, or cut short"]
