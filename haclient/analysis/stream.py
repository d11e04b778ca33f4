"""Follow a folder of telemetry: read every line once, and keep tables, summary and report current.

Rules
-----
* The batch job is the reference.  The stream keeps distinct events and makes its tables with the batch's own
  functions.  At any time it shows the results of a batch job on the same lines.
* SIGKILL may interrupt every step.  A partial result is either invisible, or written again from the same
  input: a rename publishes segments and tables, and a batch is replaced under its id.
* One process follows into one output folder; a lock ensures this.
* The state folder is one unit: remove all of it, or nothing.

Theory of operation
-------------------
A round copies new lines to segments (``tail``), and lets Structured Streaming go through the new segments
(``availableNow``, with a checkpoint).  Its ``foreachBatch`` receives names of segments and reads them with
``ingest.read``.  It drops events that older batches have, and stores the others under the batch's id
(``batches``), along with the state of outages (``unmatched``).  After the batches the stream sends alerts,
and every ``refresh`` seconds it makes the tables.  A line thus appears in an alert after at most
``interval`` and the time of a round, and in the tables ``refresh`` later.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis import unmatched
from haclient.analysis.io import ingest
from haclient.analysis.io.batches import Batches
from haclient.analysis.io.output import SparkOutput
from haclient.analysis.io.tail import TORN_AFTER, Tail
from haclient.analysis.job import InputError, Job, Summary, compute, conclude, narrowed
from haclient.analysis.tables import clock

FILES = 64
"""Most segments in one batch: at their largest size, a laptop reads them in a minute."""

_NAMES = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The intervals of the stream's work, in seconds.

    :param interval: between two checks for new lines.
    :param refresh: between two updates of tables and report.
    :param alert_after: downtime of a client that triggers an alert; ``None``: never.
    :param torn_after: see ``tail``.
    """

    interval: float = 10.0
    refresh: float = 60.0
    alert_after: float | None = 60.0
    torn_after: float = TORN_AFTER


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round.

    :param lines: whether there were new lines.
    :param alerts: the new alerts.
    :param summary: the new summary, if the tables were updated.
    :param given_up: losses that the stream no longer waits for; the tables still have them.
    """

    lines: bool
    alerts: list[unmatched.Alert]
    summary: Summary | None
    given_up: int = 0


class Stream:
    """A stream from ``job.source`` into ``job.out``; ``following`` opens one.

    :param now: the wall clock.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        pace: Pace,
        *,
        now: Callable[[], datetime],
    ) -> None:
        if not Path(job.source).is_dir():
            raise InputError(f"{job.source}: no such directory")
        self._spark = spark
        self._job = job
        self._pace = pace
        self._now = now
        self._state = job.out / "state"
        self._segments = self._state / "segments"
        self._tail = Tail(Path(job.source), self._segments, torn_after=pace.torn_after)
        nothing = self._read([str(self._segments)])
        self._events = Batches(spark, self._state / "events", nothing.events.schema)
        self._quarantine = Batches(spark, self._state / "quarantine", nothing.quarantine.schema)
        _forget(nothing)
        self._unmatched = Batches(
            spark, self._state / "away", unmatched.unmatched_events(nothing.events, now()).schema
        )
        self._alerts = unmatched.Alerts(job.out / "alerts.jsonl")
        self._has_new = False
        self._given_up = 0
        self._stale = True
        self._refreshed = float("-inf")

    def round(self, *, refresh: bool = False) -> Round:
        """Process new lines; update the tables if they are due or ``refresh`` is set."""
        self._has_new, self._given_up = False, 0
        self._tail.copy()
        self._take()
        if self._has_new:
            self._tidy()
        self._stale |= self._has_new
        due = refresh or time.monotonic() - self._refreshed >= self._pace.refresh
        alerts = self._alert()
        summary = self._refresh() if self._stale and due else None
        return Round(self._has_new, alerts, summary, self._given_up)

    def _take(self) -> None:
        query = (
            self._spark.readStream.format("binaryFile")
            .schema(_NAMES)
            .option("maxFilesPerTrigger", FILES)
            .load(str(self._segments))
            .select("path")
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", str(self._state / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _batch(self, segments: DataFrame, batch: int) -> None:
        paths = [row["path"] for row in segments.collect()]
        if not paths:
            return
        found = self._read(paths)
        self._quarantine.write(batch, at_source(found.quarantine, Path(self._job.source)))
        events = found.events.persist()
        self._events.write(batch, self._events.fresh(batch, events))
        events.unpersist()
        _forget(found)
        previous, now = self._unmatched.last(before=batch), self._now()
        unmatched_rows = unmatched.unmatched_events(self._events.of(batch), now)
        before = self._unmatched.of(previous)
        remaining = unmatched.bounded(before)
        self._given_up += unmatched.losses_given_up(before, remaining, now)
        self._unmatched.write(batch, unmatched.merged(remaining, unmatched_rows, now))
        self._has_new = True

    def _read(self, paths: list[str]) -> ingest.Ingested:
        return ingest.read_lines(self._spark.read.text(paths))

    def _tidy(self) -> None:
        """Remove files that no later batch reads; call it after the batches are committed."""
        self._tail.forget()
        self._events.compact()
        self._quarantine.compact()
        last = self._unmatched.last()
        if last is not None:
            self._unmatched.drop(before=last)

    def _alert(self) -> list[unmatched.Alert]:
        if self._pace.alert_after is None:
            return []
        since = self._now() - timedelta(seconds=self._pace.alert_after)
        return self._alerts.of(self._unmatched.of(self._unmatched.last()), since)

    def _refresh(self) -> Summary | None:
        """Update tables, summary and report from all events so far; return ``None`` if there are none."""
        fresh = self._state / "fresh"
        events = narrowed(clock.placed(self._distinct(fresh / "events")), self._job)
        self._refreshed = time.monotonic()
        if not events.take(1):
            return None
        target = SparkOutput(self._spark, str(fresh))
        made = compute(events, self._quarantine.everything(), target, self._job)
        summary = conclude(made, events, self._job)
        self._spark.catalog.clearCache()
        _put(fresh, self._job.out)
        self._stale = False
        return summary

    def _distinct(self, folder: Path) -> DataFrame:
        """Return all events; store them deduplicated in ``folder`` if copies with another time exist."""
        events = self._events.everything()
        if not ingest.has_copies(events):
            return events
        ingest.store(ingest.distinct(events), str(folder), mode="overwrite")
        return ingest.read(self._spark, str(folder)).events


@contextmanager
def following(
    spark: SparkSession, job: Job, pace: Pace, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Iterator[Stream]:
    """Open the stream with exclusive use of its output folder.

    :param now: the wall clock.

    :raises InputError: if the source is no folder, or another process follows into the same output.
    """
    state = job.out / "state"
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{job.out}: another process follows into it") from None
        yield Stream(spark, job, pace, now=now)


def follow(stream: Stream, pace: Pace, stop: threading.Event, report: Callable[[Round], None]) -> None:
    """Run rounds until ``stop`` is set, then one more that updates the tables.

    :param report: called with the result of each round.
    """
    while not stop.wait(pace.interval):
        report(stream.round())
    report(stream.round(refresh=True))


def at_source(quarantine: DataFrame, folder: Path) -> DataFrame:
    """Replace the segment's name in quarantined lines by the name of the original file."""
    segment = sf.split(sf.element_at(sf.split("file", "/"), -1), "@")[0]
    name = sf.replace(sf.replace(segment, sf.lit("%25"), sf.lit("%")), sf.lit("%2F"), sf.lit("/"))
    home = folder.resolve().as_uri().replace("file:///", "file:/", 1)  # Hadoop's notation
    return quarantine.withColumn("file", sf.concat(sf.lit(f"{home}/"), name)).select(*quarantine.columns)


def _forget(found: ingest.Ingested) -> None:
    """Release the cached lines; they are stored by now."""
    if found.parsed is not None:
        found.parsed.unpersist()


def _put(fresh: Path, out: Path) -> None:
    """Replace the old tables by the new ones; remove leftovers of an interrupted replacement."""
    for name in ("tables", "json"):
        old = fresh / f"old-{name}"
        shutil.rmtree(old, ignore_errors=True)
        if (out / name).exists():
            (out / name).rename(old)
        (fresh / name).rename(out / name)
        shutil.rmtree(old, ignore_errors=True)
