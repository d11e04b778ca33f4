"""Storms, their clients, and whether the accept rate limited them; counted by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from haclient.analysis.tables.build import Options
from haclient.analysis.tables.storms import cores
from haclient.telemetry.schema import Kind
from tests.analysis.spark_processes import INTERPRETED
from tests.analysis.stories import START, Line, Stories, all_tables

pytestmark = pytest.mark.slow  # the tables of a fleet

STORIES = Stories()
NEVER = float("inf")
AS_OF = 5000.0  # s

Outage = tuple[float, float]
"""When a connection was lost, and when it was back; seconds."""

Tables = dict[str, list[dict[str, Any]]]


def client(number: int, *outages: Outage, came: float = -10.0) -> Iterator[Line]:
    """Return the lines of one client."""
    one = {"client_id": f"client-{number}", "server_address": "b", "server_port": 1}
    yield Kind.CONNECTED, came, one | {"outage": 1}
    for outage, (lost, back) in enumerate(outages, start=2):
        yield Kind.LOST, lost, one | {"outage": outage}
        if back != NEVER:
            yield Kind.CONNECTED, back, one | {"outage": outage}


def tell(name: str, clients: Iterable[Iterable[Line]], *more: Line, **everywhere: Any) -> str:
    return STORIES.tell(name, [*(line for lines in clients for line in lines), *more], **everywhere)


def refusals(seconds: Iterable[int], where: str = "b", **facts: Any) -> Iterator[Line]:
    """Return one refusal in the middle of each second, of a client that is in an outage."""
    given = {"client_id": "client-0", "outage": 2, "attempt_duration": 0.01, "error_type": "closed"}
    for second in seconds:
        yield Kind.ATTEMPT, second + 0.5, given | {"server_address": where, "server_port": 1} | facts


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[Tables]:
    made = all_tables(STORIES.frame(spark), Options(as_of=START + timedelta(seconds=AS_OF)))
    names = ("storms", "storm_timeline", "storm_reasons")
    yield {name: [row.asDict() for row in made[name].collect()] for name in names}
    spark.catalog.clearCache()


def storms(tables: Tables, story: str | None) -> list[dict[str, Any]]:
    """Return the storms of one story, the earliest first."""
    found = [row for row in tables["storms"] if row["cluster"] == story]
    return sorted(found, key=lambda row: row["started_at"])


def picked(row: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def at(row: Mapping[str, Any], name: str) -> float:
    """Return a time, in seconds from the start of the story."""
    seconds: float = (row[name].replace(tzinfo=UTC) - START).total_seconds()
    return seconds


# -- clients of a storm ------------------------------------------------------------------------------


def test_losses_that_are_spread_are_no_storm(spark: SparkSession) -> None:
    """Two cases: 10,000 in an hour, of as many clients; and a million in three days."""
    compiled = spark.newSession()  # a million rows are too many for an interpreter
    for name in INTERPRETED:
        compiled.conf.unset(name)
    numbers = compiled.range(1_010_000).select("id", (sf.col("id") < 10_000).alias("hourly"))
    lost_at = sf.timestamp_millis(
        1_780_000_000_000 + sf.when(sf.col("hourly"), sf.col("id") * 360).otherwise(sf.col("id") * 259)
    )
    fixed = {"process": 1, "connection": 1, "outage": 2}
    unknown = ("said_connected", "attempts", "generation_before", "generation_after")
    outages = numbers.select(
        *(sf.col("id").alias(name) for name in ("client_id", "instance")),
        sf.when(sf.col("hourly"), "hour").otherwise("days").alias("cluster"),
        *(sf.lit(value).cast("bigint").alias(name) for name, value in fixed.items()),
        *(lost_at.alias(name) for name in ("lost_at", "first_line_at")),
        *((lost_at + sf.expr("INTERVAL 1 SECOND")).alias(name) for name in ("back_at", "last_event_at")),
        sf.lit(None).cast("timestamp").alias("closed_at"),
        *(sf.lit(None).cast("bigint").alias(name) for name in unknown),
        *(sf.lit(1.0).alias("downtime"), sf.lit("back").alias("episode_result")),
    )
    assert cores.losses(outages).isEmpty()


TWO = tell(
    "100 lost at 0, one back after 400 s, and 100 lost at 200 s",
    (
        client(number, (number / 1000, 400.0 if number == 99 else (number + 1) * 10 / 99), (200.0, 210.0))
        if number < 99
        else client(number, (number / 1000, 400.0))
        for number in range(100)
    ),
    *client(100, (200.0, 210.0)),
)


def test_a_storm_ends_when_99_percent_are_back(tables: Tables) -> None:
    first, second = storms(tables, TWO)
    assert picked(first, "clients_hit", "stragglers", "back") == (100, 1, 100)
    assert (at(first, "started_at"), at(first, "ended_at")) == (0.0, 10.0)
    assert (first["back_99"], first["back_100"], first["last_back"]) == (10.0, 400.0, 400.0)
    assert picked(second, "clients_hit", "stragglers", "back_99", "back_100") == (100, 0, 10.0, 10.0)
    assert (at(second, "started_at"), at(second, "ended_at")) == (200.0, 210.0)


def lost(*times: float, live: int = 0) -> list[Iterator[Line]]:
    """Return clients lost at these times and back 30 s later, and others, up to ``live``, that stay
    connected.
    """
    hit = [client(number, (time, time + 30.0)) for number, time in enumerate(times)]
    return hit + [client(number) for number in range(len(times), live)]


@pytest.mark.parametrize(
    ("story", "hit"),
    [
        (tell("five in less than five seconds", lost(0, 1, 2, 3, 4.999)), [5]),
        (tell("five in five seconds", lost(0, 1, 2, 3, 5.0)), []),
        (tell("four", lost(0, 0, 0, 0)), []),
        (tell("ten of a hundred", lost(*range(1), *[1.0] * 9, live=100)), [10]),
        (tell("nine of a hundred", lost(*[1.0] * 9, live=100)), []),
        (tell("windows that touch", lost(*[0.0] * 5, *[5.0] * 5)), [10]),
        (tell("windows apart", lost(*[0.0] * 5, *[5.001] * 5)), [5, 5]),
        (tell("a light tail in the last window", lost(*[0.0] * 5, 4.9, 5.0)), [6]),
        (tell("one client, again and again", [client(0, *((n / 2, n / 2 + 0.1) for n in range(9)))]), []),
        (tell("four, and one of them twice", [*lost(0, 0, 0), client(9, (0, 1.0), (2.0, 3.0))]), []),
        (tell("five, and one of them twice", [*lost(0, 0, 0, 0), client(9, (0, 1.0), (2.0, 9.0))]), [5]),
        (
            tell(
                "ten of a hundred, for ten have left",
                lost(*[1.0] * 10, live=110),
                *((Kind.CLOSED, 0.5, {"client_id": f"client-{n}", "outage": 1}) for n in range(20, 30)),
            ),
            [10],
        ),
        (tell("a cluster without a name", lost(*[0.0] * 6), cluster=None) and None, [6]),
    ],
)
def test_a_window_of_five_seconds_with_enough_losses_is_a_storm(
    tables: Tables, story: str | None, hit: list[int]
) -> None:
    assert [row["clients_hit"] for row in storms(tables, story)] == hit


def test_a_storm_says_how_many_were_live_before_it(tables: Tables) -> None:
    (ten,), (left,) = (storms(tables, f"ten of a hundred{more}") for more in ("", ", for ten have left"))
    first, second = storms(tables, TWO)
    assert [row["live"] for row in (ten, left, first, second)] == [100, 100, 101, 100]


def test_a_connection_that_was_lost_twice_in_a_storm_is_back_when_it_stays(tables: Tables) -> None:
    (row,) = storms(tables, "five, and one of them twice")
    assert picked(row, "clients_hit", "back", "back_50", "back_100") == (5, 5, 30.0, 30.0)


@pytest.mark.parametrize(
    "story",
    [
        tell(f"a clock is {slow} s slow", lost(-slow, *(place / 10 for place in range(10))))
        for slow in (3.0, 4.5)
    ],
)
def test_a_client_whose_clock_is_slow_does_not_move_the_start_of_a_storm(tables: Tables, story: str) -> None:
    (row,) = storms(tables, story)
    assert (row["clients_hit"], at(row, "started_at"), row["back_50"]) == (11, 0.0, 30.4)


def ending(name: str, *lines: tuple[Kind, float], **facts: Any) -> list[Line]:
    return [(kind, time, {"client_id": name} | facts) for kind, time in [(Kind.LOST, 0.0), *lines]]


ENDS = tell(
    "each of six ends",
    [
        ending("back", (Kind.CONNECTED, 8.0)),
        ending("back, nobody knows when", (Kind.ALIVE, 60.0), state="connected"),
        ending("gave up", (Kind.GAVE_UP, 3.0)),
        ending("closed", (Kind.CLOSED, 3.0)),
        ending("replaced", (Kind.BACKOFF, 3.0)),
        ending("open", (Kind.BACKOFF, AS_OF - 10.0)),
        ending("silent", (Kind.BACKOFF, 3.0)),
    ],
    (Kind.CONNECTED, 4.0, {"client_id": "replaced", "instance": "two", "outage": 1}),
)


def test_the_connections_of_a_storm_end_in_one_of_six_ways(tables: Tables) -> None:
    (row,) = storms(tables, ENDS)
    ends = ("back", "gave_up", "closed", "replaced", "open", "silent")
    assert picked(row, *ends) == (2, 1, 1, 1, 1, 1)
    assert row["clients_hit"] == 7
    # of the four clients in the percentiles, one is back
    assert picked(row, "back_50", "back_99", "last_back", "ended_at", "stragglers") == (
        None,
        None,
        8.0,
        None,
        None,
    )


# -- attempts of a storm --------------------------------------------------------------------------


def attempt(name: str, end: float, took: float, outage: int = 2, **facts: Any) -> Line:
    here = {"server_address": "b", "server_port": 1}
    return Kind.ATTEMPT, end, {"client_id": name, "outage": outage, "attempt_duration": took} | here | facts


JOINED = tell(
    "attempts of other outages",
    lost(*[0.0] * 5),
    attempt("client-0", 0.5, 0.4, error_type="closed"),
    attempt("client-0", 30.0, 0.2),
    attempt("client-4", 4000.0, 1.0, error_type="closed"),
    attempt("client-7", 0.5, 0.4, outage=1),
    attempt("client-0", 1.0, 0.1, outage=3),
)


def test_attempts_belong_to_a_storm_by_their_outage_and_not_by_their_time(tables: Tables) -> None:
    (row,) = storms(tables, JOINED)
    assert picked(row, "attempts", "amplification", "peak_attempts_per_second") == (3, 0.6, 1)
    seen = [line for line in tables["storm_timeline"] if line["storm_id"] == row["storm_id"]]
    by_second = {line["second"]: picked(line, "attempts", "failures", "connected") for line in seen}
    assert by_second == {0.1: (1, 1, 0), 29.8: (1, 0, 0), 29.9: (0, 0, 5), 3999.0: (1, 1, 0)}
    failed = [line for line in tables["storm_reasons"] if line["storm_id"] == row["storm_id"]]
    assert {line["second"]: picked(line, "error_type", "failures") for line in failed} == {
        0.0: ("closed", 1),
        3999.0: ("closed", 1),
    }


YEARS = -25 * 365 * 86_400.0
NEVER_SET = tell(
    "devices without a monotonic clock start in 2001, and get the time in an outage",
    (
        [
            (Kind.LOST, YEARS, {"client_id": name}),
            attempt(name, YEARS + 3.0, 0.1, error_type="closed"),
            attempt(name, 3.0, 0.1),
            (Kind.CONNECTED, 3.0, {"client_id": name, "outage_duration": 9.0}),
        ]
        for name in "abcde"
    ),
    monotonic=None,
)


def test_a_clock_that_is_set_makes_no_storm_of_decades(tables: Tables) -> None:
    (row,) = storms(tables, NEVER_SET)
    assert row["ended_at"] - row["started_at"] == timedelta(seconds=9)
    assert picked(row, "clients_hit", "attempts") == (5, 10)
    seen = [line["second"] for line in tables["storm_timeline"] if line["storm_id"] == row["storm_id"]]
    assert seen == [2.9]


# -- saturated ------------------------------------------------------------------------------------

RATED = ("saturated", "setup_rate", "ideal", "ratio_to_ideal")
NOT_SATURATED = (False, None, None, None)


def even(clients: int, apart: float, first: float = 0.0) -> list[list[Line]]:
    """Return clients that are all lost at 0, and return one after the other."""
    made: list[list[Line]] = []
    for number in range(clients):
        one = {"client_id": f"client-{number}", "server_address": "b", "server_port": 1}
        back = first + round((number + 1) * apart, 6)
        made.append([(Kind.LOST, 0.0, one), (Kind.CONNECTED, back, one)])
    return made


@pytest.mark.parametrize(
    ("story", "rated"),
    [
        (tell("100 back in 0.4 s", even(100, 0.004), *refusals([0])), NOT_SATURATED),
        (tell("2,000, one in 5 ms", even(2000, 0.005), *refusals(range(10))), (True, 200.0, 10.0, 1.0)),
        (tell("nobody waits", even(200, 0.05)), NOT_SATURATED),
        (tell("two seconds in a row", even(200, 0.05), *refusals([0, 1, 3, 4, 6, 7, 9])), NOT_SATURATED),
        (tell("three seconds in a row", even(200, 0.05), *refusals([3, 4, 5])), (True, 20.0, 10.0, 1.0)),
        (tell("49 clients", even(49, 0.1), *refusals(range(5))), NOT_SATURATED),
        (tell("50 clients, after 5 s", even(50, 0.1, 5.0), *refusals(range(12))), (True, 10.0, 5.0, 2.0)),
        (tell("refused elsewhere", even(200, 0.05), *refusals(range(10), "a")), NOT_SATURATED),
        (tell("ended itself", even(200, 0.05), *refusals(range(10), error_type="stopped")), NOT_SATURATED),
        (
            tell("one hangs", even(200, 0.05), attempt("client-0", 6.3, 2.8)),
            (True, 20.0, 10.0, 1.0),  # in the seconds 3, 4, 5 and 6
        ),
        (
            tell(
                "the last was back before the ideal",
                [*even(30, 0.1), *even(200, 0.08, 0.6)[30:]],  # 30 in 3 s, and 12.5 a second after that
                *refusals(range(3)),
            ),
            NOT_SATURATED,
        ),
    ],
)
def test_a_storm_is_saturated_where_clients_wait_while_others_come_as_fast_as_ever(
    tables: Tables, story: str, rated: tuple[Any, ...]
) -> None:
    (row,) = storms(tables, story)
    assert picked(row, *RATED) == pytest.approx(rated)
