"""Uneven lines: one client, and one member, may have nearly all of them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.tables import clock
from haclient.telemetry.schema import KEYS, Kind
from tests.analysis.stories import all_tables

MANY = 250_000


@pytest.mark.slow
def test_an_outage_with_very_many_attempts_at_one_member_is_one_row(spark: SparkSession) -> None:
    number = sf.col("id")
    kind = sf.when(number == 0, Kind.LOST.value).when(number > MANY, Kind.CONNECTED.value)
    given = {
        "event_id": number.cast("string"),
        "source": sf.lit("/haclient/one"),
        "type": kind.otherwise(Kind.ATTEMPT.value),
        "time": sf.timestamp_micros(sf.lit(1_780_000_000_000_000) + number * 1000),
        "client_id": sf.lit("stubborn"),
        "instance": sf.lit("one"),
        "connection": sf.lit(1),
        "sequence": number + 1,
        "monotonic": number / 1000,
        "cluster": sf.lit("prod"),
        "outage": sf.lit(2),
        "attempt": number,
        "attempt_duration": sf.lit(0.001),
        "server_address": sf.lit("broker-a"),
        "server_port": sf.lit(5672),
        "error_type": sf.when((number > 0) & (number < MANY), "refused"),
    }
    columns = [given.get(key.column, sf.lit(None)).cast(key.type.value).alias(key.column) for key in KEYS]
    events = spark.range(MANY + 2).select(*columns, sf.to_date("time").alias("date"))
    tables = all_tables(clock.placed(events))

    (episode,) = tables["episodes"].collect()
    assert (episode["attempts"], episode["reasons"], episode["episode_result"]) == (
        MANY,
        {"refused": MANY - 1},
        "back",
    )
    assert episode["downtime"] == pytest.approx((MANY + 1) / 1000)
    (member,) = tables["members"].collect()
    assert (member["attempts"], member["refusals"]) == (MANY, MANY - 1)
    assert tables["storms"].count() == 0
    spark.catalog.clearCache()
