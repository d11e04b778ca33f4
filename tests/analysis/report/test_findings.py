"""The sentences of the report: the seven answers, and the recommended actions; figures are counted by
hand.
"""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from haclient.analysis.alarms import KINDS
from haclient.analysis.report import baseline, charts, findings, text
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


def test_the_answer_says_as_of_when() -> None:
    quiet = {"connections": 4, "outages": 0, "away": 0, "last_at": "2026-11-23 07:00:00.250"}
    assert _said({"headline": [quiet]})["away"] == (
        "No, as of 2026-11-23 07:00:00 UTC. No connection was lost."
    )
    lost = {**quiet, "outages": 1, "clients_hit": 1}
    assert _said({"headline": [lost]})["away"].startswith(
        "No, as of 2026-11-23 07:00:00 UTC. Every connection"
    )
    away = {**lost, "away": 1, "silent": 1}
    assert _said({"headline": [away]})["away"] == (
        "Yes, as of 2026-11-23 07:00:00 UTC: 1 of 4 connections (25 %): 1 silent."
    )


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
        "and 10 silent. All that are away have cloud.region eu-west-1 (500 of its 500 "
        "connections; none of the other 500)."
    )
    route = "Check the route and firewalls between them and the broker: others reach it."
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


def test_shares_leave_out_processes_that_ended_unhurt_and_say_so() -> None:
    """A deploy replaces 200 of 900 processes: 1,100 connections, of which 900 exist at a time."""
    headline = {"connections": 1100, "ended": 200, "outages": 7, "clients_hit": 207, "away": 200}
    given: Given = {
        "headline": [{**headline, "never_connected": 200}],
        "hit": [
            {**row, "ended": ended}
            for row, ended in zip(
                _hit(("service.version", "2.5.0", 200, 200, 200), ("service.version", "2.4.0", 900, 7, 0)),
                (0, 200),
                strict=True,
            )
        ],
    }
    said = _said(given)
    assert said["away"].startswith("Yes: 200 of 900 connections (22.2 %): 200 never connected. All that are")
    assert said["away"].endswith("(200 of its 200 connections; none of the other 700).")
    assert said["hit"].startswith("207 of 900 connections (23 %), in 7 outages and 200 first connects")
    assert said["hit"].endswith(
        "Not counted: 200 connections that ended without an outage before the end of the period, closed or "
        "with their process, as old pods of a deploy do."
    )
    whole = {**headline, "connections": 800, "ended": 200, "clients_hit": 600}
    assert _said({"headline": [whole]})["hit"].startswith("Everybody: all 600 connections, in 7 outages. Not")


def test_a_bar_shows_apart_who_ended_before() -> None:
    rows = [{"value": "2.4.0", "connections": 900, "hit": 7, "away": 1, "ended": 200}]
    bars = charts.hit(rows).specification()
    assert [(row["state"], row["count"]) for row in bars["datasets"]["bars"]] == [
        ("away", 1),
        ("hit, and back", 6),
        ("not hit", 693),
        ("ended before", 200),
    ]
    without = json.dumps(charts.hit([{**rows[0], "ended": 0}]).specification())
    assert "ended before" not in without, "no legend for nothing"


def test_the_curve_says_what_it_counts() -> None:
    assert findings.curve({"outages": 610, "away": 0}) == (
        "Of 610 outages: the share that had ended, by downtime. All have ended."
    )
    assert findings.curve({"outages": 7, "never_connected": 200, "away": 200}) == (
        "Of 7 outages and 200 first connects that never succeeded: the share that had ended, by downtime. "
        "The 200 that are away keep the curve below 100 %."
    )


def test_names_are_cut_in_their_middle_and_no_two_are_alike() -> None:
    long = [f"broker-{letter}.orders.some-region.internal.example:5671" for letter in "ab"]
    assert text.label(long[0]) == "broker-a.orders.some…ternal.example:5671"
    labels = text.axis_labels([*long, "short", "x" * 50 + "y" * 50, "x" * 40 + "z" * 20 + "y" * 40, "x" * 30])
    assert labels["short"] == "short"
    assert labels[long[1]] == "broker-b.orders.some\n…ternal.example:5671"
    assert len(set(labels.values())) == len(labels)
    assert all(len(line) <= text.LINE + 4 for label in labels.values() for line in label.split("\n"))


def test_a_bar_has_its_whole_name_where_the_pointer_rests() -> None:
    name = f"broker-a.{'very-' * 20}long.example:5671"
    row = {"endpoint": name, "error": "refused", "failures": 3}
    [bar] = charts.failures([row]).specification()["datasets"]["bars"]
    assert bar["full"] == name
    assert "\n" in bar["endpoint"]


def _deployed() -> Given:
    """Let 200 clients with a wrong password dial the primary a, and the passive b that redirects them to
    it.
    """
    common: dict[str, Any] = {"server_port": 5671, "attempts": 27_730}
    return {
        "headline": [
            {
                "connections": 900,
                "outages": 7,
                "clients_hit": 207,
                "away": 200,
                "never_connected": 200,
                "last_at": "2026-11-23 06:59:59.000",
                "p50": 0.035,
                "p99": 0.096,
                "max": 0.0975,
            }
        ],
        "away": [
            {
                "since": "2026-11-23 06:25:03.000",
                "connections": 200,
                "error": "authentication",
                "service": "billing",
            }
        ],
        "timeline": [{"at": 0, "width": 1, "lost": 207, "in_storm": 0, "never": 200, "ended": 7}],
        "members": [
            {**common, "server_address": "broker-a", "failures": {"authentication": 27_030}},
            {**common, "server_address": "broker-b", "failures": {"redirected": 27_031}},
        ],
        "advice": [{"parameter": "deadline", "proposed": 1, "reason": "twice the slowest"}],
    }


def test_the_reason_is_what_those_say_that_may_be_primary() -> None:
    """A passive member's redirect is a normal part of a search, even if it is the most frequent end."""
    said = _said(_deployed())
    assert said["why"] == (
        "The attempts of 200 that are away fail mostly with authentication: wrong credentials; "
        "all 27,030 such attempts were at broker-a:5671."
    )
    assert "redirected" not in said["why"]
    assert said["do"].startswith("Check the credentials")


def test_members_that_send_all_on_are_no_cause_while_others_are_connected() -> None:
    given = _deployed()
    given["away"][0]["error"] = "redirected"
    [one] = actions(given)
    assert "Check that a primary is there" not in one["action"]
    assert one["action"].startswith("Compare the cluster URL of these clients with that of the others")
    given["headline"][0] |= {"connections": 200}
    assert actions(given)[0]["action"].startswith("Check that a primary is there")


def test_failures_that_are_shared_evenly_point_at_no_member() -> None:
    given = _deployed()
    for place, count in enumerate((42_332, 42_331)):
        given["members"][place]["failures"] = {"timed-out": count, "refused": 3_000}
    given["away"][0]["error"] = "timed-out"
    why = _said(given)["why"]
    assert "timed-out: no answer in time; all 84,663 such attempts were at both members alike." in why
    given["away"] = []
    assert "84,663 of 90,663 failed attempts were timed-out at both members alike." in _said(given)["why"]


def test_those_who_are_still_away_come_before_the_downtimes_of_those_who_are_back() -> None:
    long = _said(_deployed())["long"]
    assert long == (
        "Still away: 200, for up to 34.9 min. The median downtime of 7 outages (without the 200 first "
        "connects) is 35 ms, the 99th percentile 96 ms, the longest 97.5 ms."
    )


def test_first_connects_are_no_single_losses() -> None:
    assert _said(_deployed())["happened"] == "7 single losses; 200 first connects that never succeeded."
    [column] = charts.columns(_deployed()["timeline"], {})
    assert (column["single"], column["never"]) == (7, 200)


def test_nothing_is_tuned_while_somebody_is_away() -> None:
    """Figures of connected clients say nothing about disconnected ones."""
    given = _deployed()
    assert "deadline" not in [row["what"] for row in actions(given)]
    given["headline"][0] |= {"away": 0, "never_connected": 0}
    given["away"] = []
    assert [row["what"] for row in actions(given)] == ["deadline of the client"]


def test_what_happened_comes_before_what_may_be_tuned() -> None:
    storm = {
        "kind": "storm",
        "cluster": "orders",
        "severity": "notice",
        "action": "Find out why it was lost.",
    }
    given: Given = {
        "headline": [{"connections": 600, "outages": 600, "clients_hit": 600, "away": 0}],
        "alarms": [storm],
        "advice": [
            {"parameter": name, "proposed": 100, "reason": "so it was measured"}
            for name in ("accept_rate", "backoff_max")
        ],
    }
    assert [row["what"] for row in actions(given)] == [
        "storm in orders",
        "accept_rate of the broker",
        "backoff_max of the client",
    ]
    assert _said(given)["do"] == (
        "Nothing urgent. What happened is over: Find out why it was lost. (2 more below)"
    )
    assert actions(given)[1]["action"] == (
        "Set accept_rate of the broker to 100 connections a second: so it was measured."
    )


def test_all_services_of_those_who_are_away_are_named() -> None:
    given = _deployed()
    given["hit"] = _hit(
        ("service.name", "billing", 300, 250, 250),
        ("service.name", "search", 300, 249, 249),
        ("service.name", "checkout", 300, 300, 0),
    )
    assert actions(given)[0]["what"] == "200 connections away, of billing and search"


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ((("zone", "a", 50, 0, 50), ("zone", "b", 50, 0, 0)), ["a"]),
        ((("zone", "a", 50, 0, 45), ("zone", "b", 50, 0, 5)), ["a"]),  # nine tenths, nine times as likely
        ((("zone", "a", 50, 0, 44), ("zone", "b", 50, 0, 6)), []),
        ((("zone", "a", 100, 0, 50),), []),  # the whole fleet has it
        ((("zone", "a", 90, 0, 45), ("zone", "b", 10, 0, 5)), []),  # as likely with the attribute as without
        ((("zone", None, 50, 0, 50), ("zone", "b", 50, 0, 0)), []),  # a missing value forms no group
        ((("zone", "a", 50, 0, 0), ("zone", "b", 50, 0, 0)), []),
    ],
)
def test_what_those_who_are_away_share_makes_it_likelier(
    rows: tuple[tuple[str, str | None, int, int, int], ...], shared: list[str]
) -> None:
    assert [one.value for one in findings.shared(_hit(*rows), "away")] == shared


def test_lost_minutes_are_set_against_the_objective() -> None:
    """Ten connections for an hour are 600 minutes; the objective of 99 % allows six lost ones, and nine were
    lost.
    """
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
    assert (rows["p99_downtime"]["now"], rows["p99_downtime"]["change"]) == ("over 12 s", "")
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


def test_a_larger_fleet_is_compared_by_its_shares() -> None:
    """1,000 of 1,000 lost once equal 600 of 600; 499 disconnected are more than 3."""
    now = {"outages": 1000.0, "open": 499.0, "max_ratio_to_ideal": 3.0}
    before = {"outages": 600.0, "open": 3.0, "max_ratio_to_ideal": 9.0}
    rows = {row["metric"]: row for row in baseline.compared(now, before, (1000, 600))}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "outages": "",
        "open": "worse",
        "max_ratio_to_ideal": "",  # of a storm after which half of its connections are not back
    }
    assert (rows["open"]["now"], rows["open"]["before"]) == ("499 of 1,000", "3 of 600")
    assert (rows["outages"]["now"], rows["outages"]["change"]) == ("1,000, 1 a connection", "none")
    alone = {row["metric"]: row["verdict"] for row in baseline.compared(now, before)}
    assert (alone["outages"], alone["open"]) == ("worse", "worse")


@pytest.mark.parametrize(
    ("now", "bound", "before", "former_bound", "verdict"),
    [
        (1200.0, 1, 15.0, 0, "worse"),  # over 1,200 is surely more than 15
        (5.0, 1, 15.0, 0, ""),  # over 5 may be 50
        (5.0, 0, 15.0, 1, "better"),
        (20.0, 0, 15.0, 1, ""),  # over 15 may be 50
        (20.0, 0, 15.0, 0, "worse"),
    ],
)
def test_a_bound_is_compared_only_where_its_value_cannot_matter(
    now: float, bound: int, before: float, former_bound: int, verdict: str
) -> None:
    [row] = baseline.compared(
        {"p99_downtime": now, "p99_is_bound": bound}, {"p99_downtime": before, "p99_is_bound": former_bound}
    )
    assert (row["verdict"], row["change"]) == (verdict, "" if bound or former_bound else "+33.3 %")


def test_a_former_run_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(
        json.dumps({"source": "logs", "summary": {"outages": 3, "open": None}})
    )
    found = baseline.read(tmp_path)
    assert found == {
        "folder": str(tmp_path),
        "source": "logs",
        "summary": {"outages": 3.0},
        "connections": None,
    }
    groups = [("cloud.region", 400), ("cloud.region", 200), ("service.name", 600)]
    rows = [{"attribute": name, "value": str(count), "connections": count} for name, count in groups]
    (tmp_path / "hit_by.json").write_text(json.dumps(rows))
    assert baseline.read(tmp_path)["connections"] == 600
    (tmp_path / "hit_by.json").write_text('[{"attribute": 3}]')
    assert baseline.read(tmp_path)["connections"] is None


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


@pytest.mark.parametrize("kind", KINDS)
def test_the_word_for_a_failure_fits_every_reason(kind: str) -> None:
    """The word "refused" does not fit a client's timeout."""
    assert not re.search(r"\brefuses?\b", KINDS[kind].action)


@pytest.mark.parametrize("kind", KINDS)
def test_an_alarm_sends_nobody_to_a_table_that_is_not_in_the_page(kind: str) -> None:
    [row] = actions({"alarms": [{"kind": kind, "severity": "critical", "action": KINDS[kind].action}]})
    assert "table " not in row["action"]


def test_the_most_urgent_comes_first() -> None:
    given = tables()
    assert {row["severity"] for row in actions(given)} == {"critical"}
    given["headline"][0]["away"] = 0
    assert [row["severity"] for row in actions(given)] == ["critical", "consider"]


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
