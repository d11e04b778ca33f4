"""Endpoints that lose their clients repeatedly, and endpoints that only seem to; counted by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from haclient.telemetry.schema import Kind
from tests.analysis.stories import Line, Stories, all_tables

pytestmark = pytest.mark.slow

STORIES = Stories()
STAYS = float("inf")

Stay = tuple[float, float]
"""When a connection reached the endpoint, and when it was lost there; seconds."""


def client(endpoint: str, number: int, *stays: Stay, after: str | None = None) -> Iterator[Line]:
    """Return the lines of one client.

    :param after: the endpoint of its connection after the last loss.
    """
    here = {"client_id": f"client-{number}", "server_address": endpoint, "server_port": 1}
    for outage, (came, lost) in enumerate(stays, start=1):
        yield Kind.CONNECTED, came, here | {"outage": outage}
        if lost != STAYS:
            yield Kind.LOST, lost, here | {"outage": outage + 1}
    if after is not None:
        last = {"outage": len(stays) + 1, "server_address": after}
        yield Kind.CONNECTED, stays[-1][1] + 1, here | last


def tell(endpoint: str, clients: Iterator[Iterator[Line]]) -> None:
    STORIES.tell(endpoint, (line for lines in clients for line in lines))


def loops(period: float) -> Iterator[Stay]:
    """Return twenty crashes, each three quarters of a period after all clients are back."""
    return ((period * number, period * (number + 0.75)) for number in range(20))


tell("restart", (client("restart", n, (n / 1e4, 100 + n * 0.00015), after="other") for n in range(2000)))
tell(
    "back at once",
    (client("back at once", n, (0.0, 100 + n / 250), (100.05 + n / 250, STAYS)) for n in range(100)),
)
tell("loop of 4 s", (client("loop of 4 s", n, *loops(4.0)) for n in range(10)))
tell("loop of 30 s", (client("loop of 30 s", n, *loops(30.0)) for n in range(10)))
tell(
    "1 % drop",
    (
        client("1 % drop", n, (n / 100, 100.0 + n), (101.0 + n, STAYS))
        if n % 100 == 0
        else client("1 % drop", n, (n / 100, STAYS))
        for n in range(300)
    ),
)
tell("drained", (client("drained", n, (0.0, 100 + n / 2)) for n in range(100)))
tell("hourly", (client("hourly", n, *((at, at + 1999.0) for at in range(0, 10_000, 2000))) for n in range(5)))
tell("half", (client("half", n, (0.0, 50.0) if n % 2 else (0.0, STAYS)) for n in range(10)))
tell(
    "less than half", (client("less than half", n, (0.0, 50.0) if n > 5 else (0.0, STAYS)) for n in range(10))
)
tell("never heard to come", (iter([*client("never heard to come", n, (0.0, 9.0))][1:]) for n in range(9)))
STORIES.tell(
    "known by alive lines",
    [
        *(
            (Kind.ALIVE, float(n), {"client_id": str(n), "state": "connected", "server_address": "alive"})
            for n in range(9)
        ),
        (Kind.LOST, 60.0, {"client_id": "0", "server_address": "alive", "outage": 3}),
    ],
    server_port=1,
)

SCORES = {
    "restart": 1,
    "other": 0,
    "back at once": 1,
    "loop of 4 s": 20,
    "loop of 30 s": 20,
    "1 % drop": 0,
    "drained": 1,
    "hourly": 2,
    "half": 1,
    "less than half": 0,
    "never heard to come": 1,
    "alive": 0,
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[dict[str, list[dict[str, object]]]]:
    made = all_tables(STORIES.frame(spark))
    yield {name: [row.asDict() for row in made[name].collect()] for name in ("members", "alarms")}
    spark.catalog.clearCache()


def test_the_score_is_the_most_bursts_in_any_hour(tables: dict[str, list[dict[str, object]]]) -> None:
    assert {row["server_address"]: row["flapping_score"] for row in tables["members"]} == SCORES


def test_three_bursts_in_an_hour_are_an_alarm(tables: dict[str, list[dict[str, object]]]) -> None:
    found = {str(row["endpoints"]): row["detail"] for row in tables["alarms"] if row["kind"] == "flapping"}
    detail = "20 times in an hour it lost at least half of its connections at once"
    assert found == {"['loop of 4 s:1']": detail, "['loop of 30 s:1']": detail}
