"""The figures of a storm, computed from storms that are written down by hand."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.storm.figures import (
    Facts,
    Figures,
    busiest_second,
    figures,
    percentile,
    share,
    sustained_rate,
)
from benchmarks.storm.footprint import Footprint
from benchmarks.storm.lines import Line
from benchmarks.storm.member_lines import Served, served_between
from benchmarks.storm.results import Results

KILLED, BACK = 100.0, 103.0
PRIMARY, OTHER = "10.0.0.2:5672", "10.0.0.1:5672"


def storm(clients: int, *lines: Line) -> Results:
    """Return a storm in which all clients are lost at the kill, followed by these lines."""
    results = Results()
    for number in range(clients):
        results.note(Line("usable", number, 50.0))
        results.note(Line("lost", number, KILLED + 0.01))
    for line in lines:
        results.note(line)
    return results


def of(results: Results, *, served: Served | None = None, came: dict[str, int] | None = None) -> Figures:
    facts = Facts(
        name="test",
        results=results,
        clients=tuple(results.clients),
        killed_at=KILLED,
        primary=PRIMARY,
        accept_rate=None,
        served=served,
        came=Counter(came),
        footprints={"member-1": Footprint(10, 3), "member-2": Footprint(5, 7)},
    )
    return figures(facts)


def test_times_count_from_the_moment_the_member_says_it_serves() -> None:
    returns = [Line("usable", number, BACK + 1 + number) for number in range(4)]
    found = of(storm(4, *returns), served=Served("member-2", BACK, (), (), 0))
    assert found.outage == 3.0
    assert found.arrivals == (1.0, 2.0, 3.0, 4.0)
    assert (found.p50, found.last, found.back) == (2.0, 4.0, 4)


def test_an_error_that_ended_a_librarys_loop_is_counted_and_is_of_no_client() -> None:
    found = of(storm(2, Line("defect", at=BACK, why="no"), Line("defect", at=BACK + 1, why="no")))
    assert (found.defects, found.clients) == (2, 2)


def test_a_client_that_never_came_back_makes_the_last_one_infinite() -> None:
    found = of(storm(2, Line("usable", 0, BACK)))
    assert (found.back, found.clients, found.last) == (1, 2, math.inf)


def test_a_client_that_was_lost_again_is_not_back() -> None:
    found = of(storm(1, Line("usable", 0, BACK), Line("lost", 0, BACK + 1)))
    assert found.back == 0


def test_attempts_after_it_is_back_are_those_at_the_primary() -> None:
    dials = [Line("attempt", 0, at, to) for at, to in ((101.0, PRIMARY), (104.0, OTHER), (105.0, PRIMARY))]
    found = of(storm(1, *dials, Line("usable", 0, 106.0)), served=Served("member-2", BACK, (), (), 0))
    assert (found.attempts, found.attempts_after) == (3, 1)
    assert found.dials == (2.0,)


def test_the_rate_is_the_one_that_the_primary_noted() -> None:
    admitted = tuple(BACK + number / 50 for number in range(100))
    returns = [Line("usable", number, BACK + 9) for number in range(100)]
    found = of(storm(100, *returns), served=Served("member-2", BACK, admitted, (BACK,) * 50, 0))
    assert found.setup_rate == pytest.approx(50)
    assert (found.ideal, found.refused) == (pytest.approx(2), 0.5)
    assert found.ratio == pytest.approx(4.5)


def test_a_settled_message_that_did_not_come_is_lost_and_one_that_came_twice_is_not() -> None:
    settled = [Line("settled", 0, 101.0, number=number) for number in range(3)]
    found = of(storm(1, *settled), came={"0/0": 1, "0/1": 2})
    assert (found.settled, found.lost, found.twice) == (3, 1, 1)


def test_the_footprint_is_the_largest_of_any_member() -> None:
    found = of(storm(1))
    assert (found.memory, found.files) == (10, 7)


def test_the_sustained_rate_leaves_beginning_and_end_out() -> None:
    steady = [number / 10 for number in range(100)]
    assert sustained_rate([-50.0, *steady, 500.0]) == pytest.approx(10)
    assert sustained_rate([1.0]) == 0.0


def test_a_share_is_the_time_of_the_client_with_that_rank() -> None:
    assert share([1.0, 2.0, 3.0, 4.0], 0.5, 4) == 2.0
    assert share([1.0, 2.0], 0.75, 4) == math.inf
    assert percentile([5.0, 1.0, 3.0], 0.99) == 5.0


def test_the_busiest_second_may_begin_anywhere() -> None:
    assert busiest_second([0.0, 0.9, 1.2, 1.5, 1.89, 3.0]) == 4
    assert busiest_second([]) == 0


def member_line(kind: str, member: str, at: float, **facts: Any) -> str:
    data = {"haclient.member.name": member, "haclient.monotonic": at, **facts}
    return json.dumps({"type": f"haclient.member.{kind}", "data": data})


def test_the_members_telemetry_says_who_followed_and_whom_it_served(tmp_path: Path) -> None:
    lines = (
        member_line("role", "member-1", 10.0, **{"haclient.member.role": "primary"}),
        member_line("admitted", "member-1", 20.0),
        member_line("role", "member-2", BACK, **{"haclient.member.role": "recovering"}),
        member_line("refused", "member-1", BACK + 1),
        member_line("admitted", "member-2", BACK + 2),
        member_line("refused", "member-2", BACK + 3),
        member_line("admitted", "member-2", BACK + 99),
        '{"type": "haclient.member.admi',
    )
    (tmp_path / "some.jsonl").write_text("\n".join(lines))
    served = served_between(tmp_path, KILLED, BACK + 50)
    assert served == Served("member-2", BACK, (BACK + 2,), (BACK + 3,), 1)


def test_without_a_promotion_nobody_followed(tmp_path: Path) -> None:
    assert served_between(tmp_path, KILLED, BACK) is None
