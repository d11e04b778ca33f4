"""What the report says in words: the seven answers, and what to do; the figures are counted by hand."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from haclient.analysis.report import baseline, charts, findings
from haclient.analysis.report.actions import actions
from haclient.analysis.report.baseline import BaselineError
from tests.analysis.report_tables import tables

Given = dict[str, list[dict[str, Any]]]


def _said(given: Given, slo: float = 0.999, compared: baseline.Rows = ()) -> dict[str, str]:
    found = findings.answers(given, compared, actions(given), slo)
    assert [one.section for one in found] == ["away", "happened", "hit", "long", "why", "compared", "do"]
    return {one.section: one.answer for one in found}


def _hit(*rows: tuple[str, str | None, int, int, int]) -> list[dict[str, Any]]:
    return [
        {"attribute": name, "value": value, "connections": connections, "hit": hit, "away": away}
        for name, value, connections, hit, away in rows
    ]


def test_a_quiet_night_is_said_in_words() -> None:
    quiet = _said({"headline": [{"connections": 400, "outages": 0, "clients_hit": 0, "away": 0}]})
    assert quiet == {
        "away": "No. No connection was lost.",
        "happened": "Nothing: no connection was lost.",
        "hit": "Nobody.",
        "long": "No time was lost.",
        "why": "No connection was lost, and no attempt failed.",
        "compared": "No former run was given; --baseline DIR compares with one.",
        "do": "Nothing.",
    }


def test_nobody_is_away_after_a_failover_in_which_everyone_was_hit() -> None:
    said = _said({"headline": [{"connections": 600, "outages": 610, "clients_hit": 600, "away": 0}]})
    assert said["away"].startswith("No. Every connection that was lost is back")
    assert said["hit"] == "Everybody: all 600 connections, in 610 outages."


def test_half_the_fleet_is_gone_and_the_region_that_it_shares_is_named() -> None:
    said = _said(
        {
            "headline": [
                {
                    "connections": 1000,
                    "outages": 1000,
                    "clients_hit": 1000,
                    "away": 500,
                    "open": 490,
                    "silent": 10,
                }
            ],
            "away": [{"since": "2026-11-23 06:40:00.012", "connections": 500, "error": "timed-out"}],
            "hit": _hit(
                ("cloud.region", "eu-west-1", 500, 500, 500),
                ("cloud.region", "eu-central-1", 500, 500, 0),
                ("service.name", "billing", 400, 400, 200),
                ("service.name", "shop", 600, 600, 300),
            ),
        }
    )
    assert said["away"] == (
        "Yes: 500 of 1,000 connections (50 %), the first since 2026-11-23 06:40:00 UTC: 490 still searching "
        "and 10 silent since the loss. All that are away have cloud.region eu-west-1 (500 of its 500 "
        "connections; none of the other 500)."
    )
    route = "Check the route and firewalls between them and the broker, and whether it is overloaded."
    assert said["do"] == f"{route} This is for the 500 that are away with cloud.region eu-west-1."


def test_a_version_that_never_comes_back_is_to_be_rolled_back() -> None:
    given: Given = {
        "headline": [
            {"connections": 900, "outages": 9, "clients_hit": 209, "away": 200, "never_connected": 200}
        ],
        "away": [{"since": "2026-11-23 06:25:03.000", "connections": 200, "error": "authentication"}],
        "hit": _hit(
            ("service.version", "2.5.0", 200, 200, 200),
            ("service.version", "2.4.0", 100, 1, 0),
            ("service.version", "3.2.0", 600, 8, 0),
        ),
        "deploys": [
            {
                "at": "2026-11-23 06:25:03.000",
                "service": "billing",
                "attribute": "service.version",
                "value": "2.5.0",
                "before": "2.4.0",
            }
        ],
        "timeline": [{"at": 0, "width": 1, "lost": 209, "in_storm": 0, "ended": 9}],
    }
    said = _said(given)
    assert (
        "All that are away have service.version 2.5.0 (200 of its 200 connections; none of the other 700)."
        in (said["away"])
    )
    assert (
        "billing began to run service.version 2.5.0 after 2.4.0 at 2026-11-23 06:25:03 UTC."
        in said["happened"]
    )
    assert "fail mostly with authentication: wrong credentials" in said["why"]
    assert said["do"].startswith("Roll service.version 2.5.0 of billing back to 2.4.0")
    assert [row["severity"] for row in actions(given)] == ["critical", "critical"]


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ((("zone", "a", 50, 0, 50), ("zone", "b", 50, 0, 0)), ["a"]),
        ((("zone", "a", 50, 0, 45), ("zone", "b", 50, 0, 5)), ["a"]),  # nine tenths, nine times as likely
        ((("zone", "a", 50, 0, 44), ("zone", "b", 50, 0, 6)), []),
        ((("zone", "a", 100, 0, 50),), []),  # the whole fleet has it
        ((("zone", "a", 90, 0, 45), ("zone", "b", 10, 0, 5)), []),  # as likely with as without
        ((("zone", None, 50, 0, 50), ("zone", "b", 50, 0, 0)), []),  # the others together are no value
        ((("zone", "a", 50, 0, 0), ("zone", "b", 50, 0, 0)), []),
    ],
)
def test_what_those_who_are_away_share_makes_it_likelier(
    rows: tuple[tuple[str, str | None, int, int, int], ...], shared: list[str]
) -> None:
    assert [one.value for one in findings.shared(_hit(*rows), "away")] == shared


def test_lost_minutes_are_set_against_the_objective() -> None:
    """Ten connections for an hour are 600 minutes; of 99 % six may be lost, and nine were."""
    headline = {"connections": 10, "outages": 9, "clients_hit": 9, "seconds": 36_000.0, "lost": 540.0}
    assert findings.how_long(headline, 0.99) == (
        "9 connection-minutes were lost of 600 (1.5 %); an objective of 99 % allows 6: 150 % of that."
    )
    [row] = findings.budgets([headline], 0.99)
    assert (row["allowed"], row["used"], row["usable"]) == pytest.approx((360.0, 1.5, 0.985))
    assert findings.how_long(headline, 1.0).endswith("an objective of 100 % allows 0: it allows none.")


def test_a_former_run_is_compared_metric_by_metric() -> None:
    now = {
        "outages": 110.0,
        "p99_downtime": 12.0,
        "p99_is_bound": 1.0,
        "silent": 3.0,
        "alarms": 0.0,
        "events": 5.0,
    }
    before = {"outages": 105.0, "p99_downtime": 6.0, "alarms": 2.0, "events": 9.0}
    rows = {row["metric"]: row for row in baseline.compared(now, before)}
    assert (rows["p99_downtime"]["now"], rows["p99_downtime"]["change"]) == ("over 12 s", "+100 %")
    assert rows["alarms"]["change"] == "\N{MINUS SIGN}100 %"
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "outages": "",
        "p99_downtime": "worse",
        "silent": "worse",
        "alarms": "better",
        "events": "",
    }
    said = _said({"baseline": [{"summary": before}]}, compared=list(rows.values()))["compared"]
    worse = "Worse: silent 3, was \N{EN DASH}; p99 downtime over 12 s, was 6 s."
    assert said == f"{worse} Better: alarms to act on 0, was 2."


def test_a_former_run_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(
        json.dumps({"source": "logs", "summary": {"outages": 3, "open": None}})
    )
    found = baseline.read(tmp_path)
    assert found == {"folder": str(tmp_path), "source": "logs", "summary": {"outages": 3.0}}


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"summary": {"outages": "many"}}', '{"summary": 3}', "\x00"]
)
def test_a_folder_that_is_no_former_run_is_named(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    with pytest.raises(BaselineError, match=r"summary\.json") as caught:
        baseline.read(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - its own


def test_an_alarm_has_its_own_severity_and_next_action() -> None:
    alarm = {"kind": "flapping", "cluster": "orders", "at": "2026-11-23 06:00:00.000", "detail": "4 times"}
    [own] = actions({"alarms": [{**alarm, "severity": "critical", "action": "Drain it."}]})
    assert (own["severity"], own["what"], own["action"]) == ("critical", "flapping in orders", "Drain it.")
    [unknown] = actions({"alarms": [{**alarm, "kind": "new", "severity": "grave"}]})
    assert (unknown["severity"], unknown["action"]) == ("warning", "Look at the detail of the alarm.")


def test_the_most_urgent_comes_first() -> None:
    assert [row["severity"] for row in actions(tables())] == ["critical", "critical", "critical", "consider"]


def test_the_timeline_counts_who_is_away_before_each_column() -> None:
    rows = [
        {"at": 100, "width": 10, "lost": 5, "in_storm": 4, "ended": 1},
        {"at": 130, "width": 10, "lost": 1, "in_storm": 0, "ended": 4},
    ]
    period = {"first_at": "1970-01-01 00:01:25.000", "last_at": "1970-01-01 00:02:31.000"}
    found = charts.columns(rows, period)
    assert [(row["at"], row["before"], row["storm"], row["single"], row["ended"]) for row in found] == [
        (80, 0, 0, 0, 0),
        (90, 0, 0, 0, 0),
        (100, 0, 4, 1, 1),
        (110, 4, 0, 0, 0),
        (120, 4, 0, 0, 0),
        (130, 4, 0, 1, 4),
        (140, 1, 0, 0, 0),
        (150, 1, 0, 0, 0),
    ]


def test_the_timeline_is_bounded_whatever_the_rows_say() -> None:
    rows = [{"at": at, "width": 1, "lost": 1, "in_storm": 0, "ended": 0} for at in (0, 10**6)]
    assert len(charts.columns(rows, {})) == charts.MOST
