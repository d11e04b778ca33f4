"""The report on the end of its period: its age, disconnected clients, and members that no client tries."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from haclient.analysis.report import charts, findings, present
from haclient.analysis.report.actions import actions
from haclient.analysis.report.render import render

_END = "2026-11-23 07:00:00.000"
_MADE = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)

Given = dict[str, list[dict[str, Any]]]


def _half() -> Given:
    """Of 600, 300 were back within 32 s, and 300 are disconnected since 06:40; eight of those are silent."""
    away = {"service": "billing", "error": "timed-out", "since": "2026-11-23 06:40:00.000"}
    away |= {"latest": "2026-11-23 06:40:00.400"}
    return {
        "headline": [
            {
                "last_at": _END,
                "connections": 600,
                "outages": 600,
                "clients_hit": 600,
                "away": 300,
                "open": 292,
                "silent": 8,
                "p50": 616.0,
                "p50_is_bound": 1,
                "p99": 1199.7,
                "p99_is_bound": 1,
                "max": 1200.0,
                "max_is_bound": 1,
            }
        ],
        "summary": [{"p50_downtime": 616.0, "p50_is_bound": 1.0}],
        "baseline": [{"folder": "f", "source": "f", "summary": {"p50_downtime": 7.0}}],
        "ecdf": [{"downtime": 9.0, "share": 0.3}, {"downtime": 32.0, "share": 0.5}],
        "away": [
            {**away, "result": "open", "connections": 292},
            {**away, "result": "silent", "connections": 8},
        ],
        "hit": [
            {"attribute": "cloud.region", "value": name, "connections": 300, "hit": 300, "away": lost}
            for name, lost in (("eu-west-1", 300), ("eu-central-1", 0))
        ],
        "alarms": [{"kind": "not_back", "cluster": "orders", "severity": "critical", "action": "Look."}],
        "promotions": [
            {"at": "2026-11-23 06:40:03.200", "cluster": "orders", "generation": 8, "endpoint": "b:5671"}
        ],
        "members": [
            {"server_address": "a", "server_port": 5671, "last_seen": "2026-11-23 06:40:30.000"},
            {"server_address": "b", "server_port": 5671, "last_seen": "2026-11-23 06:59:59.000"},
        ],
    }


@pytest.mark.slow
def test_a_page_that_is_made_long_after_says_how_old_its_answer_is() -> None:
    page = render(_half(), title="night", generated_at=_MADE)
    assert "Yes, as of 2026-11-23 07:00:00 UTC, 2 h before this report was made: 300 of" in page
    soon = render(_half(), title="night", generated_at=datetime(2026, 11, 23, 7, 5, tzinfo=UTC))
    assert "before this report was made" not in soon


def test_a_percentile_that_is_nobody_s_downtime_is_over_the_longest_that_ended() -> None:
    """The mean of 32 s and 20 min is neither."""
    assert present.certain(_half()) == {"p50": 32.0}
    page = render(_half(), title="night", generated_at=_MADE)
    assert "The median downtime of 600 outages is over 32 s, the 99th percentile over 20 min" in page
    [row] = re.findall(r"p50 downtime</th>(.*?)</tr>", page)
    assert "over 32 s" in row
    assert present.certain({"headline": [{"p50": 3.0}], "ecdf": [{"downtime": 9.0, "share": 1.0}]}) == {}


def test_the_curve_goes_on_for_as_long_as_somebody_is_away() -> None:
    assert present.curve(_half())[-1] == {"downtime": 1200.0, "share": 0.5}
    nobody = {**_half(), "away": []}
    assert present.curve(nobody)[-1]["downtime"] == 32.0
    assert present.curve({}) == []


def test_one_incident_is_told_once_and_the_silent_have_an_action_of_their_own() -> None:
    rows = actions(_half())
    assert [row["severity"] for row in rows] == ["critical", "critical"]
    assert rows[0]["action"] == (
        "Check the route and firewalls between them and the broker: others reach it. "
        "This is for the 292 that are away with cloud.region eu-west-1."
    )
    assert rows[1]["action"].startswith("Look whether the processes of the 8 that are silent")
    given = _half()
    given["headline"][0]["away"] = 0
    given["away"] = []
    assert [row["what"] for row in actions(given)] == ["not_back in orders"], "an alarm is never lost"


def test_the_new_primary_and_the_member_that_nobody_tried_since_are_named() -> None:
    said = findings.happened({**_half(), "timeline": [{"lost": 600, "in_storm": 600}]})
    assert "The primary of orders is b:5671, with the first client back at 2026-11-23 06:40:03 UTC" in said
    assert "Nobody tried a:5671 after 2026-11-23 06:40:30 UTC: whether it is up again" in said
    assert "Nobody tried b:5671" not in said


def test_a_deploy_says_how_far_it_has_come() -> None:
    row = {"service": "billing", "attribute": "service.version", "value": "2.5.0", "before": "2.4.0"}
    hit = [
        {"attribute": "service.version", "value": value, "connections": connections, "ended": ended}
        for value, connections, ended in (("2.4.0", 150, 100), ("2.5.0", 100, 0))
    ]
    said = findings.deploy({**row, "at": "2026-11-23 06:25:06.000"}, hit)
    assert said.endswith("50 connections of 2.4.0 and 100 of 2.5.0 were hit or there at the end.")
    assert present.versions({**row, "before": None}, hit) == ""


def test_where_everybody_was_hit_no_version_stands_out_but_for_those_that_are_away() -> None:
    alike = (
        "Everybody: all 600 connections, in 600 outages. So no version, service, region or host stands out"
    )
    assert findings.whos_hit(_half()) == f"{alike}, but for those that are away: see above."
    back = {**_half(), "hit": [{**row, "away": 0} for row in _half()["hit"]]}
    assert findings.whos_hit(back) == f"{alike}."


def test_a_second_reason_of_losses_is_named_too() -> None:
    reasons = [
        {"endpoint": "a", "reason": reason, "outages": count}
        for reason, count in (("reset", 600), ("idle timeout", 10))
    ]
    assert findings.causes({"lost_reasons": reasons}) == (
        "600 of 610 losses have the reason “reset”, 10 have the reason “idle timeout”."
    )


def test_a_legend_has_what_is_drawn_and_nothing_else() -> None:
    given = _half() | {
        "timeline": [{"at": 1_795_416_000, "width": 30, "lost": 600, "in_storm": 600, "ended": 300}]
    }
    drawn = json.dumps(charts.timeline(given).specification())
    assert "lost in a storm" in drawn
    assert '"domain": ["away before", "lost in a storm", "promotion"]' in drawn
    bars = json.dumps(charts.hit(given["hit"]).specification())
    assert '"domain": ["away", "hit, and back"]' in bars


def test_what_became_of_those_who_are_away_is_explained_where_it_is_said() -> None:
    page = render(_half(), title="night", generated_at=_MADE)
    assert "Silent: no line in the last two minutes, so that its process may be gone." in page
    assert "Gave up:" not in page
