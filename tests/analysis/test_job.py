from __future__ import annotations

import json
import sys
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from haclient.analysis import job
from haclient.analysis.io import ingest
from haclient.analysis.io.package import build
from haclient.analysis.io.session import LIGHT
from haclient.analysis.job import BROKEN, OK, UNUSABLE, InputError, Job
from haclient.analysis.tables import clock
from haclient.analysis.thresholds import METRICS
from haclient.telemetry.schema import Kind
from tests.analysis import small_fleet, stored
from tests.analysis.local_job import Done, local

pytestmark = pytest.mark.slow  # whole jobs

__all__ = ["local"]


def test_a_job_stores_every_table_as_parquet_and_json(local: Done) -> None:
    out = local.out
    found = stored.tables(out)
    assert {"episodes", "storms", "members", "alarms", "not_recovered", "advice", "quarantine"} <= set(found)
    for name, rows in found.items():
        assert stored.lines(out / "json" / name) == len(rows), name


def test_a_job_gives_all_metrics_and_stores_them(local: Done) -> None:
    assert set(local.summary) == set(METRICS)
    stored_summary = json.loads((local.out / "summary.json").read_text())
    assert stored_summary["source"] == str(local.telemetry)
    assert stored_summary["summary"] == local.summary
    rows = stored.tables(local.out)["alarms"]
    assert len(stored_summary["alarms"]) == len(rows) > 0
    assert all(alarm["action"] for alarm in stored_summary["alarms"])
    assert local.summary["alarms"] == sum(alarm["severity"] != "notice" for alarm in rows)
    assert (local.out / "report.html").read_text().startswith("<!")


def test_the_metrics_are_those_of_the_lines(local: Done) -> None:
    figures = local.summary
    text = "".join(path.read_text() for path in local.telemetry.glob("*.jsonl"))
    lines = {line for line in text.splitlines() if line.startswith("{")}
    told = [json.loads(line) for line in lines]
    kinds = [line["type"].rpartition(".")[2] for line in told]
    downtimes = {
        line["data"]["haclient.outage.id"]: line["data"]["haclient.outage.duration"]
        for line in told
        if line["type"] == Kind.CONNECTED and line["data"]["haclient.outage.number"] > 1
    }
    heard = {line["source"]: line["time"] for line in sorted(told, key=lambda line: line["time"])}
    as_of = datetime.fromisoformat(sorted(heard.values())[-2])
    away = [
        (as_of - datetime.fromisoformat(line["time"])).total_seconds()
        for line in told
        if line["type"] == Kind.LOST and line["data"]["haclient.outage.id"] not in downtimes
    ]
    assert figures["events"] == len(lines)
    assert figures["outages"] == kinds.count("lost")
    assert figures["back"] == len(downtimes)
    assert figures["bad_lines"] == sum(not line.startswith("{") for line in text.splitlines())
    assert figures["lost_lines"] == 0
    assert figures["open"] + figures["silent"] == len(away) > 0
    assert max(away) > max(downtimes.values())
    assert figures["max_downtime"] == pytest.approx(max(away), abs=0.01)
    assert figures["max_is_bound"] == 1


def test_the_job_says_who_was_hit(local: Done) -> None:
    rows = json.loads((local.out / job.HIT_BY).read_text())
    versions = {row["value"]: row for row in rows if row["attribute"] == "service.version"}
    assert versions.keys() == {"1.0", "1.1"}
    assert sum(row["outages"] for row in versions.values()) == local.summary["outages"]
    text = "".join(path.read_text() for path in local.telemetry.glob("*.jsonl"))
    told = [json.loads(line) for line in set(text.splitlines()) if line.startswith("{")]
    for version, row in versions.items():
        lost = [
            line for line in told if line["type"] == Kind.LOST and line["data"]["service.version"] == version
        ]
        assert row["outages"] == len(lost)
        assert row["connections_hit"] == len({line["data"]["messaging.client.id"] for line in lost})


@pytest.mark.usefixtures("no_report")
@pytest.mark.usefixtures("no_report")
def test_a_light_session_gives_the_same_tables(spark: SparkSession, local: Done, tmp_path: Path) -> None:
    light = spark.newSession()
    for name, value in LIGHT.items():
        if name.startswith("spark.sql."):  # the others are of the JVM
            light.conf.set(name, value)
    figures = job.run(light, Job(source=str(local.telemetry), out=tmp_path))
    assert figures == pytest.approx(local.summary)
    assert stored.tables(tmp_path) == stored.tables(local.out)


def test_stored_lines_give_the_same_tables_again(spark: SparkSession, local: Done, tmp_path: Path) -> None:
    out, figures = local.out, local.summary
    again = job.run(spark, Job(source=str(out / "events"), out=tmp_path))
    # its alarm goes with the quarantine
    assert again == {**figures, "bad_lines": 0, "alarms": figures["alarms"] - 1}
    assert not (tmp_path / "events").exists()


def test_lines_are_narrowed_to_a_time_and_a_cluster(spark: SparkSession, local: Done, tmp_path: Path) -> None:
    middle = small_fleet.START.replace(second=30)
    events = clock.placed(ingest.read(spark, str(local.telemetry)).events)
    given = {"source": str(local.telemetry), "out": tmp_path}

    early = job.narrowed(events, Job(**given, until=middle)).count()
    late = job.narrowed(events, Job(**given, since=middle)).count()
    assert early > 0
    assert late > 0
    assert early + late == events.count()
    assert job.narrowed(events, Job(**given, cluster="prod")).count() == events.count()
    assert job.narrowed(events, Job(**given, cluster="other")).count() == 0


def test_lines_before_the_cluster_was_known_belong_to_it(spark: SparkSession) -> None:
    events = spark.createDataFrame(
        [
            ("p", "a", 1, None),
            ("p", "a", 1, "prod"),
            ("p", "b", 1, None),
            ("p", "b", 1, "test"),
            ("m", None, None, "prod"),
        ],
        "source STRING, client_id STRING, connection BIGINT, cluster STRING",
    )
    found = job.narrowed(events, Job(source="", out=Path(), cluster="prod"))
    assert sorted(map(str, (tuple(row) for row in found.collect()))) == [
        "('m', None, None, 'prod')",
        "('p', 'a', 1, 'prod')",
        "('p', 'a', 1, None)",
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such directory"),
        ({}, "no file in it"),
        ({"a.jsonl": ""}, "no line of telemetry in it"),
        (
            {"a.jsonl": "one\ntwo\n"},
            r"none of its 2 lines is telemetry; the first, in file:.*a\.jsonl: not JSON",
        ),
    ],
)
def test_input_that_cannot_be_used_is_an_error(
    spark: SparkSession, tmp_path: Path, content: dict[str, str] | None, complaint: str
) -> None:
    folder = tmp_path / "in"
    if content is not None:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text)
    with pytest.raises(InputError, match=complaint):
        job.run(spark, Job(source=str(folder), out=tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "size", "small"),
    [
        ("a.jsonl", 1 << 20, True),
        ("a.jsonl", 40 << 20, False),
        ("deep/a.jsonl.gz", 1 << 20, True),
        ("deep/a.jsonl.gz", 4 << 20, False),
        ("date=2026-11-20/part-0.parquet", 4 << 20, False),
    ],
)
def test_a_small_input_is_known_by_the_size_of_its_files(
    tmp_path: Path, name: str, size: int, *, small: bool
) -> None:
    file = tmp_path / "telemetry" / name
    file.parent.mkdir(parents=True)
    with file.open("wb") as made:
        made.truncate(size)
    assert job.is_light(Job(source=str(tmp_path / "telemetry"), out=tmp_path)) == small


@pytest.mark.parametrize(
    "given", [{"source": "s3a://bucket/telemetry"}, {"source": "/telemetry", "remote": True}]
)
def test_what_is_elsewhere_is_not_taken_for_small(tmp_path: Path, given: dict[str, Any]) -> None:
    assert not job.is_light(Job(**given, out=tmp_path))


def test_the_submitted_job_ends_with_an_exit_code(
    spark: SparkSession,
    local: Done,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(job, "spark_session", lambda: spark)
    monkeypatch.setattr(job, "run", lambda *_: local.summary)
    given = [str(local.telemetry), "--out", str(tmp_path)]

    assert job.main([*given, "--fail-if", "outages<1"]) == OK
    assert json.loads(capsys.readouterr().out)["bad_lines"] == 5
    assert job.main([*given, "--fail-if", "bad_lines>3"]) == BROKEN
    assert capsys.readouterr().err == "bad_lines is 5, and must not be > 3\n"


def test_the_submitted_job_prints_what_it_cannot_use(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "spark_session", lambda: spark)
    assert job.main([str(tmp_path / "nothing"), "--out", str(tmp_path)]) == UNUSABLE
    assert capsys.readouterr().err == f"{tmp_path / 'nothing'}: no such directory\n"


def test_the_package_has_the_analysis_and_not_the_client(tmp_path: Path) -> None:
    script = build(tmp_path / "dist" / "haclient.zip")
    names = zipfile.ZipFile(tmp_path / "dist" / "haclient.zip").namelist()

    assert script.name == "haclient_analyze.py"
    assert {"haclient/analysis/job.py", "haclient/telemetry/schema.py"} <= set(names)
    packaged = (
        "haclient/analysis/",
        "haclient/command_line/",
        "haclient/telemetry/",
        "haclient/__init__",
        "haclient/version",
    )
    assert [name for name in names if not name.startswith(packaged)] == []


def test_the_same_tree_gives_the_same_package(tmp_path: Path) -> None:
    build(tmp_path / "a.zip")
    build(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_the_package_runs_where_the_client_is_not_installed(tmp_path: Path) -> None:
    import subprocess

    build(tmp_path / "haclient.zip")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.modules['proton'] = sys.modules['click'] = None;"
        "import haclient.analysis.job as job, haclient.analysis.stream; print(job.__file__);"
        "from haclient.analysis.report.render import render;"
        "from datetime import UTC, datetime;"
        "assert '<' in render({}, title='', generated_at=datetime.now(UTC))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "haclient.zip")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert done.stdout.startswith(str(tmp_path / "haclient.zip"))
