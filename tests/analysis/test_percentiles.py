"""The rank error of percentiles over more values than one task keeps."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis import percentiles
from haclient.analysis.tables import members, rollup, summary
from haclient.telemetry.schema import Kind
from tests.analysis.stories import framed, rows

VALUES = 100_000
SHARES = (0.5, 0.9, 0.99, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("spread", ["rand(7)", "floor(10 * rand(7))", "pow(1e6, rand(7))"])
def test_of_a_sketch_the_rank_is_off_by_less_than_a_thousandth(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, spread: str
) -> None:
    """The reference counts the values up to the result; equal values share their ranks."""
    monkeypatch.setattr(percentiles, "EXACT", VALUES - 1)
    values = spark.range(0, VALUES, 1, 4).select(sf.expr(spread).alias("value")).localCheckpoint()
    found = values.agg(percentiles.percentiles("value", SHARES, VALUES).alias("found"))
    ranks = [
        (
            sf.count_if(sf.col("value") < sf.col("found")[at]),
            sf.count_if(sf.col("value") <= sf.col("found")[at]),
        )
        for at in range(len(SHARES))
    ]
    (row,) = values.crossJoin(found).agg(*(rank for pair in ranks for rank in pair)).collect()
    for at, share in enumerate(SHARES):
        below, upto = row[2 * at], row[2 * at + 1]
        assert below - VALUES / 1000 <= share * VALUES <= upto + VALUES / 1000


def downtimes(spark: SparkSession) -> DataFrame:
    """Return 99 downtimes of 1 to 99 s, and one open downtime of 200 s."""
    seconds = sf.col("id").cast("double")
    there = sf.col("id") < 100
    return spark.range(1, 101).select(
        sf.when(there, seconds).alias("downtime"), sf.when(~there, 200.0).alias("longer_than")
    )


def test_the_summary_takes_a_sketch_of_too_many_outages(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, sketched = (
        summary._downtimes(downtimes(spark), most).collect()[0].asDict()
        for most in (100, percentiles.EXACT + 1)
    )
    assert exact["p50_downtime"] == 50.5
    assert sketched["p50_downtime"] == 50  # a measured value, and none between two
    same = ("max_downtime", "p50_is_bound", "p90_is_bound", "max_is_bound")
    assert [exact[name] for name in same] == [sketched[name] for name in same] == [200.0, 0, 0, 1]


def test_members_take_a_sketch_of_too_many_attempts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {"server_address": "a", "server_port": 1}
    lines = [
        *((Kind.ATTEMPT, 0.0, {**where, "attempt_duration": number / 1000}) for number in range(1, 100)),
        (Kind.ATTEMPT, 0.0, {**where, "attempt_duration": 9.0, "error_type": "refused"}),
    ]
    events = framed(spark, rows("connects", lines)).localCheckpoint()
    rolled_up = rollup.materialize(rollup.roll_up(events))
    found = []
    for most in (99, 98):
        monkeypatch.setattr(members, "EXACT", most)
        monkeypatch.setattr(percentiles, "EXACT", most)
        found.append(members.connects(events, rolled_up).collect()[0]["times"])
    assert found == [[50_000, 89_200, 98_020], [50_000, 90_000, 99_000]]


def test_a_table_that_turns_out_large_is_not_put_into_one_task(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "FEW", 10)
    sizes = [rollup.materialize(spark.range(0, rows, 1, 2)).rdd.getNumPartitions() for rows in (10, 11)]
    assert sizes == [1, 2]
