"""Lines with a misleading identity, through the batch job and a stream that restarts in the middle.

The truth is computed by hand.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from haclient.analysis import job
from haclient.analysis.io import ingest
from haclient.analysis.job import Job
from haclient.telemetry.schema import DATA, Kind
from tests.analysis import stored
from tests.analysis.test_stream import same_results, stream, without_tables

NAMES = {key.column: key.name for key in DATA}
START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SENSORS = 2
BEFORE_ITS_TIME = 60  # lines of each


def line(
    process: str, number: int, kind: str, at: float, *, moment: str = "", **facts: Any
) -> dict[str, Any]:
    """Return a line of the only connection of a process, in its first episode."""
    given = {
        "client_id": process,
        "instance": process,
        "connection": 1,
        "outage": 1,
        "cluster": "prod",
        "sequence": number,
        "monotonic": 100 + at,
        **facts,
    }
    return {
        "id": f"id-{number}",  # the same in each process, as with writers that got one seed
        "source": f"/haclient/{process}",
        "type": kind,
        "time": moment or (START + timedelta(seconds=at)).isoformat().replace("+00:00", "Z"),
        "data": {NAMES[column]: value for column, value in given.items() if value is not None},
    }


def without(key: str, from_: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in from_.items() if name != key}


def life(process: str) -> list[dict[str, Any]]:
    """Return four lines, one of them of a type of the future."""
    return [
        line(process, 1, Kind.ATTEMPT, 1.0, server_address="a", server_port=5672.0, attempt_duration=0.5),
        line(process, 2, Kind.CONNECTED, 1.5, moment="2026-11-21t08:00:01.500000z", outage_duration=1.0),
        line(process, 3, "haclient.connection.renamed", 2.0, outage=None),
        line(process, 4, Kind.ALIVE, 61.0),
    ]


def sensor(process: str) -> list[dict[str, Any]]:
    """Return a device that starts in 1970, and gets the time in its first outage, which takes 70 s."""
    early = [
        line(process, number, Kind.ATTEMPT, number / 10, moment=f"1970-01-01T00:00:{number // 2:02}Z")
        for number in range(1, BEFORE_ITS_TIME)
    ]
    lost = line(process, BEFORE_ITS_TIME, Kind.LOST, 6.0, moment="1970-01-01T00:00:30Z", outage=2)
    late = [line(process, 60 + number, Kind.ATTEMPT, 70.0 + number, outage=2) for number in range(1, 5)]
    return [*early, lost, *late, line(process, 65, Kind.CONNECTED, 76.0, outage=2, outage_duration=70.0)]


BAD = (
    line("bad", 1, Kind.ALIVE, 0.0, moment="2026"),
    line("bad", 2, Kind.ALIVE, 0.0, moment="T08:00:00"),
    line("bad", 3, Kind.ALIVE, 0.0, moment="2026-11-21"),
    line("bad", 4, Kind.ALIVE, 0.0, server_port=5672.5),
    line("bad", 5, Kind.ALIVE, float("nan"), moment="2026-11-21T08:00:00Z"),
)
FILES = (
    [*life("a"), *life("b"), *sensor("sensor-0"), without("source", life("nameless")[0])],
    [
        life("a")[0],
        {**life("a")[1], "time": "2026-11-22T08:00:01.5Z"},  # copies with another date
        {**life("b")[1], "time": "2026-11-20T08:00:01.5Z"},
        life("nameless")[0],
        *sensor("sensor-1"),
        *(line("gap", number, Kind.ALIVE, number) for number in (1, 2, 5)),
        line("gap", 0, Kind.DROPPED, 9.0, sequence=None, connection=None, dropped=2),
    ],
    [
        *BAD,
        *life("end"),
        line("end", 0, Kind.DROPPED, 99.0, sequence=None, connection=None, dropped=3),
    ],
)


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_batch_and_stream_know_a_line_by_its_source_and_id(spark: SparkSession, tmp_path: Path) -> None:
    telemetry, batch, streamed = (tmp_path / name for name in ("telemetry", "batch", "streamed"))
    telemetry.mkdir()
    for place, lines in enumerate(FILES):
        (telemetry / f"{place}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        last = place == len(FILES) - 1
        with (stream if last else without_tables)(spark, telemetry, streamed) as life_of_it:
            life_of_it.round()
    summary = job.run(spark, Job(source=str(telemetry), out=batch))

    distinct = {(one.get("source"), one["id"]) for lines in FILES for one in lines} - {(None, "id-1")}
    assert summary["events"] == len(distinct) - len(BAD) == 4 * 3 + 1 + 65 * SENSORS + 4 + 1
    assert summary["bad_lines"] == len(BAD) + BEFORE_ITS_TIME * SENSORS
    assert summary["lost_lines"] == 2 + 3
    assert (summary["outages"], summary["back"], summary["max_downtime"]) == (SENSORS, SENSORS, 70.0)
    found = stored.tables(batch)
    lost_lines = [alarm["detail"] for alarm in found["alarms"] if alarm["kind"] == "lost_telemetry"]
    assert sorted(lost_lines) == [
        "2 lines are missing, of 1 connections",
        "3 lines were dropped by 1 processes: queue or disk was full",
    ]
    assert [member["server_port"] for member in found["members"] if member["server_address"]] == [5672]
    lost = [row["lost_at"] for row in found["episodes"] if row["outage"] == 2]
    assert lost == ["2026-11-21T08:00:06"] * SENSORS
    back = {row["client_id"]: row["back_at"] for row in found["episodes"] if row["client_id"] in "ab"}
    assert back == {"a": "2026-11-21T08:00:01.500000", "b": "2026-11-21T08:00:01.500000"}
    same_results(streamed, batch)


def test_a_store_is_unique_by_source_and_id(spark: SparkSession, tmp_path: Path) -> None:
    lines = [*life("a"), *life("b"), *life("a")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    ingest.store(ingest.read(spark, str(tmp_path / "a.jsonl")).events, str(tmp_path / "store"))
    again = ingest.read(spark, str(tmp_path / "store")).events
    assert again.schema["event_id"].metadata == ingest.UNIQUE
    assert again.count() == 8
