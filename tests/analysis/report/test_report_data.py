"""The report's data from the analysis' tables: exact figures, in few rows however large the fleet."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.report import data, lag, period, storm_rows
from haclient.analysis.report.storm_rows import BUCKETS, MEMBERS, STORMS
from haclient.analysis.report.text import OTHERS
from haclient.analysis.tables.summary import of_episodes

_AT = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
_EPISODE = (
    "client_id string, connection long, first_connect boolean, began_at timestamp, back_at timestamp, "
    "downtime double, episode_result string, longer_than double, never_connected boolean"
)
_STORM = (
    "storm_id string, cluster string, started_at timestamp, ended_at timestamp, clients_hit long, "
    "attempts long"
)
_BUCKET = (
    "storm_id string, second double, server_address string, server_port long, attempts long, "
    "failures long, connected long"
)


def _episodes(spark: SparkSession, times: list[float | None], episode_result: str = "back") -> DataFrame:
    rows = [
        (
            f"c{index}",
            1,
            False,
            _AT,
            None,
            downtime,
            "silent" if downtime is None else episode_result,
            600.0 if downtime is None else None,
            False,
        )
        for index, downtime in enumerate(times)
    ]
    return spark.createDataFrame(rows, _EPISODE)


def _storms(spark: SparkSession, *hit: int, cluster: str | None = "orders") -> DataFrame:
    rows = [
        (f"s{place}", cluster, _AT, _AT + timedelta(seconds=60), clients, clients * 2)
        for place, clients in enumerate(hit)
    ]
    return spark.createDataFrame(rows, _STORM)


def _buckets(spark: SparkSession, *rows: tuple[float, str, int, int]) -> DataFrame:
    return spark.createDataFrame(
        [
            ("s0", second, member, 5672, attempts, attempts - connected, connected)
            for second, member, attempts, connected in rows
        ],
        _BUCKET,
    )


def _backoffs(spark: SparkSession, *ratios: float, retry_after: float | None = None) -> DataFrame:
    return spark.createDataFrame(
        [("haclient.connection.backoff", "full", 2.0, 2.0 * ratio, retry_after) for ratio in ratios],
        "type string, backoff_strategy string, backoff_base double, backoff_delay double, retry_after double",
    )


def _roles(spark: SparkSession, *rows: tuple[float, str, str, str]) -> DataFrame:
    return spark.createDataFrame(
        [
            ("haclient.member.role", _AT + timedelta(seconds=second), cluster, member, role, 5)
            for second, cluster, member, role in rows
        ],
        "type string, t timestamp, cluster string, member string, role string, generation long",
    )


def _dicts(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_the_curve_is_exact_at_every_point(spark: SparkSession) -> None:
    times = [0.013 * (place % 997 + 1) ** 1.3 for place in range(3000)]
    points = _dicts(data.ecdf(_episodes(spark, times)))  # type: ignore[arg-type]
    assert len(points) < 300
    for point in points:
        within = sum(downtime <= point["downtime"] for downtime in times)
        assert math.isclose(point["share"], within / len(times))
    assert points[-1] == {"downtime": max(times), "share": 1.0}


def test_what_never_came_back_keeps_the_curve_below_one(spark: SparkSession) -> None:
    points = _dicts(data.ecdf(_episodes(spark, [1.0, None, 2.0, None])))
    assert points == [{"downtime": 1.0, "share": 0.25}, {"downtime": 2.0, "share": 0.5}]


def test_who_never_connected_keeps_the_curve_below_one(spark: SparkSession) -> None:
    never = _episodes(spark, [None]).withColumns(
        {"first_connect": sf.lit(True), "never_connected": sf.lit(True)}
    )
    points = _dicts(data.ecdf(_episodes(spark, [1.0]).union(never)))
    assert points == [{"downtime": 1.0, "share": 0.5}]


def test_first_connects_and_what_the_application_closed_are_not_in_the_curve(spark: SparkSession) -> None:
    first = _episodes(spark, [9.0]).withColumn("first_connect", sf.expr("true"))
    closed = _episodes(spark, [None]).withColumns(
        {"episode_result": sf.lit("closed"), "longer_than": sf.lit(None).cast("double")}
    )
    points = _dicts(data.ecdf(_episodes(spark, [0.0]).union(first).union(closed)))
    assert points == [{"downtime": 0.0, "share": 1.0}]


def _percentiles(episodes: DataFrame) -> dict[str, Any]:
    [found] = _dicts(of_episodes(episodes.withColumn("attempts", sf.lit(1))))
    return data.headline({}, found)


def test_the_headline_counts_outages_and_their_exact_percentiles(spark: SparkSession) -> None:
    first = _episodes(spark, [100.0]).withColumn("first_connect", sf.expr("true"))
    row = _percentiles(_episodes(spark, [float(number) for number in range(101)] + [None]).union(first))
    assert [round(row[rank], 6) for rank in ("p50", "p90", "p99", "max")] == [50.5, 90.9, 99.99, 600.0]
    assert [row[f"{rank}_is_bound"] for rank in ("p50", "p90", "p99", "max")] == [0, 0, 0, 1]
    assert (row["outages"], row["silent"], row["gave_up"], row["back"]) == (102, 1, 0, 101)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("back", "gone", "percentiles", "bounds"),
    [
        ([1.0] * 50, [3600.0] * 50, [1800.5, 3600.0, 3600.0, 3600.0], [1, 1, 1, 1]),
        ([float(second) for second in range(100)], [50.5], [50.0, 89.0, 98.0, 99.0], [0, 0, 0, 0]),
        (
            [float(second) for second in range(90)],
            [1000.0] * 11,
            [50.0, 1000.0, 1000.0, 1000.0],
            [0, 1, 1, 1],
        ),
        ([5.0] * 10, [5.0], [5.0] * 4, [1, 1, 1, 1]),  # one of the equal values is longer
        ([], [7.0], [7.0] * 4, [1, 1, 1, 1]),
        ([7.0], [], [7.0] * 4, [0, 0, 0, 0]),
    ],
)
def test_who_is_not_back_counts_in_the_percentiles(
    spark: SparkSession, back: list[float], gone: list[float], percentiles: list[float], bounds: list[int]
) -> None:
    found = _episodes(spark, [*back, *([None] * len(gone))])
    number = sf.regexp_extract("client_id", r"\d+", 0).cast("int") - len(back) + 1
    if gone:
        away = sf.when(sf.col("downtime").isNull(), sf.get(sf.array(*map(sf.lit, gone)), number - 1))
        found = found.withColumn("longer_than", away)
    row = _percentiles(found)
    assert [round(row[rank], 6) for rank in ("p50", "p90", "p99", "max")] == percentiles
    assert [row[f"{rank}_is_bound"] for rank in ("p50", "p90", "p99", "max")] == bounds


# -- the period -----------------------------------------------------------------------------------

_LIVES = (
    "client_id string, instance string, connection long, service string, cluster string, resource long, "
    "first_connect boolean, never_connected boolean, began double, back double, downtime double, "
    "longer_than double, last double, episode_result string, generation_before long, generation_after long, "
    "endpoint_before string, endpoint_after string, lost_kind string, lost_reason string, "
    "reasons map<string,bigint>"
)
_RESOURCE = "resource long, service_version string, client_version string"


@pytest.fixture(scope="module")
def lives(spark: SparkSession) -> DataFrame:
    """Return an hour: a and b lose their primary, b stays away; c never connects, d is closed; e is fine, f
    ends.

    Times are seconds after two o'clock.
    """

    def row(client: str, service: str, number: int, /, **facts: Any) -> tuple[Any, ...]:
        usual = {
            "client_id": client,
            "instance": client,
            "connection": 1,
            "service": service,
            "cluster": "orders",
            "resource": 1,
            "first_connect": number == 1,
            "never_connected": False,
            "last": 3600.0,
            "episode_result": "back",
        }
        known = usual | facts
        return tuple(known.get(name.split()[0]) for name in _LIVES.split(", "))

    lost = {"generation_before": 4, "endpoint_before": "x:1", "lost_kind": "cut", "lost_reason": "reset"}
    rows = [
        row("a", "shop", 1, began=0.0, back=1.0, last=1799.0),
        row(
            "a",
            "shop",
            2,
            began=1800.0,
            back=1830.0,
            downtime=30.0,
            generation_after=5,
            endpoint_after="y:1",
            **lost,
        ),
        row("b", "shop", 1, began=0.0, back=1.0, last=1799.0),
        row(
            "b",
            "shop",
            2,
            began=1800.5,
            longer_than=1799.5,
            episode_result="open",
            reasons={"refused": 3, "timed-out": 7},
            **lost,
        ),
        row(
            "c",
            "billing",
            1,
            began=3000.0,
            longer_than=600.0,
            never_connected=True,
            episode_result="silent",
            last=3100.0,
            cluster=None,
            resource=2,
            reasons={"authentication": 9, "redirected": 30},
        ),
        row("d", "billing", 1, began=0.0, back=1.0, last=599.0),
        row("d", "billing", 2, began=600.0, episode_result="closed", last=620.0, **lost),
        row("e", "billing", 1, began=0.0, back=1.0),
        row("f", "billing", 1, began=0.0, back=1.0, last=3470.0),
    ]
    frame = spark.createDataFrame(rows, _LIVES)
    base = _AT.timestamp()
    times = {"began_at": "began", "back_at": "back", "last_event_at": "last"}
    return frame.withColumns(
        {name: sf.timestamp_micros(((sf.col(of) + base) * 1e6).cast("bigint")) for name, of in times.items()}
    ).cache()


def test_lost_time_is_counted_for_the_fleet_each_service_and_each_cluster(lives: DataFrame) -> None:
    """By hand: a 30 s of 3600, b 1799.5 of 3600, c 600 of 600, d nothing of 620, e of 3600 and f of 3470.

    f wrote no line in the last two minutes.
    """
    found = {
        (row["grouped"], row["service"], row["cluster"]): (
            row["connections"],
            row["clients_hit"],
            row["away"],
            row["ended"],
            round(row["seconds"], 3),
            round(row["lost"], 3),
        )
        for row in _dicts(period.groups(lives))
    }
    assert found == {
        ("everyone", None, None): (6, 4, 2, 1, 15_490.0, 2429.5),
        ("service", "shop", None): (2, 2, 1, 0, 7200.0, 1829.5),
        ("service", "billing", None): (4, 2, 1, 1, 8290.0, 600.0),
        ("cluster", None, "orders"): (5, 3, 1, 1, 14_890.0, 1829.5),
        ("cluster", None, None): (1, 1, 1, 0, 600.0, 600.0),
    }


def test_the_timeline_has_who_was_lost_and_who_came_back_in_each_column(
    spark: SparkSession, lives: DataFrame
) -> None:
    storm = [("orders", _AT + timedelta(seconds=1799), _AT + timedelta(seconds=1801))]
    storms = spark.createDataFrame(storm, "cluster string, started_at timestamp, ended_at timestamp")
    first = int(_AT.timestamp())
    found = [
        (row["at"] - first, row["lost"], row["in_storm"], row["never"], row["ended"])
        for row in _dicts(period.columns(lives, storms, 60))
    ]
    assert found == [(600, 1, 0, 0, 1), (1800, 2, 2, 0, 1), (3000, 1, 0, 1, 0)]


def test_who_is_away_is_grouped_with_the_error_they_meet_most(lives: DataFrame) -> None:
    rows = _dicts(period.unrecovered(lives))
    assert all(row["since"] == row["latest"] for row in rows), "each is alone in its group"
    assert [
        (row["service"], row["result"], row["error"], row["endpoint"], row["connections"]) for row in rows
    ] == [
        ("shop", "open", "timed-out", "x:1", 1),
        ("billing", "never_connected", "authentication", None, 1),
    ]
    [reason] = _dicts(period.lost_reasons(lives))
    assert reason == {"endpoint": "x:1", "kind": "cut", "reason": "reset", "outages": 3}


def test_promotions_and_deploys_are_found_with_their_times(spark: SparkSession, lives: DataFrame) -> None:
    announced = _roles(
        spark,
        (1829.0, "orders", "y", "primary"),
        (1899.0, "orders", "y", "primary"),
        (9.0, "other", "z", "primary"),
    )
    [promotion] = data.collect(period.promotions(lives, period.primaries(announced)))
    assert promotion == {
        "announced_at": "2026-11-21 02:30:29.000",
        "announced_by": "y",
        "at": "2026-11-21 02:30:30.000",
        "cluster": "orders",
        "generation": 5,
        "endpoint": "y:1",
    }
    resources = spark.createDataFrame([(1, "2.4.0", "0.1.0"), (2, "2.5.0", "0.1.0")], _RESOURCE)
    [deploy] = data.collect(period.deploys(lives, resources))
    assert deploy == {
        "service": "billing",
        "attribute": "service.version",
        "value": "2.5.0",
        "before": "2.4.0",
        "at": "2026-11-21 02:50:00.000",
    }


@pytest.mark.parametrize(
    ("seconds", "width"),
    [(0, 1), (3600, 30), (86_400, 600), (7 * 86_400, 7200), (86_400 * 3650, 86_400 * 23)],
)
def test_the_timeline_has_at_most_so_many_columns_at_round_times(seconds: int, width: int) -> None:
    assert period.width(0, seconds) == width
    assert seconds / width + 1 <= period.COLUMNS


def test_who_never_connected_is_hit_and_away() -> None:
    counts = dict.fromkeys(("open", "silent", "gave_up"), 0)
    row = {
        "attribute": "service.version",
        "value": "2.5.0",
        "values": 1,
        "connections": 9,
        "connections_hit": 3,
        "connections_ended": 1,
    }
    others = {**row, **counts, "open": 2, "never_connected": 4}
    [found] = data.hit({"cluster": []}, [others, {**others, "attribute": "service.instance.id"}])
    assert (found["connections"], found["hit"], found["away"], found["ended"]) == (9, 7, 6, 1)


def test_delays_are_counted_by_their_share_of_the_base(spark: SparkSession) -> None:
    cells = _dicts(data.jitter_histogram(_backoffs(spark, 0.0, 0.04, 0.05, 1.0, 1.2)))
    assert len(cells) == 20
    assert [cell["delays"] for cell in cells] == [2, 1, *[0] * 17, 2]
    assert {cell["ideal"] for cell in cells} == {0.25}
    assert (cells[0]["ratio_from"], cells[-1]["ratio_to"]) == (0.0, 1.0)


def test_delays_that_a_server_asked_for_are_not_judged(spark: SparkSession) -> None:
    assert _dicts(data.jitter_histogram(_backoffs(spark, 0.5, retry_after=1.0))) == []


def test_only_the_biggest_storms_are_drawn(spark: SparkSession) -> None:
    largest = storm_rows.biggest(_storms(spark, 3, 50, 7, 9, 20))
    assert {row["storm_id"] for row in largest.collect()} == {"s1", "s4", "s3"}
    assert largest.count() == STORMS


def test_a_short_storm_keeps_its_tenths_of_a_second(spark: SparkSession) -> None:
    buckets = _buckets(spark, (0.0, "a", 5, 0), (0.1, "a", 3, 1), (0.3, "b", 4, 4))
    drawn = _dicts(storm_rows.timeline(buckets, storm_rows.biggest(_storms(spark, 9))))
    assert [(row["second"], row["width"], row["member"], row["attempts"]) for row in drawn] == [
        (0.0, 0.1, "a:5672", 5),
        (0.1, 0.1, "a:5672", 3),
        (0.3, 0.1, "b:5672", 4),
    ]


def test_a_long_storm_is_drawn_in_few_columns_and_loses_no_attempt(spark: SparkSession) -> None:
    rows = [(place / 10, f"m{place % 9}", 2, 1) for place in range(3000)]
    drawn = _dicts(storm_rows.timeline(_buckets(spark, *rows), storm_rows.biggest(_storms(spark, 9))))
    assert len({row["second"] for row in drawn}) <= BUCKETS
    assert len({row["member"] for row in drawn}) == MEMBERS + 1
    assert OTHERS in {row["member"] for row in drawn}
    assert sum(row["attempts"] for row in drawn) == 6000
    assert sum(row["connected"] for row in drawn) == 3000


def test_a_straggler_does_not_squeeze_the_storm(spark: SparkSession) -> None:
    rows = [(place / 10, "a", 10, 10) for place in range(20)]
    drawn = _dicts(
        storm_rows.timeline(
            _buckets(spark, *rows, (3600.0, "a", 1, 1)), storm_rows.biggest(_storms(spark, 9))
        )
    )
    assert {row["width"] for row in drawn} == {0.1}
    assert max(row["second"] for row in drawn) < 3


def test_a_storm_that_nobody_came_back_from_is_drawn_to_its_end(spark: SparkSession) -> None:
    drawn = _dicts(
        storm_rows.timeline(
            _buckets(spark, (0.0, "a", 1, 0), (5.0, "a", 1, 0)), storm_rows.biggest(_storms(spark, 9))
        )
    )
    assert max(row["second"] for row in drawn) == 5.0


def test_the_primary_s_return_is_marked_from_its_own_line_and_from_the_first_client(
    spark: SparkSession,
) -> None:
    largest = storm_rows.biggest(_storms(spark, 9))
    drawn = storm_rows.timeline(_buckets(spark, (0.0, "a", 1, 0), (2.4, "b", 1, 1)), largest)
    events = _roles(
        spark,
        (-5.0, "orders", "a", "primary"),
        (1.0, "orders", "b", "recovering"),
        (2.1, "orders", "b", "primary"),
        (2.0, "other", "x", "primary"),
    )
    found = _dicts(storm_rows.marks(period.primaries(events), largest, drawn))
    assert [(row["event"], round(row["second"], 3), row["member"]) for row in found] == [
        ("promoted", 2.1, "b"),
        ("first back", 2.4, None),
    ]


def test_reasons_are_summed_over_the_storm_the_most_frequent_first(spark: SparkSession) -> None:
    rows = [("s0", float(second), f"e{second % 9}", second) for second in range(30)]
    frame = spark.createDataFrame(rows, "storm_id string, second double, error_type string, failures long")
    found = _dicts(storm_rows.reasons(frame, storm_rows.biggest(_storms(spark, 9))))
    assert len(found) == 6
    assert found[0] == {"storm_id": "s0", "error_type": "e2", "failures": 2 + 11 + 20 + 29}


def test_times_leave_as_text_in_utc(spark: SparkSession) -> None:
    [row] = data.collect(_storms(spark, 9))
    assert row["started_at"] == "2026-11-21 02:00:00.000"


def _lags(spark: SparkSession, *rows: tuple[int, str, str | None, float, dict[str, int]]) -> DataFrame:
    """A minute, a cluster, a link, the lag, and the anomalies."""
    columns = "start timestamp, cluster string, link string, sequence bigint, duplicates bigint, gaps bigint,"
    columns += "anomalies map<string,bigint>," + ",".join(
        f"lag_{unit}_{level} double" for unit in ("seconds", "events") for level in ("p50", "p99", "max")
    )
    made = [
        (
            _AT + timedelta(minutes=at),
            cluster,
            link,
            at,
            0,
            0,
            odd,
            *[lag * part for part in (0.1, 0.9, 1.0)] * 2,
        )
        for at, cluster, link, lag, odd in rows
    ]
    return spark.createDataFrame(made, columns)


def test_the_streams_that_are_furthest_behind_come_first_with_their_worst_minutes(
    spark: SparkSession,
) -> None:
    lags = _lags(
        spark,
        (0, "west", None, 2.0, {}),
        (1, "west", None, 8.0, {}),
        (0, "east", "from-a", 9.0, {"gone": 2}),
        (5, "east", "from-a", 1.0, {"gone": 1, "gaps": 1}),
    )
    east, west = _dicts(lag.streams(lags))
    assert (east["cluster"], east["link"], east["anomalies"], east["minutes"]) == (
        "east",
        "from-a",
        {"gone": 3, "gaps": 1},
        2,
    )
    assert (west["lag_seconds_max"], west["lag_seconds_p50"], west["sequence"]) == (8.0, 0.8, 1)
    first = _AT.timestamp()
    assert [(each["second"] - first, each["width"]) for each in east["columns"]] == [(0, 60), (300, 60)]
    assert west["streams"] == 2


def test_a_long_time_is_drawn_in_few_columns_with_the_worst_minute_of_each(spark: SparkSession) -> None:
    lags = _lags(spark, *((at, "west", None, 50.0 if at == 500 else 1.0, {}) for at in range(1000)))
    [west] = _dicts(lag.streams(lags))
    assert len(west["columns"]) <= lag.COLUMNS
    assert {each["width"] for each in west["columns"]} == {540}
    assert max(each["lag_seconds_max"] for each in west["columns"]) == 50.0
    assert sum(each["lag_seconds_max"] == 1.0 for each in west["columns"]) == len(west["columns"]) - 1
