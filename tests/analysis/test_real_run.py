"""Two hundred real clients, a pair whose primary is killed twice: the analysis reports their measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_stub.local_cluster.supervisor import LocalCluster
from haclient import aio, telemetry
from haclient.analysis.job import Job, run
from haclient.events import Closed, Connected, Event, Reconnected

FACTORIES, CONNECTIONS, KILLS = 10, 20, 2
CLIENTS = FACTORIES * CONNECTIONS
TOLERANCE = 0.010  # s

Outage = tuple[str, int, int]  # client id, connection, number of the outage


class Watch:
    """The clients' own measurements."""

    def __init__(self) -> None:
        self.downtime: dict[Outage, float] = {}
        self.attempts: dict[Outage, int] = {}
        self.closed = 0

    def see(self, event: Event) -> None:
        """Record every event; called on one thread of each factory."""
        if isinstance(event, Connected | Reconnected):
            outage = event.stamp.client_id, event.stamp.connection, event.stamp.episode
            self.downtime[outage] = event.duration
            self.attempts[outage] = event.attempts
        elif isinstance(event, Closed):
            self.closed += 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not condition():  # noqa: ASYNC110 - the events come on threads
            await asyncio.sleep(0.05)


async def live_through_it(folder: Path, watches: list[Watch]) -> None:
    async with LocalCluster() as pair:
        factories = [
            aio.ConnectionFactory(pair.url, telemetry=folder, on_event=watch.see, max_dials=20)
            for watch in watches
        ]
        kept = [
            await asyncio.gather(*(factory.connect() for _ in range(CONNECTIONS))) for factory in factories
        ]
        for kill in range(1, KILLS + 1):
            await pair.kill_primary()
            await until(lambda back=CLIENTS * (kill + 1): sum(len(w.downtime) for w in watches) >= back)
            await pair.wait_ready()
        await asyncio.gather(*(factory.close() for factory in factories))
        kept.clear()
        await until(lambda: sum(watch.closed for watch in watches) == CLIENTS)
    telemetry.flush()


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_every_downtime_is_what_the_client_measured(spark: SparkSession, tmp_path: Path) -> None:
    watches = [Watch() for _ in range(FACTORIES)]
    asyncio.run(live_through_it(tmp_path / "telemetry", watches))
    run(spark, Job(source=str(tmp_path / "telemetry"), out=tmp_path / "out"))

    rows = spark.read.parquet(str(tmp_path / "out" / "tables" / "episodes")).collect()
    found = {(row["client_id"], row["connection"], row["outage"]): row for row in rows}
    downtimes = {outage: duration for watch in watches for outage, duration in watch.downtime.items()}
    attempts = {outage: count for watch in watches for outage, count in watch.attempts.items()}

    assert len(downtimes) >= CLIENTS * (KILLS + 1)
    assert len(rows) == len(found)
    assert found.keys() == downtimes.keys(), "an outage is missing, or invented"
    assert {row["episode_result"] for row in rows} == {"back"}
    for outage, duration in downtimes.items():
        assert found[outage]["downtime"] == pytest.approx(duration, abs=TOLERANCE), outage
        assert found[outage]["clock"] == "monotonic"
        assert found[outage]["attempts"] >= attempts[outage], (found[outage], attempts[outage])

    storms = spark.read.parquet(str(tmp_path / "out" / "tables" / "storms")).collect()
    # two deaths of a primary within seconds of each other are one storm
    assert [storm["clients_hit"] for storm in storms] in ([CLIENTS], [CLIENTS] * KILLS)
    assert all(storm["back"] == CLIENTS for storm in storms)
    quarantine = spark.read.parquet(str(tmp_path / "out" / "tables" / "quarantine"))
    assert quarantine.count() == 0
