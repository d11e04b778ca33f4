"""Every table equals DuckDB's result on the same files, for three fleets; and both equal the truth.

The first fleet has all the faults.  In the second no line is lost and no clock is wrong except one, so that
storms, flapping and ends are exactly the true ones.  Clocks of the third are wrong and are set.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.testing import assertDataFrameEqual

from haclient.analysis.generate import CLEAN, Faults, Generated, generate, write
from haclient.analysis.io import ingest
from haclient.analysis.tables import clock
from haclient.analysis.tables.dictionary import name_hash
from haclient.telemetry.contract.check import check
from haclient.telemetry.schema import Reason
from tests.analysis import oracle
from tests.analysis.stories import all_tables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test makes the fleet and all tables

OUTAGES = 5  # one of two members is the primary in three of them
FAULTS = Faults(lost=0.01, duplicated=0.01, bad=0.002, dying=0.05, giving_up=0.03, busy=200, stepping=0.05)
ENDS = replace(
    CLEAN,
    **dict.fromkeys(("dying", "giving_up", "closing", "leaving", "restarting", "searching", "never"), 0.05),
    fast=1,
    duplicated=0.01,
)
CLOCKS = replace(CLEAN, stepping=0.5)
KEYS = {
    "quarantine": ["line"],
    "episodes": ["client_id", "instance", "outage"],
    "storms": ["storm_id"],
    "storm_timeline": ["storm_id", "second", "server_address"],
    "storm_reasons": ["storm_id", "second", "error_type"],
    "jitter": ["strategy", "backoff_base", "round"],
    "members": ["server_address"],
    "alarms": ["kind", "cluster", "detail", "at"],
    "not_recovered": ["client_id", "instance"],
    "advice": ["cluster", "parameter"],
}


class Fleet(NamedTuple):
    made: Generated
    ends: Generated
    clocks: Generated
    events: DataFrame
    folder: Path
    tables: dict[str, DataFrame]
    expected: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("fleet")
    made = kept(generate(spark, clients=200, outages=OUTAGES, seed=7, faults=FAULTS))
    ends = kept(generate(spark, clients=200, outages=OUTAGES, seed=8, faults=ENDS, clusters=2, name="ends-"))
    clocks = kept(generate(spark, clients=40, outages=OUTAGES, seed=9, faults=CLOCKS, name="clocks-"))
    (folder / "json").mkdir()
    for each in (made, ends, clocks):
        write(each, str(folder / "written"), files=2)
        for path in (folder / "written").iterdir():
            path.rename(folder / "json" / path.name)
        (folder / "written").rmdir()
    found = ingest.read(spark, str(folder / "json"))
    ingest.store(found.events, str(folder / "store"))
    events = clock.placed(ingest.read(spark, str(folder / "store")).events)
    tables = {"quarantine": found.quarantine.select("line"), **all_tables(events)}
    expected = oracle.answers(oracle.pattern(folder / "json"))
    return Fleet(made, ends, clocks, events, folder, tables, expected)


def kept(made: Generated) -> Generated:
    return replace(made, lines=made.lines.localCheckpoint(), truth=made.truth.localCheckpoint())


@pytest.mark.parametrize("name", KEYS)
def test_a_table_equals_an_independent_computation(fleet: Fleet, name: str) -> None:
    assert fleet.expected[name], "nothing to compare"
    same_rows(fleet.tables[name], fleet.expected[name], KEYS[name])


def same_rows(table: DataFrame, rows: list[dict[str, Any]], order: list[str]) -> None:
    """Return whether a table has the oracle's rows, in their common columns."""
    found = plain(table).select(*rows[0])
    expected = table.sparkSession.createDataFrame([tuple(row.values()) for row in rows], found.schema)
    assertDataFrameEqual(found.orderBy(order), expected.orderBy(order), checkRowOrder=True, rtol=1e-9)


def plain(table: DataFrame) -> DataFrame:
    """Return rows with times as microseconds since the epoch."""

    def column(name: str, kind: str) -> Column:
        return sf.unix_micros(name).alias(name) if kind == "timestamp" else sf.col(name)

    return table.select(*(column(name, kind) for name, kind in table.dtypes))


def test_no_outage_is_missing_and_none_is_invented(fleet: Fleet) -> None:
    key = ["client_id", "connection", "outage"]
    episodes = fleet.tables["episodes"].where("client_id LIKE 'client%'").select(*key)
    # an outage of which every line was lost or cut cannot be known
    truth = fleet.made.truth.where("lost_lines = 0").select(*key)
    assert episodes.exceptAll(fleet.made.truth.select(*key)).count() == 0
    assert truth.exceptAll(episodes).count() == 0


def test_downtimes_attempts_and_results_are_the_true_ones(fleet: Fleet) -> None:
    key = ["client_id", "instance", "outage"]
    columns = [*key, "cluster", "downtime", "attempts", "episode_result"]
    whole = (fleet.made.truth.lost_lines == 0) & (fleet.made.truth.episode_result == "back")
    truth = fleet.made.truth.where(whole).select(*columns)
    found = fleet.tables["episodes"].join(truth.select(*key), key)
    assertDataFrameEqual(
        found.select(*columns).orderBy(*key),
        truth.orderBy(*key),
        checkRowOrder=True,
        rtol=0,
        atol=1e-6,
    )


def test_clients_that_died_or_gave_up_are_distinguished(fleet: Fleet) -> None:
    key = ["client_id", "instance", "outage"]
    lost = fleet.made.truth.where("episode_result <> 'back' AND lost_lines = 0").select(
        *key, "episode_result"
    )
    found = fleet.tables["episodes"].select(*key, "episode_result")
    wrong = lost.exceptAll(found).join(found.withColumnRenamed("episode_result", "instead"), key)
    # a client that died in the last outage may have written a line just before the end
    assert {row["instead"] for row in wrong.collect()} <= {"open"}
    assert lost.count() > 10


RESULTS = {"back", "gave_up", "closed", "replaced", "open", "silent"}


def test_the_end_of_each_outage_is_the_true_one(fleet: Fleet) -> None:
    columns = ["client_id", "instance", "outage", "cluster", "episode_result", "never_connected", "attempts"]
    found = fleet.tables["episodes"].where("client_id LIKE 'ends-%'").select(*columns)
    assertDataFrameEqual(found, fleet.ends.truth.select(*columns))
    assert {row[0] for row in found.where("outage > 1").select("episode_result").collect()} == RESULTS
    assert found.where("never_connected").count() > 3


def test_storms_are_the_true_ones(fleet: Fleet) -> None:
    columns = ["cluster", "clients_hit", "attempts", "stragglers"]
    times = [(sf.unix_micros(name) / 1e6).alias(name) for name in ("started_at", "ended_at")]
    gone = (sf.col("gave_up") + sf.col("open") + sf.col("silent")).alias("gone")
    found = fleet.tables["storms"].where("cluster LIKE 'ends-%'").select(*columns, gone, *times)
    true = fleet.ends.storms.select(*found.columns)
    order = ["cluster", "started_at"]
    assertDataFrameEqual(found.orderBy(order), true.orderBy(order), checkRowOrder=True, rtol=0, atol=1e-5)
    assert found.count() == 2 * OUTAGES


def test_flapping_is_the_true_one(fleet: Fleet) -> None:
    scores = (
        fleet.tables["members"]
        .where("server_address LIKE 'ends-%'")
        .select("server_address", "flapping_score")
    )
    true = {row["endpoint"]: row["score"] for row in fleet.ends.flapping.collect()}
    assert {f"{row[0]}:5672": row[1] for row in scores.collect()} == true
    assert sorted(true.values()) == [2, 2, 3, 3]


def test_clocks_are_set_where_they_truly_were(fleet: Fleet) -> None:
    source = sf.col("source").alias("source")
    lives = clock.lives(fleet.events).join(
        fleet.clocks.clocks.select(source, "wrong_first", "wrong_last", name_hash("source").alias("process")),
        "process",
    )
    rows = lives.collect()
    steps = {row["source"]: abs(row["wrong_last"] - row["wrong_first"]) for row in rows}
    found = {row["source"]: (row["highest"] - row["lowest"]) / 1e6 for row in rows}
    assert found == pytest.approx(
        {name: step if step > clock.TOLERANCE else 0.0 for name, step in steps.items()}, abs=2e-6
    )
    assert len(rows) == 40
    assert sum(step > 0 for step in found.values()) > 10


def test_the_lines_keep_the_contract_of_telemetry(fleet: Fleet) -> None:
    """Only whole lines count: the last ones of clients that died are cut."""
    now = datetime(2026, 11, 23, tzinfo=UTC)
    verdicts = Counter(check(row["value"], now).reason for row in fleet.ends.lines.collect())
    assert verdicts.keys() == {None, Reason.NOT_JSON}


@pytest.mark.parametrize("form", ["json.gz", "parquet"])
def test_the_form_of_the_lines_changes_no_event(spark: SparkSession, fleet: Fleet, form: str) -> None:
    path = str(fleet.folder / f"lines.{form}")
    write(fleet.made, path, form=form)
    found = ingest.read(spark, path).events
    stored = ingest.read(spark, str(fleet.folder / "store")).events
    assert found.count() == stored.join(found.select("source").distinct(), "source", "left_semi").count()
    assert found.exceptAll(stored.select(*found.columns)).count() == 0


def test_the_same_seed_makes_the_same_lines(spark: SparkSession, fleet: Fleet) -> None:
    again = generate(spark, clients=200, outages=OUTAGES, seed=7, faults=FAULTS)
    written = spark.read.text(str(fleet.folder / "json"))
    assert again.lines.exceptAll(written).count() == 0
