"""Every table equals what DuckDB makes of the same files, with all the faults; and both equal the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertDataFrameEqual

from haclient.analysis.generate import Faults, Generated, generate, write
from haclient.analysis.io import ingest
from haclient.analysis.tables import clock
from haclient.analysis.tables.build import all_tables
from tests.analysis import oracle

pytestmark = pytest.mark.timeout(600)  # the first test makes the fleet and all tables

FAULTS = Faults(lost=0.01, duplicated=0.01, bad=0.002, dying=0.05, giving_up=0.03, busy=200, stepping=0.05)
KEYS = {
    "quarantine": ["line"],
    "episodes": ["client_id", "outage"],
    "storms": ["storm_id"],
    "storm_timeline": ["storm_id", "second", "server_address"],
    "storm_reasons": ["storm_id", "second", "error_type"],
    "jitter": ["strategy", "backoff_base", "round"],
    "members": ["server_address"],
    "alarms": ["kind", "cluster", "detail", "at"],
    "not_recovered": ["client_id"],
    "advice": ["parameter"],
}


class Fleet(NamedTuple):
    made: Generated
    folder: Path
    tables: dict[str, DataFrame]
    expected: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("fleet")
    lazy = generate(spark, clients=300, outages=3, seed=7, faults=FAULTS)
    made = replace(lazy, lines=lazy.lines.localCheckpoint(), truth=lazy.truth.localCheckpoint())
    write(made, str(folder / "json"), files=3)
    found = ingest.read(spark, str(folder / "json"))
    ingest.store(found.events, str(folder / "store"))
    events = clock.placed(ingest.read(spark, str(folder / "store")).events)
    tables = {"quarantine": found.quarantine.select("line"), **all_tables(events)}
    return Fleet(made, folder, tables, oracle.answers(oracle.pattern(folder / "json")))


@pytest.mark.parametrize("name", KEYS)
def test_a_table_equals_an_independent_computation(spark: SparkSession, fleet: Fleet, name: str) -> None:
    rows = fleet.expected[name]
    assert rows, "nothing to compare"
    found = plain(fleet.tables[name]).select(*rows[0])
    expected = spark.createDataFrame([tuple(row.values()) for row in rows], found.schema)
    order = KEYS[name]
    assertDataFrameEqual(found.orderBy(order), expected.orderBy(order), checkRowOrder=True, rtol=1e-9)


def plain(table: DataFrame) -> DataFrame:
    """With times as microseconds since the epoch."""

    def column(name: str, kind: str) -> Column:
        return sf.unix_micros(name).alias(name) if kind == "timestamp" else sf.col(name)

    return table.select(*(column(name, kind) for name, kind in table.dtypes))


def test_no_outage_is_missing_and_none_is_invented(fleet: Fleet) -> None:
    key = ["client_id", "connection", "outage"]
    episodes = fleet.tables["episodes"].select(*key)
    # an outage of which every line was lost, or cut, cannot be known
    truth = fleet.made.truth.where("lost_lines = 0").select(*key)
    assert episodes.exceptAll(fleet.made.truth.select(*key)).count() == 0
    assert truth.exceptAll(episodes).count() == 0


def test_downtimes_attempts_and_results_are_the_true_ones(fleet: Fleet) -> None:
    columns = ["client_id", "outage", "cluster", "downtime", "attempts", "episode_result"]
    whole = (fleet.made.truth.lost_lines == 0) & (fleet.made.truth.episode_result == "back")
    truth = fleet.made.truth.where(whole).select(*columns)
    found = fleet.tables["episodes"].join(truth.select("client_id", "outage"), ["client_id", "outage"])
    assertDataFrameEqual(
        found.select(*columns).orderBy("client_id", "outage"),
        truth.orderBy("client_id", "outage"),
        checkRowOrder=True,
        rtol=0,
        atol=1e-6,
    )


def test_clients_that_died_or_gave_up_are_distinguished(fleet: Fleet) -> None:
    lost = fleet.made.truth.where("episode_result <> 'back' AND lost_lines = 0").select(
        "client_id", "outage", "episode_result"
    )
    found = fleet.tables["episodes"].select("client_id", "outage", "episode_result")
    wrong = lost.exceptAll(found).join(
        found.withColumnRenamed("episode_result", "instead"), ["client_id", "outage"]
    )
    # one that died in the last outage may have been heard of just before the end
    assert {row["instead"] for row in wrong.collect()} <= {"open"}
    assert lost.count() > 10


@pytest.mark.parametrize("form", ["json.gz", "parquet"])
def test_the_form_of_the_lines_changes_no_event(spark: SparkSession, fleet: Fleet, form: str) -> None:
    path = str(fleet.folder / f"lines.{form}")
    write(fleet.made, path, form=form)
    found = ingest.read(spark, path).events
    stored = ingest.read(spark, str(fleet.folder / "store")).events
    assert found.count() == stored.count()
    assert found.exceptAll(stored.select(*found.columns)).count() == 0


def test_the_same_seed_makes_the_same_lines(spark: SparkSession, fleet: Fleet) -> None:
    again = generate(spark, clients=300, outages=3, seed=7, faults=FAULTS)
    written = spark.read.text(str(fleet.folder / "json"))
    assert again.lines.exceptAll(written).count() == 0
