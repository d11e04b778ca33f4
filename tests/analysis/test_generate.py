"""The telemetry of ``generate`` agrees with its truth, as DuckDB reads it without our tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row, SparkSession

from haclient.analysis.generate import CLEAN, generate, write
from tests.analysis import oracle

pytestmark = pytest.mark.slow  # a generated fleet

OUTAGES = 3
ENDS = replace(
    CLEAN,
    **dict.fromkeys(("dying", "giving_up", "closing", "leaving", "restarting", "searching", "never"), 0.05),
    fast=1,
    duplicated=0.01,
)
OUTAGE = ("client_id", "instance", "outage")


class Fleet(NamedTuple):
    truth: list[Row]
    storms: list[Row]
    flapping: list[Row]
    event_ids: list[str]
    lines: list[str]
    found: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("generated") / "json"
    made = generate(spark, clients=80, outages=OUTAGES, seed=8, faults=ENDS, clusters=2, name="c")
    made = replace(made, lines=made.lines.localCheckpoint(), truth=made.truth.localCheckpoint())
    write(made, str(folder), files=2)
    found = oracle.answers(oracle.pattern(folder))
    return Fleet(
        made.truth.collect(),
        made.storms.collect(),
        made.flapping.collect(),
        [row["event_id"] for row in made.events.select("event_id").collect()],
        [row["value"] for row in made.lines.collect()],
        found,
    )


def test_each_event_is_there_once_and_some_lines_are_there_twice(fleet: Fleet) -> None:
    ids = list(whole_ids(fleet.lines))
    assert sorted(fleet.event_ids) == sorted(set(ids))
    assert len(ids) > len(set(ids))


def whole_ids(lines: list[str]) -> Iterator[str]:
    """Yield the id of each line that was not cut by the death of its client."""
    for line in lines:
        with suppress(json.JSONDecodeError):
            yield json.loads(line)["id"]


def test_each_outage_has_the_true_end_downtime_and_attempts(fleet: Fleet) -> None:
    columns = (*OUTAGE, "cluster", "episode_result", "never_connected", "attempts")
    true = {tuple(row[name] for name in columns) for row in fleet.truth}
    assert {tuple(row[name] for name in columns) for row in fleet.found["episodes"]} == true
    downtimes = {tuple(row[name] for name in OUTAGE): row["downtime"] for row in fleet.truth}
    for row in fleet.found["episodes"]:
        if row["episode_result"] == "back":
            assert row["downtime"] == pytest.approx(downtimes[*(row[name] for name in OUTAGE)], abs=1e-6)


def seconds(row: dict[str, Any], name: str) -> float | None:
    """Return a time of the oracle's, ``None`` for a storm that has not ended."""
    micros = row[name]
    return None if micros is None else float(micros / 1e6)


def test_each_storm_is_the_true_one(fleet: Fleet) -> None:
    assert len(fleet.storms) == 2 * OUTAGES
    for storm in fleet.storms:
        (row,) = (
            row
            for row in fleet.found["storms"]
            if row["cluster"] == storm["cluster"]
            and seconds(row, "started_at") == pytest.approx(storm["started_at"], abs=1e-5)
        )
        assert seconds(row, "ended_at") == pytest.approx(storm["ended_at"], abs=1e-5)
        for name in ("clients_hit", "attempts", "stragglers"):
            assert row[name] == storm[name]
        assert row["gave_up"] + row["open"] + row["silent"] == storm["gone"]


def test_each_member_flaps_as_often_as_is_true(fleet: Fleet) -> None:
    true = {row["endpoint"]: row["score"] for row in fleet.flapping}
    assert {f"{row['server_address']}:5672": row["flapping_score"] for row in fleet.found["members"]} == true
