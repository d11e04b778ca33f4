"""Lines from files, and stores of them."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from haclient.analysis.io import ingest
from haclient.telemetry.contract.check import check
from haclient.telemetry.schema import Kind, Reason
from tests.analysis.stories import START, framed, rows
from tests.telemetry.mutations import is_quarantined, mutated, vectors


def test_bad_lines_are_kept_with_their_file_and_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    good = (
        '{"id": "1", "type": "haclient.connection.closed", "time": "2026-11-21T02:00:00.5Z", "new": {"x": 1}}'
    )
    bad = {
        '{"id": "2", "type": "haclient.conn': "not JSON, or cut short",
        '{"type": "t", "time": "2026-11-21T02:00:00Z"}': "no id or no type",
        '{"id": "3", "type": "t", "time": "noon"}': "no time, or not one of RFC 3339",
        '{"id": "4", "type": "t", "time": "2026-11-21T02:00:00Z", "data": {"haclient.sequence": "x"}}': (
            "a value of another type than the schema's"
        ),
    }
    (tmp_path / "some.jsonl").write_text("\n".join([good, "", good, *bad]))
    found = ingest.read(spark, str(tmp_path))
    assert [row["event_id"] for row in found.events.collect()] == ["1"]
    quarantined = found.quarantine.collect()
    assert {row["line"]: row["error"] for row in quarantined} == bad
    assert all(row["file"].endswith("some.jsonl") for row in quarantined)


def test_a_compressed_file_that_is_cut_short_does_not_stop_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    line = '{{"id": "{}", "type": "t", "time": "2026-11-21T02:00:00Z"}}\n'
    text = "".join(line.format(f"{number}-{number * 7919}") for number in range(20_000)).encode()
    packed = gzip.compress(text)
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "whole.jsonl.gz").write_bytes(gzip.compress(line.format("whole").encode()))
    (tmp_path / "no.jsonl.gz").write_bytes(b"this is not compressed at all")
    (tmp_path / "plain.jsonl").write_text(line.format("plain"))
    found = ingest.read(spark, str(tmp_path))
    bad = {Path(row["file"]).name: row["error"] for row in found.quarantine.collect()}
    assert bad.keys() == {"cut.jsonl.gz", "no.jsonl.gz"}
    assert "cut short" in bad["cut.jsonl.gz"]
    ids = {row["event_id"] for row in found.events.select("event_id").collect()}
    assert {"whole", "plain"} < ids
    assert len(ids) < 20_000


@pytest.mark.slow
def test_each_file_is_read_once_and_each_line_parsed_once(spark: SparkSession, tmp_path: Path) -> None:
    """A file removed after the first action is still there for the second."""
    line = '{{"id": "{}", "type": "t", "time": "2026-11-21T02:00:00Z"}}\n'
    (tmp_path / "some.jsonl").write_text(line.format(1) + "no telemetry\n" + line.format(1) + "\n \n")
    (tmp_path / "more.jsonl.gz").write_bytes(gzip.compress(f"\n{line.format(2)}bad\n\n".encode()))
    (tmp_path / "empty.jsonl").touch()
    found = ingest.read(spark, str(tmp_path))
    assert {row["event_id"] for row in found.events.collect()} == {"1", "2"}
    for path in tmp_path.iterdir():
        path.unlink()
    assert {row["line"] for row in found.quarantine.collect()} == {"no telemetry", "bad"}


def test_a_file_that_goes_away_does_not_stop_the_job_and_is_in_the_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    line = '{{"id": "{}", "type": "t", "time": "2026-11-21T02:00:00Z"}}\n'
    for name in ("stays", "goes"):
        (tmp_path / f"{name} 1%.jsonl").write_text(line.format(name))
    found = ingest.read(spark, str(tmp_path))
    (tmp_path / "goes 1%.jsonl").rename(tmp_path / "goes.1")
    assert [row["event_id"] for row in found.events.collect()] == ["stays"]
    (bad,) = found.quarantine.collect()
    assert (bad["line"], bad["error"]) == (None, Reason.GONE.value)
    assert "goes" in bad["file"]


@pytest.mark.slow
def test_of_a_store_only_the_dates_near_the_period_are_opened(spark: SparkSession, tmp_path: Path) -> None:
    days = [START + timedelta(days=day) for day in range(6)]
    lines = [(Kind.LOST, 0.0, {"event_id": f"{day:%d}", "time": day}) for day in days]
    lost_time = (Kind.LOST, 0.0, {"event_id": "no time", "time": None})
    store = tmp_path / "store"
    ingest.store(framed(spark, rows("store", [*lines, lost_time])), str(store))
    for path in store.rglob(f"date={days[5].date()}/*.parquet"):
        path.write_bytes(b"whoever opens it fails")
    period = ingest.Period(days[2], days[3])
    events = ingest.read(spark, str(store), period).events
    found = {row["event_id"] for row in events.collect()}
    assert found == {*(f"{day:%d}" for day in days[1:5]), "no time"}
    with pytest.raises(Exception, match=r"not a Parquet file|FAILED_READ_FILE"):
        ingest.read(spark, str(store)).events.collect()


@pytest.mark.slow
def test_of_lines_only_those_near_the_period_stay(spark: SparkSession, tmp_path: Path) -> None:
    line = '{{"id": "{0}", "type": "t", "time": "2026-11-{0}T02:00:00Z"}}\n'
    (tmp_path / "some.jsonl").write_text("".join(line.format(day) for day in range(10, 20)) + "bad\n")
    since = datetime(2026, 11, 15, tzinfo=UTC)
    found = ingest.read(spark, str(tmp_path), ingest.Period(since, since + timedelta(days=1)))
    assert sorted(row["event_id"] for row in found.events.collect()) == ["14", "15", "16"]
    assert found.quarantine.count() == 1


def four_lines(spark: SparkSession) -> DataFrame:
    return framed(spark, rows("four", ((Kind.LOST, float(number), {}) for number in range(4))))


@pytest.mark.slow
def test_a_store_is_not_searched_for_copies_again(spark: SparkSession, tmp_path: Path) -> None:
    events = four_lines(spark)
    ingest.store(events, str(tmp_path / "store"))
    again = ingest.read(spark, str(tmp_path / "store")).events
    assert again.schema["event_id"].metadata == ingest.UNIQUE
    assertDataFrameEqual(again, events.select(again.columns))
    assert len(list((tmp_path / "store").glob("date=*/*.parquet"))) == 1


@pytest.mark.slow
def test_without_adaptive_plans_a_date_is_one_file_too(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        ingest.store(four_lines(spark).repartition(2), str(tmp_path / "store"))
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    assert len(list((tmp_path / "store").glob("date=*/*.parquet"))) == 1


@pytest.mark.slow
def test_two_stores_together_are_searched_for_copies(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "two"):
        ingest.store(four_lines(spark), str(tmp_path / name))
    assert ingest.read(spark, [str(tmp_path / "one"), str(tmp_path / "two")]).events.count() == 4


@pytest.mark.slow
def test_parquet_of_another_program_is_sorted_only_where_a_line_is_there_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = four_lines(spark)
    events.write.parquet(str(tmp_path / "once"))
    events.unionAll(events.limit(2)).write.parquet(str(tmp_path / "twice"))
    once, twice = (ingest.read(spark, str(tmp_path / name)).events for name in ("once", "twice"))
    assert (once.count(), twice.count()) == (4, 4)
    plans = [each._jdf.queryExecution().toString() for each in (once, twice)]
    assert ["row_number" in plan for plan in plans] == [False, True]


NOW = datetime.now(UTC)


@pytest.mark.slow
def test_the_quarantine_is_what_the_contract_says(spark: SparkSession, tmp_path: Path) -> None:
    """The test takes the vectors, and lines derived by hypothesis, all at once, since Spark is slow to
    start.
    """
    texts = [each["line"] for each in vectors()]

    @settings(max_examples=400, derandomize=True, database=None, phases=[Phase.generate])
    @given(mutated())
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    distinct = list(dict.fromkeys(texts))
    (tmp_path / "some.jsonl").write_text("\n".join(distinct) + "\n")
    rows = ingest.quarantine_of(ingest.flat(ingest.parse(spark.read.text(str(tmp_path))))).collect()
    quarantined = {row["line"]: row["error"] for row in rows}
    for text in distinct:
        verdict = check(text, NOW)
        assert (text in quarantined) == is_quarantined(verdict), (text, verdict, quarantined.get(text))
    for each in vectors():
        # if JSON ends inside the data, Spark has the id and the type by then
        also = (Reason.OTHER_TYPE,) if each["reason"] == Reason.NOT_JSON else ()
        assert quarantined.get(each["line"]) in {_quarantined(each["reason"]), *also}, each["name"]


def _quarantined(reason: str | None) -> str | None:
    """Return the reason in the quarantine; readers take lines that only violate the schema of their type."""
    return None if reason == Reason.VIOLATION else reason
