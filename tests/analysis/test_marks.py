"""Groups of delays that are marked.  References: published tables, values by hand, and scipy's ``kstest``."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from scipy.stats import kstest

from haclient.analysis import marks
from haclient.analysis.marks import Group, Judgement, Verdict
from haclient.analysis.tables import jitter
from haclient.telemetry.schema import Kind


def group(judged: int, distance: float | None) -> Group:
    return Group(delays=judged, fixed=0, judged=judged, distance=distance)


@pytest.mark.parametrize(
    ("judged", "distance", "expected", "digits"),
    [
        (1, 0.75, 0.5, 1e-12),  # by hand: P(D >= d) = 2 - 2 d
        (2, 0.5, 0.5, 1e-12),  # by hand: 1 - 2 (2 d - 1/2)^2 up to one half
        (50, 0.18841, 0.05, 1e-4),  # Birnbaum, JASA 47 (1952), table 2, and Miller, JASA 51 (1956)
        (100, 0.13403, 0.05, 1e-4),
        (100, 0.16081, 0.01, 1e-4),
    ],
)
def test_p_is_the_exact_one(judged: int, distance: float, expected: float, digits: float) -> None:
    (found,) = marks.p_values([group(judged, distance)])
    assert found == pytest.approx(expected, abs=digits)


def test_holm_by_hand() -> None:
    """Holm's correction: the smallest times 4, the next times 3, and never less than the one before."""
    assert marks.holm([0.02, 0.01, 0.9, 0.011]) == pytest.approx([0.04, 0.04, 0.9, 0.04])
    assert marks.holm([0.5, 0.6]) == [1.0, 1.0]


def test_an_even_fleet_is_not_marked_and_would_be_without_holm() -> None:
    """200 groups each; at most one fleet in twenty may have a mark.  The seeds are fixed."""
    fleets = 40
    marked, naive = 0, 0
    for seed in range(fleets):
        places = numpy.sort(numpy.random.default_rng(seed).random((200, 200)), axis=1)
        ranks = numpy.arange(1, 201) / 200
        distances = numpy.maximum(ranks - places, places - ranks + 1 / 200).max(axis=1)
        judged = marks.judge([group(200, float(each)) for each in distances])
        marked += any(each.verdict is Verdict.MARKED for each in judged)
        naive += any((each.p_value or 1.0) <= marks.LEVEL for each in judged)
    assert marked <= 5  # more has a probability of 0.01
    assert naive == fleets


def test_without_scipy_the_verdict_says_that_nobody_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert marks.judge([group(50, 0.9), group(49, 0.9)]) == [
        Judgement(Verdict.UNTESTED),
        Judgement(Verdict.FEW),
    ]


Delay = tuple[str, float, float, float | None, int]
"""Strategy, ceiling, delay, floor and round."""

SCHEMA = (
    "backoff_strategy STRING, backoff_base DOUBLE, backoff_delay DOUBLE, backoff_floor DOUBLE, "
    "backoff_round BIGINT"
)
MANY = 1_000_000
BIAS = 1.02
"""Positions are even draws to the power of it: at most 0.0073 away from even, by calculus."""


def evenly(count: int, seed: int = 0) -> list[float]:
    prng = random.Random(seed)
    return [prng.random() for _ in range(count)]


FULL = [evenly(60, seed) for seed in range(200)]
DECORRELATED = evenly(400, 1000)


def told() -> Iterator[Delay]:
    for number, places in enumerate(FULL):
        base = 0.1 + number / 100
        yield from (("full", base, base * place, 0.0, 1) for place in places)
    yield from (("full", 50.0, 25.0, None, 2) for _ in range(200))  # in step; an older client
    yield from (
        ("equal", 50.0, 50.0 * place, None, 3) for place in evenly(200, 1)
    )  # drawn from too far below
    yield from (("equal", 60.0, 30.0 + 30.0 * place, 30.0, 3) for place in evenly(200, 2))
    yield from (  # each ceiling is three times the delay before
        ("decorrelated", 1.0 + number, 0.1 + (0.9 + number) * place, 0.1, 4)
        for number, place in enumerate(DECORRELATED)
    )
    yield from (("adaptive", 0.6, 0.6, 0.57, 5 + number) for number in range(100))  # rounds 16 to 104 are one
    yield from (("adaptive", 0.1 + place, 0.1 + place, None, 1) for place in evenly(90, 3))
    yield from (("exponential", 0.8, 0.8, 0.8, 3) for _ in range(90))
    yield from (("full", 70.0, 0.0, 0.0, 3) for _ in range(49))
    yield from (("homemade", 1.0, 0.5, None, 3) for _ in range(90))


def million(spark: SparkSession) -> DataFrame:
    place = sf.pow((sf.col("id") + 0.5) / MANY, sf.lit(BIAS))
    return spark.range(MANY).select(
        sf.lit("full").alias("backoff_strategy"),
        sf.lit(80.0).alias("backoff_base"),
        (80.0 * place).alias("backoff_delay"),
        sf.lit(0.0).alias("backoff_floor"),
        sf.lit(9).cast("bigint").alias("backoff_round"),
    )


def judged(given: DataFrame) -> list[dict[str, Any]]:
    none = sf.lit(None).cast("double")
    at = sf.timestamp_micros(sf.lit(1_780_000_000_000_000))
    lines = given.withColumns(
        {"type": sf.lit(Kind.BACKOFF.value), "retry_after": none, "backoff_max": sf.lit(1e3)}
    ).withColumns({"t": at, "cluster": sf.lit("prod")})
    drawn = jitter.delays(lines).persist()
    rows = jitter.statistics(drawn, jitter.histogram(drawn).localCheckpoint()).collect()
    drawn.unpersist()
    return [row.asDict() for row in rows]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[dict[str, Any]]:
    return judged(spark.createDataFrame(list(told()), SCHEMA))


def one(found: list[dict[str, Any]], strategy: str, base: float | None, number: int) -> dict[str, Any]:
    key = (strategy, base, number)
    (row,) = (row for row in found if (row["strategy"], row["backoff_base"], row["round"]) == key)
    return row


@pytest.mark.slow
def test_a_million_delays_with_a_tiny_bias_are_not_marked(spark: SparkSession) -> None:
    """The bias is significant, and too small to act on."""
    few = spark.createDataFrame(list(told()), SCHEMA)
    row = one(judged(million(spark).unionByName(few)), "full", 80.0, 9)
    assert row["ks_statistic"] == pytest.approx(0.0072849, abs=1e-6)
    assert row["p_adjusted"] < 1e-20
    assert row["verdict"] == "as promised"


@pytest.mark.slow
def test_of_two_hundred_even_groups_none_is_marked(found: list[dict[str, Any]]) -> None:
    rows = [row for row in found if row["strategy"] == "full" and row["delays"] == 60]
    assert len(rows) == 200
    assert {row["verdict"] for row in rows} == {"as promised"}
    assert min(row["p_value"] for row in rows) < marks.LEVEL


def test_distance_and_p_are_those_of_scipys_kstest(found: list[dict[str, Any]]) -> None:
    for number, places in enumerate(FULL[:20]):
        row, judge = one(found, "full", 0.1 + number / 100, 1), kstest(places, "uniform")
        assert row["ks_statistic"] == pytest.approx(judge.statistic, abs=1e-9)
        assert row["p_value"] == pytest.approx(judge.pvalue, rel=1e-6)
    row, judge = one(found, "decorrelated", None, 4), kstest(DECORRELATED, "uniform")
    assert (row["ks_statistic"], row["p_value"]) == pytest.approx((judge.statistic, judge.pvalue), rel=1e-6)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("full", 50.0, 2), (200, 200, "marked")),
        (("equal", 50.0, 3), (200, 200, "marked")),
        (("equal", 60.0, 3), (200, 200, "as promised")),
        (("decorrelated", None, 4), (400, 400, "as promised")),
        (("adaptive", None, 16), (89, 89, "marked")),
        (("adaptive", None, 15), (1, 1, "few delays")),
        (("adaptive", None, 1), (90, 0, "no distribution recorded")),
        (("exponential", 0.8, 3), (90, 0, "no jitter")),
        (("full", 70.0, 3), (49, 49, "few delays")),
        (("homemade", None, 3), (90, 0, "no distribution recorded")),
    ],
)
def test_every_group_has_a_verdict(
    found: list[dict[str, Any]],
    key: tuple[str, float | None, int],
    expected: tuple[int, int, str],
) -> None:
    row = one(found, *key)
    assert (row["delays"], row["judged"], row["verdict"]) == expected
    assert (row["p_value"] is None) == (row["verdict"] not in {"marked", "as promised"})
