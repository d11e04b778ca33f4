"""The stream's state of recent outages, and the alerts for the ones that have not ended.

Rules
-----
* The state has one row per outage.  A loss waits there for its end, and an end for its loss, because the
  files of a fleet arrive in any order.
* A newer process with the same client id or instance replaces the older one.  The older one's losses then
  no longer count as down, unless it writes again, as in the batch job (``episodes``, rule 4).  The
  beginning of a process waits for losses that arrive later.
* The state is bounded.  Ends, beginnings, and outages that ended or were replaced are forgotten ``FORGET``
  after they were read.  Until then a copy of the loss with another time opens no new outage.
  A loss without an end is given up ``GIVE_UP`` after it was read.  Of more than ``MOST`` losses, or of more
  than ``MOST`` other rows, the oldest are dropped.  Only alerts depend on the state: the tables keep all.
* Both ages follow the reader's clock, so that a client with a fast clock cannot make the stream forget the
  ends of all others.  A loss dated after its reading counts from the reading.  So does a line
  whose time was removed because it is not plausible.
* The wall clock decides whether a client is down for too long.  When all clients are down, no line
  arrives that could advance a clock of events.
* Each outage has one alert.  ``alerts.jsonl`` records it, and is read back at a start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.tables.episodes import SILENCE
from haclient.telemetry.schema import Kind

PROCESS = ("client_id", "instance", "source")
OUTAGE = ("client_id", "connection", "outage_id", "instance", "source")
"""The key of an outage: a restarted process counts its outages from 1 again."""

FORGET = timedelta(days=1)
GIVE_UP = timedelta(days=7)  # by then the client has had its alert
MOST = 1_000_000  # losses, and as many other rows: a whole fleet at once, some hundred MB of Parquet
_PAGE = 100_000  # most outages that one round checks for alerts; the next round continues after them
_SOURCE = "/haclient/"  # with the instance: the source of rows that former versions wrote without one
_FACTS = ("cluster", "service", "server_address", "server_port", "reason")
Alert = dict[str, Any]
Outage = tuple[Any, ...]

_POSITION = {"lost_at": "timestamp"} | dict.fromkeys(OUTAGE, "string") | {"connection": "bigint"}


def unmatched_events(events: DataFrame, now: datetime) -> DataFrame:
    """Return one row per outage whose loss or end is in ``events``, ended or not; the first connect is none.

    A row has the times of the loss and of the end, null if the line is missing.  From the loss it also has
    cluster, service, server and reason.  There is another row per connection, without ``outage_id``: the time
    of its last line, and the beginning of its first connect.

    :param now: time of reading.
    """
    read_at = sf.lit(now).cast("timestamp")
    time = sf.coalesce(sf.least("time", read_at), read_at)
    lost = sf.col("type") == Kind.LOST.value
    over = sf.col("type").isin(Kind.CONNECTED.value, Kind.GAVE_UP.value, Kind.CLOSED.value)
    number = sf.when(sf.col("client_id").isNotNull(), sf.concat_ws("/", "client_id", "connection", "outage"))
    named = events.withColumn("outage_id", sf.coalesce("outage_id", number))
    nothing = sf.lit(None).cast("timestamp")
    outages = (
        named.where((lost | over) & (sf.col("outage") > 1) & sf.col("outage_id").isNotNull())
        .groupBy(*OUTAGE)
        .agg(
            sf.min(sf.when(lost, time)).alias("lost_at"),
            sf.min(sf.when(over, time)).alias("over_at"),
            sf.min(read_at).alias("read_at"),
            *(sf.min(sf.when(lost, sf.col(name))).alias(name) for name in _FACTS),
        )
        .withColumns(dict.fromkeys(("heard_at", "began_at", "replaced_at"), nothing))
    )
    connections = (
        events.where(sf.col("connection").isNotNull())
        .groupBy(*PROCESS, "connection")
        .agg(
            sf.max(time).alias("heard_at"),
            sf.min(sf.when(sf.col("outage") == 1, time)).alias("began_at"),
            sf.min(read_at).alias("read_at"),
        )
    )
    return outages.unionByName(connections, allowMissingColumns=True)


def merged(before: DataFrame, rows: DataFrame, now: datetime) -> DataFrame:
    """Merge a batch into the state, and drop rows that are too old.

    A loss without an end stays for ``GIVE_UP``.  Other rows stay for ``FORGET``: ended outages, ends without
    a loss, and connections with a beginning.

    :param before: state before the batch; former versions wrote no ``read_at``, or no ``source``.
    :param rows: from ``unmatched_events``.
    :param now: time of reading.
    """
    known = {
        "read_at": sf.coalesce("read_at", sf.lit(now).cast("timestamp")),
        "source": sf.coalesce("source", sf.concat(sf.lit(_SOURCE), "instance")),
    }
    everything = before.withColumns(known).unionByName(rows)
    rest = [name for name in everything.columns if name not in (*OUTAGE, "heard_at")]
    whole = everything.groupBy(*OUTAGE).agg(
        *(sf.min(name).alias(name) for name in rest), sf.max("heard_at").alias("heard_at")
    )
    return _with_successors(whole, now).select(*before.columns).where(_remembered(now))


def _remembered(now: datetime) -> Column:
    waits = sf.col("read_at") > sf.lit(now - FORGET)
    useful = sf.col("outage_id").isNotNull() | sf.col("began_at").isNotNull()
    return sf.when(_open(), sf.col("read_at") > sf.lit(now - GIVE_UP)).otherwise(waits & useful)


def _open() -> Column:
    ended = sf.coalesce("over_at", "replaced_at")
    return sf.col("lost_at").isNotNull() & ended.isNull()


def _with_successors(whole: DataFrame, now: datetime) -> DataFrame:
    """Add the time at which the process of a loss was replaced."""
    connections = whole.where("outage_id IS NULL")
    its = connections.select(
        *(sf.col(name).alias(f"its_{name}") for name in (*PROCESS, "connection")),
        sf.col("heard_at").alias("its_heard_at"),
    )
    same = [sf.col(name).eqNullSafe(sf.col(f"its_{name}")) for name in (*PROCESS, "connection")]
    begun = connections.groupBy(*PROCESS).agg(sf.min("began_at").alias("began_at"))
    clients = begun.groupBy("client_id").agg(sf.max("began_at").alias("client_began"))
    processes = begun.groupBy("instance", "source").agg(sf.min("began_at").alias("began_at"))
    instances = processes.groupBy("instance").agg(sf.max("began_at").alias("instance_began"))
    joined = (
        whole.join(its, same, "left").join(clients, "client_id", "left").join(instances, "instance", "left")
    )
    heard = sf.greatest("heard_at", "its_heard_at", "lost_at")
    newest = sf.greatest("client_began", "instance_began", "replaced_at")
    silent = heard < sf.lit(now - timedelta(seconds=SILENCE))
    replaced = (newest > heard) | (silent & (newest > sf.col("lost_at")))
    return joined.withColumns({"replaced_at": sf.when(replaced, newest), "heard_at": heard})


def bounded(state: DataFrame) -> DataFrame:
    """Keep the newest batches of a state of more than ``MOST`` rows.

    Losses without an end and other rows are limited separately, to ``MOST`` rows each.  Of each, a batch is
    kept or dropped as a whole, and the newest batch is always kept.
    """
    if state.count() <= MOST:
        return state
    read_at = sf.unix_micros("read_at").alias("read_at")
    batches = state.groupBy(_open().alias("open"), read_at).agg(sf.count("*").alias("rows")).collect()
    oldest = {
        losses: _oldest([(row["read_at"], row["rows"]) for row in batches if row["open"] == losses])
        for losses in (True, False)
    }
    first = sf.when(_open(), sf.lit(oldest[True])).otherwise(sf.lit(oldest[False]))
    return state.where(sf.unix_micros("read_at") >= first)


def _oldest(batches: list[tuple[int, int]]) -> int:
    """Return the reading time of the oldest batch to keep; the newest is always kept."""
    oldest = total = 0
    for read_at, rows in sorted(batches, reverse=True):
        total += rows
        if total > MOST and oldest:
            break
        oldest = read_at
    return oldest


def losses_given_up(before: DataFrame, remaining: DataFrame, now: datetime) -> int:
    """Count the losses of a stored state that are dropped without an end.

    :param remaining: from ``bounded``.
    """
    return before.where(_open()).count() - remaining.where(_open() & _remembered(now)).count()


def down_since(state: DataFrame, time: datetime, after: Alert | None = None) -> list[Alert]:
    """Return the next ``_PAGE`` outages that began before ``time``, the oldest first.

    Outages that have ended are left out, and so are losses of a process that was replaced.

    :param after: last outage of the previous page.
    """
    position = sf.struct(*_POSITION)
    down = state.where(_open() & (sf.col("lost_at") < sf.lit(time)))
    if after is not None:
        key = [sf.lit(after[name]).cast(kind).alias(name) for name, kind in _POSITION.items()]
        down = down.where(position > sf.struct(*key))
    rows = (
        down.orderBy(position)
        .limit(_PAGE)
        .withColumn("lost_at", sf.date_format("lost_at", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"))
        .select(*OUTAGE, "lost_at", *_FACTS)
    )
    return [row.asDict() for row in rows.collect()]


class Alerts:
    """The alerts sent so far, kept in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorded = {_outage(alert) for alert in _read(path)}
        self._seen: set[Outage] = set()
        self._last: Alert | None = None

    def of(self, state: DataFrame, time: datetime) -> list[Alert]:
        """Record and return new alerts: outages that began before ``time`` and have none yet.

        One call handles one page of the state, and the next call the next page.  After the last page, the
        next call begins again.  If the object then remembers more than ``MOST`` alerts, it forgets the ones
        whose outage was on no page.
        """
        down = down_since(state, time, self._last)
        self._last = down[-1] if len(down) == _PAGE else None
        self._seen.update(map(_outage, down))
        new = self._record(down)
        if self._last is None:
            if len(self._recorded) > MOST:
                self._recorded &= self._seen
            self._seen = set()
        return new

    def _record(self, down: list[Alert]) -> list[Alert]:
        new = [outage for outage in down if _outage(outage) not in self._recorded]
        if new:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(outage) + "\n" for outage in new)
                file.flush()
                os.fsync(file.fileno())
            self._recorded.update(map(_outage, new))
        return new


def _outage(alert: Alert) -> Outage:
    """Return the key of the alert's outage; alerts of former versions have no source."""
    source = alert.get("source") or f"{_SOURCE}{alert['instance']}"
    return (*(alert[name] for name in OUTAGE if name != "source"), source)


def _read(path: Path) -> Iterator[Alert]:
    """Read the alerts in the file; remove a line cut off by a kill, which is written again."""
    if not path.exists():
        return
    whole = 0
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                whole += len(line)
                yield json.loads(line)
    if whole < path.stat().st_size:
        os.truncate(path, whole)
