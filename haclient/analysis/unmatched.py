"""The stream's state of outages that have not ended, and the alerts for them.

Rules
-----
* The state holds unmatched events of outages: a loss whose end was not seen, or an end whose loss was not.
  Whichever arrives first waits for the other, for the files of a fleet arrive in no order.
* An end without its loss is dropped a day after it was read: the loss was among lost telemetry.  The day is
  the reader's: one client whose clock is fast must not make the stream forget the ends of all others.
* A line whose time was taken away, because it is not plausible, is as old as its reading.
* The wall clock decides whether a client is down for too long.  When all clients are down, no line
  arrives that could move a clock of events.
* One alert for an outage.  ``alerts.jsonl`` is the record of it, and is read back at a start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from haclient.telemetry.schema import Kind

OUTAGE = ("client_id", "connection", "outage_id", "instance")
"""The key of an outage: a restarted process counts its own from 1 again."""

FORGET = timedelta(days=1)
_MOST = 100_000  # alerts of one round; more follow in the next one


def unmatched_events(events: DataFrame, now: datetime) -> DataFrame:
    """One row per outage that ``events`` have a loss or an end of: when, and where it was lost.

    :param now: when they were read.
    """
    time = sf.coalesce("time", sf.lit(now).cast("timestamp"))
    lost = sf.col("type") == Kind.LOST.value
    over = sf.col("type").isin(Kind.CONNECTED.value, Kind.GAVE_UP.value, Kind.CLOSED.value)
    return (
        events.where((lost | over) & (sf.col("outage") > 1))
        .groupBy(*OUTAGE)
        .agg(
            sf.min(sf.when(lost, time)).alias("lost_at"),
            sf.min(sf.when(over, time)).alias("over_at"),
            sf.min(sf.lit(now).cast("timestamp")).alias("read_at"),
            *(
                sf.min(sf.when(lost, sf.col(name))).alias(name)
                for name in ("cluster", "service", "server_address", "server_port", "reason")
            ),
        )
    )


def merged(before: DataFrame, rows: DataFrame, now: datetime) -> DataFrame:
    """The state after a batch: the events that are still unmatched.

    :param before: the state before it; a former version wrote none of ``read_at``.
    :param rows: of ``unmatched_events``.
    :param now: when they were read.
    """
    known = sf.coalesce("read_at", sf.lit(now).cast("timestamp"))
    everything = before.withColumn("read_at", known).unionByName(rows)
    rest = [name for name in everything.columns if name not in OUTAGE]
    whole = everything.groupBy(*OUTAGE).agg(*(sf.min(name).alias(name) for name in rest))
    waiting = sf.col("lost_at").isNull() & (sf.col("read_at") > sf.lit(now - FORGET))
    return whole.where(sf.col("over_at").isNull() | waiting)


def down_since(state: DataFrame, time: datetime) -> list[dict[str, Any]]:
    """The outages that began before ``time`` and have not ended, the oldest first."""
    rows = (
        state.where(sf.col("over_at").isNull() & (sf.col("lost_at") < sf.lit(time)))
        .withColumn("lost_at", sf.date_format("lost_at", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"))
        .drop("over_at", "read_at")
        .orderBy("lost_at", *OUTAGE)
        .limit(_MOST)
    )
    return [row.asDict() for row in rows.collect()]


class Alerts:
    """The alerts so far, in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorded = {_outage(alert) for alert in _read(path)}

    def record(self, down: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Record those that have no alert yet; returns them."""
        new = [outage for outage in down if _outage(outage) not in self._recorded]
        if new:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(outage) + "\n" for outage in new)
                file.flush()
                os.fsync(file.fileno())
            self._recorded.update(map(_outage, new))
        return new


def _outage(alert: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(alert[name] for name in OUTAGE)


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """The alerts in the file; a line that a kill cut off is removed, and written again."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    yield from map(json.loads, whole.splitlines())
