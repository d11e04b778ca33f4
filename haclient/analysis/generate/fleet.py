"""A generated fleet, and the events of each of its clients.

* Every client keeps one connection to one of several clusters.  The first cluster has most of them.
* The primary of a cluster dies ``outages`` times.  All its clients lose it within 0.2 s, and try again with
  full jitter: delay n is drawn evenly from 0 to ``min(CAP, BASE * 2**n)``.  The new primary takes over after
  ``FAILOVER`` seconds and sets up clients at an even rate; the last slot is ``RECOVERY`` seconds later.
* A few clients die, give up, are closed, or search to the end.  Some restart as a new process a little later,
  and some never connect (``Faults``).
* The last client is alone in a cluster of its own and loses its connection ``Faults.busy`` times.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from haclient.analysis.generate.fault_injection import Faults
from haclient.telemetry.schema import Kind

INTERVAL = 300.0  # s from one death of a primary to the next
FAILOVER = 2.0  # s until the backup is promoted
RECOVERY = 20.0  # s from the first connection setup to the last
BASE, CAP = 0.1, 30.0  # s, the client's defaults
LAST_ATTEMPT = 11  # always succeeds: all delays before it add up to 70 s on average
ALIVE = 60.0  # s
ATTEMPT_TIME = 0.02  # s, the longest attempt
REFUSED, FORCED = 0.5, 0.3  # shares of the failed attempts; the rest is redirected
FIRST_SHARE = 0.8  # share of the clients in the first cluster
AGAIN = 30.0  # s from a loss until the new process of a client that died begins
HOUR = 3600.0  # s

FAILING = ("dies", "restarts", "gives up", "leaves", "searches", "never")
"""Ends of episodes without a connection."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The parameters of a fleet, from which its clients' events are computed.

    :param outages: deaths of the primary of each cluster.
    :param name: prefix of the names of its clients and clusters.
    """

    clients: int
    outages: int
    seed: int
    faults: Faults
    clusters: int
    name: str = ""

    @property
    def until(self) -> float:
        """Time of the last lines, in seconds from the start."""
        return (self.outages + 1.25) * INTERVAL

    def prng(self, salt: str, *of: str | Column) -> Column:
        """Return a pseudo-random number, uniform in [0, 1), the same for the same columns."""
        columns = [sf.col(name) if isinstance(name, str) else name for name in of]
        drawn = sf.xxhash64(sf.lit(self.seed), sf.lit(salt), *columns)
        return sf.shiftrightunsigned(drawn, 11) / sf.lit(float(2**53))

    def _clients(self, spark: SparkSession) -> DataFrame:
        """Return one row per process: each client, and a second row for each that restarts."""
        faults, span = self.faults, self.outages
        cluster_number = sf.when(self.prng("cluster", "id") < FIRST_SHARE, 0).otherwise(
            sf.floor(self.prng("cluster 2", "id") * self.clusters)
        )
        busy = (sf.col("id") == self.clients - 1) & sf.lit(faults.busy > 0)
        rows = spark.range(self.clients).select(
            "id",
            sf.when(busy, self.clusters).otherwise(cluster_number).cast("bigint").alias("cluster_number"),
            busy.alias("busy"),
            sf.when(busy | (sf.col("id") < faults.fast), "lives").otherwise(self._fate()).alias("fate"),
            (2 + sf.floor(self.prng("fate at", "id") * span)).alias("some_outage"),
            self._skew().alias("skew"),
            sf.when(
                self.prng("step", "id") < faults.stepping, 2 + sf.floor(self.prng("step at", "id") * span)
            ).alias("step_at"),
            ((self.prng("step 2", "id") - 0.5) * 20).alias("step"),
            sf.col("id").alias("number"),
            sf.format_string(f"{self.name}client-%07d", "id").alias("client_id"),
        )
        last = sf.when(sf.col("fate") == "searches", span + 1).otherwise(sf.col("some_outage"))
        rows = rows.withColumn("fate_at", sf.when(sf.col("fate") == "never", 1).otherwise(last))
        return self._lives(rows).select(
            "*",
            sf.round(self.prng("uptime", "id") * 1e6, 3).alias("uptime"),
            sf.concat(sf.lit(f"{self.name}cluster-"), "cluster_number").alias("cluster_name"),
            sf.concat(sf.lit("instance-"), sf.hex(sf.xxhash64(sf.lit(self.seed), "id"))).alias("instance"),
        )

    def _fate(self) -> Column:
        faults, drawn = self.faults, self.prng("fate", "id")
        shares = {
            "dies": faults.dying,
            "gives up": faults.giving_up,
            "closes": faults.closing,
            "leaves": faults.leaving,
            "restarts": faults.restarting,
            "searches": faults.searching,
            "never": faults.never,
        }
        fate, below = sf.lit("lives"), sum(shares.values())
        for name, share in reversed(shares.items()):
            fate = sf.when(drawn < below, sf.when(drawn >= below - share, name).otherwise(fate)).otherwise(
                fate
            )
            below -= share
        return fate

    def _skew(self) -> Column:
        drawn = sf.signum(self.prng("skew", "id") - 0.5) * self.prng("skew 2", "id") * self.faults.skew
        return sf.when(sf.col("id") < self.faults.fast, HOUR).otherwise(drawn)

    def _lives(self, rows: DataFrame) -> DataFrame:
        """Add ``earlier``, the primary's deaths before a process began; ``id`` becomes the process's."""
        again = sf.when(sf.col("fate") == "restarts", sf.array(sf.lit(0), sf.lit(1)))
        rows = rows.withColumn("life", sf.explode(again.otherwise(sf.array(sf.lit(0)))))
        second = sf.col("life") == 1
        return rows.withColumns(
            {
                "id": sf.col("id") + sf.col("life") * self.clients,
                "earlier": sf.when(second, sf.col("fate_at") - 1).otherwise(0),
                "fate": sf.when(second, "lives").otherwise(sf.col("fate")),
            }
        )

    def _began(self, number: Column) -> Column:
        """Return the start of an outage, in seconds from the start of the period."""
        every = self.outages * INTERVAL / max(self.faults.busy, 1)
        death = number + sf.col("earlier")
        storm = (death - 1) * INTERVAL + self.prng("death", "cluster_number", death) * (INTERVAL / 4)
        again = sf.when(sf.col("earlier") > 0, storm + AGAIN).otherwise(0.0)
        first = again + self.prng("start", "id") * 10
        storm = storm + self.prng("lost", "id", number) * 0.2
        return sf.when(number == 1, first).when(sf.col("busy"), 10 + (number - 1) * every).otherwise(storm)

    def _episodes(self, spark: SparkSession) -> DataFrame:
        """Return one row per outage of each client, with its waits, starts and last attempt."""
        all_of_them = self.outages + 1 - sf.col("earlier")
        usual = sf.when(sf.col("fate") == "lives", all_of_them).otherwise(sf.col("fate_at"))
        count = sf.when(sf.col("busy"), self.faults.busy + 1).otherwise(usual)
        rows = self._clients(spark).withColumn("outage", sf.explode(sf.sequence(sf.lit(1), count)))
        k = sf.col("outage")
        ready = FAILOVER + self.prng("slot", "id", "outage") * RECOVERY
        at_once = ((k == 1) & (sf.col("fate") != "never")) | sf.col("busy")
        ready = sf.when(at_once, 0.0).otherwise(ready)
        rows = rows.select(
            "*",
            sf.round(self._began(k), 6).alias("began"),
            sf.round(self._began(k + 1), 6).alias("next"),
            ready.alias("ready"),
            sf.when(sf.col("fate_at") == k, sf.col("fate")).otherwise("lives").alias("end"),
        )
        numbers = sf.sequence(sf.lit(0), sf.lit(LAST_ATTEMPT))
        rows = rows.withColumn("waits", sf.transform(numbers, self._wait))
        rows = rows.withColumn("starts", sf.transform(numbers, _start))
        winner = sf.array_position(sf.transform("starts", lambda at: at >= sf.col("ready")), value=True) - 1
        rows = rows.withColumn("last", sf.when(winner < 0, LAST_ATTEMPT).otherwise(winner).cast("int"))
        return rows.withColumn("steps", self._steps())

    def _wait(self, n: Column) -> Column:
        ceiling = sf.least(sf.lit(CAP), BASE * sf.pow(sf.lit(2.0), n))
        first = (n == 0) & (sf.col("outage") == 1)
        return sf.when(first, 0.0).otherwise(
            sf.round(self.prng("wait", sf.col("id"), sf.col("outage"), n) * ceiling, 6)
        )

    def _steps(self) -> Column:
        """Return the lines of an outage: ``kind``, ``n`` (of the attempt, or alive line) and ``at`` (s)."""
        lost = sf.array(sf.when(sf.col("outage") > 1, _step(Kind.LOST, sf.lit(0), sf.lit(0.0))))
        return sf.array_compact(sf.concat(lost, self._tries(), self._ending()))

    def _tries(self) -> Column:
        fails = self.prng("kind", sf.col("id"), sf.col("outage"), sf.lit(0))
        dying = sf.col("end").isin("dies", "restarts")
        stop = sf.when(dying, sf.floor(fails * sf.col("last")).cast("int")).otherwise(
            sf.when(fails_to_connect(), sf.greatest(sf.col("last") - 1, sf.lit(0))).otherwise(sf.col("last"))
        )
        return sf.flatten(sf.transform(sf.sequence(sf.lit(0), stop), self._try))

    def _try(self, n: Column) -> Column:
        start = sf.get("starts", n)
        waits = (n > 0) | (sf.col("outage") > 1)
        redirected = (n < sf.col("last")) & (self.error(n) == "redirected")
        return sf.array(
            sf.when(waits, _step(Kind.BACKOFF, n, start - sf.get("waits", n))),
            _step(Kind.ATTEMPT, n, start + ATTEMPT_TIME),
            sf.when(redirected, _step(Kind.REDIRECT, n, start + ATTEMPT_TIME)),
        )

    def _ending(self) -> Column:
        """Return the lines after the last attempt of an outage."""
        back, zero = end("last"), sf.lit(0)
        connected = _step(Kind.CONNECTED, zero, back)
        ends = sf.col("end")
        return (
            sf.when(ends.isin("dies", "restarts"), sf.array(_nothing()))
            .when(ends == "gives up", sf.array(_step(Kind.GAVE_UP, zero, back)))
            .when(ends == "leaves", sf.array(_step(Kind.CLOSED, zero, back)))
            .when(ends.isin("searches", "never"), _alive(back, sf.lit(self.until)))
            .when(ends == "closes", sf.array(connected, _step(Kind.CLOSED, zero, back + 1)))
            .otherwise(sf.concat(sf.array(connected), _alive(back, sf.col("next") - 1)))
        )

    def error(self, n: Column) -> Column:
        """Return the error of attempt ``n``, assuming that it failed."""
        drawn = self.prng("kind", sf.col("id"), sf.col("outage"), n)
        other = sf.when(drawn < REFUSED + FORCED, "closed").otherwise("redirected")
        return sf.when(drawn < REFUSED, "refused").otherwise(other)

    def episodes_of(self, spark: SparkSession) -> DataFrame:
        """Return one row per outage of each client, with ``steps``, its lines.

        ``before`` is the number of lines that its connection wrote before them.
        """
        rows = self._episodes(spark)
        earlier = Window.partitionBy("id").orderBy("outage").rowsBetween(Window.unboundedPreceding, -1)
        before = sf.coalesce(sf.sum(sf.size("steps")).over(earlier), sf.lit(0))
        return rows.withColumn("before", before)

    def is_lost(self, sequence: Column) -> Column:
        """Test if the line of that number was never written."""
        return self.prng("lost line", sf.col("id"), sequence) < self.faults.lost


def _step(kind: Kind, n: Column, at: Column) -> Column:
    return sf.struct(
        sf.lit(kind.value).alias("kind"), n.cast("int").alias("n"), sf.round(at, 6).cast("double").alias("at")
    )


def fails_to_connect() -> Column:
    """Test if an episode ends without a connection."""
    return sf.col("end").isin(*FAILING)


def _alive(back: Column, until: Column) -> Column:
    """Return ``alive`` lines each minute after ``back``, which is in seconds from the loss, to ``until``."""
    count = sf.greatest(sf.floor((until - sf.col("began") - back) / ALIVE), sf.lit(0))
    numbers = sf.slice(sf.sequence(sf.lit(0), count.cast("int")), 2, 1_000_000)
    return sf.transform(numbers, lambda number: _step(Kind.ALIVE, number, back + number * ALIVE))


def _nothing() -> Column:
    return sf.lit(None).cast("struct<kind: string, n: int, at: double>")


def _start(n: Column) -> Column:
    """Return the start of attempt ``n``, in seconds from the beginning of the outage."""
    waited = sf.aggregate(sf.slice("waits", sf.lit(1), n + 1), sf.lit(0.0), lambda sum_, wait: sum_ + wait)
    return waited + n * ATTEMPT_TIME


def end(number: str) -> Column:
    """Return the end of the attempt whose number is in that column."""
    return sf.get("starts", sf.col(number)) + ATTEMPT_TIME
