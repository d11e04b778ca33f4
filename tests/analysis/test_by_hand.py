"""The whole job on the telemetry of the second producer; every expected number was computed by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from haclient.analysis import job
from haclient.telemetry.contract.check import check
from haclient.telemetry.schema import Reason
from tests.analysis import by_hand, stored

Rows = list[dict[str, Any]]


class Done(NamedTuple):
    tables: dict[str, Rows]
    summary: job.Summary


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("by hand")
    telemetry, out = folder / "telemetry", folder / "out"
    telemetry.mkdir()
    for place, lines in enumerate(by_hand.files()):
        (telemetry / f"{place}.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        _without_report(patch)
        summary = job.run(spark, job.Job(source=str(telemetry), out=out))
    return Done(stored.tables(out), summary)


def _without_report(patch: pytest.MonkeyPatch) -> None:
    from haclient.analysis.report import data

    patch.setattr(data, "report_tables", lambda *_: {})


def test_the_second_producer_keeps_the_contract_of_telemetry() -> None:
    lines = [line for file in by_hand.files() for line in file]
    verdicts = Counter(check(line, by_hand.EIGHT + timedelta(hours=5)).reason for line in lines)
    assert verdicts == {None: len(lines) - 3, Reason.NOT_JSON: 2, Reason.IMPLAUSIBLE: 1}


def where(rows: Rows, holds: Callable[[dict[str, Any]], bool]) -> Rows:
    return [row for row in rows if holds(row)]


ENDS = {
    "ends-back": ("back", 3.5, None),
    "ends-gave-up": ("gave_up", None, 880.0),
    "ends-closed": ("closed", None, None),
    "ends-replaced": ("replaced", None, None),
    "ends-silent": ("silent", None, 820.0),
    "ends-open": ("open", None, 100.0),
}


@pytest.mark.slow
def test_each_outage_has_its_end(done: Done) -> None:
    outages = where(
        done.tables["episodes"], lambda row: row["client_id"].startswith("ends-") and row["outage"] == 2
    )
    columns = ("episode_result", "downtime", "longer_than")
    assert {row["client_id"]: tuple(row[name] for name in columns) for row in outages} == ENDS


@pytest.mark.slow
def test_a_kill_a_clean_stop_and_a_silence_are_told_apart(done: Done) -> None:
    """The line of the last one lacks it: an older client wrote it."""
    lost = where(done.tables["episodes"], lambda row: row["outage"] > 1)
    assert Counter((row["cluster"], row["lost_kind"]) for row in lost) == {
        ("loop", "cut"): 12,
        ("restart", "close"): 4,
        ("night", "cut"): 100,
        ("night", "silence"): 100,
        ("ends", "cut"): 4,
        ("ends", "silence"): 1,
        ("ends", None): 1,
    }


@pytest.mark.slow
def test_a_first_connect_that_takes_more_than_a_minute_was_never_there(done: Done) -> None:
    never = where(done.tables["episodes"], lambda row: bool(row["never_connected"]))
    assert [(row["client_id"], row["longer_than"]) for row in never] == [("ends-never", 980.0)]
    gone = {row["client_id"]: row["episode_result"] for row in done.tables["not_recovered"]}
    away = {"ends-gave-up": "gave_up", "ends-silent": "silent", "ends-open": "open", "ends-never": "open"}
    assert gone == away, "all that the alarms count: they send a reader to this table"


@pytest.mark.slow
def test_the_summary(done: Done) -> None:
    """The 110th and 111th of 220 downtimes are 4.7 s; the 217th is open for 100 s, the 218th took 400 s."""
    expected = {
        "outages": 222,
        "back": 217,
        "back_untimed": 0,
        "gave_up": 1,
        "closed": 1,
        "replaced": 1,
        "open": 1,
        "silent": 1,
        "never_connected": 1,
        "p50_downtime": 4.7,
        "p50_is_bound": 0,
        "p90_downtime": 9.1,
        "p90_is_bound": 0,
        "p99_downtime": 343.0,
        "p99_is_bound": 1,
        "max_downtime": 880.0,
        "max_is_bound": 1,
        "attempts_per_outage": 223 / 222,
        "alarms": 6,
        "critical_alarms": 2,
        "lost_lines": 2,
        "bad_lines": 3,
    }
    assert {name: done.summary[name] for name in expected} == pytest.approx(expected)


@pytest.mark.slow
def test_two_floods_of_a_night_are_two_storms_and_one_of_the_first_is_a_straggler(done: Done) -> None:
    """Four further connections are no storm, whatever else is lost."""
    columns = ("cluster", "started_at", "ended_at", "clients_hit", "attempts", "stragglers", "saturated")
    found = [tuple(row[name] for name in columns) for row in done.tables["storms"]]
    assert sorted(found) == [
        ("night", "2026-11-20T08:05:00", "2026-11-20T08:05:10", 100, 100, 1, False),
        ("night", "2026-11-20T08:08:20", "2026-11-20T08:08:30", 100, 100, 0, False),
    ]
    alarms = where(done.tables["alarms"], lambda row: row["kind"] == "storm")
    assert {(row["severity"], row["detail"]) for row in alarms} == {
        ("notice", "100 connections were lost at once")
    }


@pytest.mark.slow
def test_a_burst_is_counted_once_and_three_are_an_alarm(done: Done) -> None:
    scores = {row["server_address"]: row["flapping_score"] for row in done.tables["members"]}
    assert scores == {
        "quiet-a": 0,
        "ends-a": 0,
        "loop-a": 3,
        "restart-a": 1,
        "restart-b": 0,
        "night-a": 1,
        "night-b": 1,
        "delays-a": 0,
        "clocks-a": 0,
    }


AHEAD = (
    "1 processes were heard up to 3590.0 s later than all others: "
    "their clocks are fast, or the others are gone"
)
ALARMS = {
    (
        "critical",
        "not_back",
        "ends",
        "3 connections are not back: 1 silent, 1 gave up, 1 still searching",
    ),
    ("critical", "never_connected", None, "1 connections were never there"),
    ("warning", "flapping", "loop", "3 times in an hour it lost at least half of its connections at once"),
    (
        "warning",
        "uneven_delays",
        None,
        "strategy full, ceiling 0.500 s, round 3: distance 0.500 of 60 delays",
    ),
    ("warning", "lost_telemetry", "ends", "2 lines are missing, of 1 connections"),
    ("warning", "quarantine", None, "3 lines of 1 files are in quarantine"),
    ("notice", "clock", None, "1 wall clocks were set while their process ran, by up to 30.0 s"),
    ("notice", "clock", None, AHEAD),
}


@pytest.mark.slow
def test_alarms_have_a_severity_and_the_next_step(done: Done) -> None:
    alarms = where(done.tables["alarms"], lambda row: row["kind"] != "storm")
    found = {(row["severity"], row["kind"], row["cluster"], row["detail"]) for row in alarms}
    assert found == ALARMS
    assert all(row["action"] and row["meaning"] for row in done.tables["alarms"])


@pytest.mark.slow
def test_equal_delays_are_marked_and_even_ones_are_not(done: Done) -> None:
    found = {
        row["round"]: (row["delays"], row["judged"], row["ks_statistic"], row["verdict"])
        for row in done.tables["jitter"]
    }
    assert found == {
        3: (60, 60, 0.5, "marked"),
        4: (60, 60, pytest.approx(0.5 / 60), "as promised"),
    }
