"""The affected groups of clients: by hand, and against DuckDB."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import duckdb
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from haclient.analysis.tables import clock, episodes, hit_by, rollup
from haclient.telemetry.schema import KEYS, Kind
from tests.analysis.stories import START, Line, Row, framed, rows

pytestmark = pytest.mark.slow  # the tables of a fleet

AS_OF = START + timedelta(seconds=200)
LATELY = clock.microseconds(AS_OF - timedelta(seconds=120))
COLUMNS = [key.column for key in KEYS]
CONNECTIONS = 130


def story(number: int) -> Iterable[Line]:
    """Return the lines of clients that are lost at 10 s; some return, give up, never return, or end
    before.
    """
    yield Kind.CONNECTED, 1.0, {"outage": 1, "outage_duration": 1.0}
    if number % 2:
        yield Kind.LOST, 10.0, {}
        if number % 6 == 5:
            yield Kind.GAVE_UP, 40.0, {}
        elif number % 6 == 3:
            yield Kind.CONNECTED, 10.0 + number, {}
        else:
            yield Kind.CONNECTED, 10.5, {}
    if number % 10:
        yield Kind.ALIVE, 199.0, {"outage": 2 if number % 2 else 1}


def attributes(number: int) -> dict[str, str]:
    """Return attributes: a pod for each; a version that the last five lack."""
    version = {} if number >= CONNECTIONS - 5 else {"service_version": f"1.{number % 3}"}
    return {"instance": f"i{number}", "k8s_pod": f"pod-{number}", "service": "orders", **version}


@pytest.fixture(scope="module")
def lines() -> list[Row]:
    return [
        row
        for number in range(CONNECTIONS)
        for row in rows(f"n{number}", story(number), cluster="c", **attributes(number))
    ]


@pytest.fixture(scope="module")
def tables(spark: SparkSession, lines: list[Row]) -> dict[str, list[dict[str, Any]]]:
    events = framed(spark, lines).localCheckpoint()
    rolled_up = rollup.materialize(rollup.roll_up(events))
    found = episodes.facts(events, rolled_up, rollup.seen_values(rolled_up)).localCheckpoint()
    rest = episodes.unfinished(found)
    judged = episodes.classified(found, rest, as_of=clock.microseconds(AS_OF)).localCheckpoint()
    known = hit_by.resources(events).localCheckpoint()
    made = {
        "episodes": judged,
        "resources": known,
        "hit_by": hit_by.hit_by(judged, known, heard_since=LATELY),
    }
    return {name: [row.asDict() for row in frame.collect()] for name, frame in made.items()}


def test_attributes_that_nobody_has_are_not_there_and_many_values_are_one_row(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    found = tables["hit_by"]
    assert {row["attribute"] for row in found} == {
        "service.name",
        "service.instance.id",
        "service.version",
        "k8s.pod.name",
    }
    pods = [row for row in found if row["attribute"] == "k8s.pod.name"]
    assert len(pods) == hit_by.VALUES + 1
    assert (pods[-1]["value"], pods[-1]["values"], pods[-1]["connections"]) == (None, 30, 30)
    assert [row["outages"] for row in pods] == [1] * 65 + [0] * 36  # the worst first
    (service,) = (row for row in found if row["attribute"] == "service.name")
    assert (service["connections"], service["connections_hit"], service["hit_share"]) == (130, 65, 0.5)


def test_who_lacks_an_attribute_that_others_have_has_a_row(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Of the last five, three were hit: 125 gave up, 127 was back after 0.5 s, 129 after 129 s; at 200 s."""
    lacking = tables["hit_by"][-1 - hit_by.VALUES - 1]
    assert lacking["attribute"] == "service.version"
    expected = {
        "value": None,
        "values": 0,
        "connections": 5,
        "connections_hit": 3,
        "outages": 3,
        "back": 2,
        "gave_up": 1,
    }
    assert {name: lacking[name] for name in expected} == expected
    assert (lacking["p50_downtime"], lacking["p50_is_bound"]) == (129.0, False)
    assert (lacking["max_downtime"], lacking["max_is_bound"]) == (190.0, True)
    assert lacking["p90_is_bound"]  # between both


_EXPECTED = """
WITH facts AS (
  SELECT client_id, instance, max({column}) AS value,
         max(epoch_us(time)) FILTER (type = 'haclient.connection.lost') AS lost,
         max(epoch_us(time)) FILTER (type = 'haclient.connection.connected' AND outage = 2) AS back,
         count(*) FILTER (type = 'haclient.connection.gave_up') AS gave_up, max(epoch_us(time)) AS last
  FROM lines GROUP BY client_id, instance),
times AS (
  SELECT *, lost IS NOT NULL AND back IS NULL AS lasting,
         (coalesce(back, {as_of}) - lost) / 1e6 AS seconds FROM facts)
SELECT value, count(*) AS connections,
       count(*) FILTER (lost IS NULL AND last < {lately}) AS connections_ended,
       count(lost) AS outages, count(back) AS back,
       sum(gave_up)::BIGINT AS gave_up, quantile_cont(seconds, 0.9) AS p90_downtime,
       max(seconds) AS max_downtime, coalesce(arg_max(lasting, seconds), false) AS max_is_bound
FROM times GROUP BY value ORDER BY ALL"""


@pytest.mark.parametrize(
    ("attribute", "column"), [("service.version", "service_version"), ("service.name", "service")]
)
def test_the_table_is_what_duckdb_makes_of_the_lines(
    lines: list[Row], tables: dict[str, list[dict[str, Any]]], attribute: str, column: str
) -> None:
    frame = pd.DataFrame(lines, columns=COLUMNS)
    as_of = int(AS_OF.timestamp() * 1e6)
    with duckdb.connect() as database:
        database.register("lines", frame)
        expected = (
            database.sql(_EXPECTED.format(column=column, as_of=as_of, lately=LATELY))
            .to_df()
            .to_dict("records")
        )
    found = {row["value"]: row for row in tables["hit_by"] if row["attribute"] == attribute}
    assert len(found) == len(expected)
    for row in expected:
        value = None if pd.isna(row["value"]) else row["value"]
        mine = found[value]
        for name in ("connections", "connections_ended", "outages", "back", "gave_up", "max_is_bound"):
            assert mine[name] == row[name], (value, name)
        for name in ("p90_downtime", "max_downtime"):
            assert mine[name] == pytest.approx(row[name]), (value, name)


def test_episodes_point_at_their_combination(tables: dict[str, list[dict[str, Any]]]) -> None:
    known = {row["resource"]: row for row in tables["resources"]}
    assert len(known) == CONNECTIONS
    for row in tables["episodes"]:
        number = int(row["client_id"].rpartition("n")[2])
        assert known[row["resource"]]["k8s_pod"] == f"pod-{number}"
        assert known[row["resource"]]["service_version"] == attributes(number).get("service_version")
