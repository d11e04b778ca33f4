"""Telemetry of a fleet that never was, with the truth about it.

For tests, demonstrations and benchmarks.  Spark makes the lines where they are needed, from
``spark.range`` and native expressions; each is a function of the seed, so the same arguments
give the same lines on any cluster.

The fleet
---------
* Every client keeps one connection to one of several clusters.  The first cluster has most of them.
* The primary of a cluster dies ``outages`` times.  All its clients lose it within 0.2 s, and try again with
  full jitter: delay n is drawn evenly from 0 to ``min(CAP, BASE * 2**n)``.  The new primary takes over after
  ``FAILOVER`` seconds and sets up clients at an even rate; the last slot is ``RECOVERY`` seconds later.
* The last client is alone in a cluster of its own and loses its connection ``Dirt.busy`` times.

The dirt is what ``Dirt`` says.  It changes the lines, never the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from haclient.analysis import ingest
from haclient.telemetry.schema import DATA, DATASCHEMA, ENVELOPE, KEYS, Kind

START = 1_780_000_000  # s since the epoch; 2026-05-28
INTERVAL = 300.0  # s from one death of a primary to the next
FAILOVER = 2.0  # s until the backup is promoted
RECOVERY = 20.0  # s from the first set-up to the last
BASE, CAP = 0.1, 30.0  # s, the client's defaults
LAST_ATTEMPT = 11  # it always succeeds: all delays before it add up to 70 s on average
ALIVE = 60.0  # s
ATTEMPT_TIME = 0.02  # s, the longest attempt
REFUSED, FORCED = 0.5, 0.3  # shares of the failed attempts; the rest is redirected
FIRST_SHARE = 0.8  # of the clients, in the first cluster

_COMPRESSION = {"json": "none", "json.gz": "gzip"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """What is wrong with the lines; shares of one.

    :param lost: lines never written; their numbers are missing.
    :param duplicated: lines written twice.
    :param bad: lines followed by one that is not JSON.
    :param dying: clients that die while reconnecting; the last line of each is cut short.
    :param giving_up: clients that give up in an outage.
    :param closing: clients whose application closes the connection.
    :param skew: seconds by which the wall clock of a client may be wrong, either way.
    :param stepping: clients whose wall clock jumps, by up to 10 s either way, in one outage.
    :param busy: outages of the client with very many of them.
    :param split: a few clients see another primary of the same generation, or an older one.
    """

    lost: float = 0.002
    duplicated: float = 0.002
    bad: float = 0.0005
    dying: float = 0.02
    giving_up: float = 0.01
    closing: float = 0.02
    skew: float = 1.0
    stepping: float = 0.01
    busy: int = 1000
    split: bool = True


CLEAN = Dirt(
    lost=0.0,
    duplicated=0.0,
    bad=0.0,
    dying=0.0,
    giving_up=0.0,
    closing=0.0,
    skew=0.0,
    stepping=0.0,
    busy=0,
    split=False,
)


@dataclass(frozen=True, slots=True)
class Generated:
    """A fleet's telemetry.

    :param events: the columns of ``ingest``, without copies and what is no line.
    :param lines: JSON text in the column ``value``, with copies, cut and bad lines.
    :param truth: one row for each outage of each connection: ``client_id``, ``connection``, ``outage``,
        ``cluster``, ``time_away`` (s, null if not back), ``attempts``, ``outcome`` and ``lost_lines``
        (how many of its lines are missing).
    """

    events: DataFrame
    lines: DataFrame
    truth: DataFrame


def generate(
    spark: SparkSession,
    *,
    clients: int,
    outages: int = 3,
    seed: int = 0,
    dirt: Dirt = Dirt(),
    clusters: int = 3,
) -> Generated:
    """Make a fleet; about 15 lines for each client and outage."""
    fleet = _Fleet(clients, outages, seed, dirt, clusters)
    rows = fleet.outage_rows(spark)
    numbered = fleet.numbered_rows(rows)
    events = fleet.events(numbered)
    return Generated(fleet.flat(events), fleet.lines(events), fleet.truth(numbered))


def write(generated: Generated, path: str, *, form: str = "json", files: int | None = None) -> None:
    """Write the lines into the folder ``path``.

    :param form: ``json``, ``json.gz``, or ``parquet``: a store of ``ingest``.
    :param files: how many of JSON; without it as many as there are tasks.
    """
    if form == "parquet":
        ingest.store(generated.events, path)
        return
    lines = generated.lines if files is None else generated.lines.coalesce(files)
    lines.write.mode("errorifexists").option("compression", _COMPRESSION[form]).text(path)


@dataclass(frozen=True, slots=True)
class _Fleet:
    clients: int
    outages: int
    seed: int
    dirt: Dirt
    clusters: int

    def luck(self, salt: str, *of: str | Column) -> Column:
        """An even draw from [0, 1), the same for the same columns."""
        columns = [sf.col(name) if isinstance(name, str) else name for name in of]
        drawn = sf.xxhash64(sf.lit(self.seed), sf.lit(salt), *columns)
        return sf.shiftrightunsigned(drawn, 11) / sf.lit(float(2**53))

    def clients_rows(self, spark: SparkSession) -> DataFrame:
        """One row a client."""
        dirt, span = self.dirt, self.outages
        fate = self.luck("fate", "id")
        doomed = dirt.dying + dirt.giving_up
        cluster = sf.when(self.luck("cluster", "id") < FIRST_SHARE, 0).otherwise(
            sf.floor(self.luck("cluster 2", "id") * self.clusters)
        )
        busy = (sf.col("id") == self.clients - 1) & sf.lit(dirt.busy > 0)
        rows = spark.range(self.clients).select(
            "id",
            sf.when(busy, self.clusters).otherwise(cluster).cast("bigint").alias("place"),
            busy.alias("busy"),
            sf.when(busy, "lives")
            .when(fate < dirt.dying, "dies")
            .when(fate < doomed, "gives up")
            .when(fate < doomed + dirt.closing, "closes")
            .otherwise("lives")
            .alias("fate"),
            (2 + sf.floor(self.luck("fate at", "id") * span)).alias("fate_at"),
            (sf.signum(self.luck("skew", "id") - 0.5) * self.luck("skew 2", "id") * dirt.skew).alias("skew"),
            sf.when(
                self.luck("step", "id") < dirt.stepping, 2 + sf.floor(self.luck("step at", "id") * span)
            ).alias("step_at"),
            ((self.luck("step 2", "id") - 0.5) * 20).alias("step"),
            sf.round(self.luck("uptime", "id") * 1e6, 3).alias("uptime"),
        )
        return rows.select(
            "*",
            sf.format_string("client-%07d", "id").alias("client_id"),
            sf.concat(sf.lit("instance-"), sf.hex(sf.xxhash64(sf.lit(self.seed), "id"))).alias("instance"),
        )

    def began(self, number: Column) -> Column:
        """When an outage begins, in seconds from the start."""
        every = self.outages * INTERVAL / max(self.dirt.busy, 1)
        storm = (number - 1) * INTERVAL + self.luck("death", "place", number) * (INTERVAL / 4)
        storm = storm + self.luck("lost", "id", number) * 0.2
        first = self.luck("start", "id") * 10
        return sf.when(number == 1, first).when(sf.col("busy"), 10 + (number - 1) * every).otherwise(storm)

    def outage_rows(self, spark: SparkSession) -> DataFrame:
        """One row for each outage of each client, with its waits, starts and last attempt."""
        usual = sf.when(sf.col("fate") == "lives", self.outages + 1).otherwise(sf.col("fate_at"))
        count = sf.when(sf.col("busy"), self.dirt.busy + 1).otherwise(usual)
        rows = self.clients_rows(spark).withColumn("outage", sf.explode(sf.sequence(sf.lit(1), count)))
        k = sf.col("outage")
        ready = FAILOVER + self.luck("slot", "id", "outage") * RECOVERY
        ready = sf.when((k == 1) | sf.col("busy"), 0.0).otherwise(ready)
        rows = rows.select(
            "*",
            sf.round(self.began(k), 6).alias("began"),
            sf.round(self.began(k + 1), 6).alias("next"),
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
            sf.round(self.luck("wait", sf.col("id"), sf.col("outage"), n) * ceiling, 6)
        )

    def _steps(self) -> Column:
        """The lines of an outage: struct of ``kind``, ``n`` (attempt from 0, or alive) and ``at`` (s)."""
        fails = self.luck("kind", sf.col("id"), sf.col("outage"), sf.lit(0))
        back = _end("last")

        def lines(n: Column) -> Column:
            start = sf.get("starts", n)
            waits = (n > 0) | (sf.col("outage") > 1)
            redirected = (n < sf.col("last")) & (self._kind(n) == "redirected")
            return sf.array(
                sf.when(waits, _step(Kind.BACKOFF, n, start - sf.get("waits", n))),
                _step(Kind.ATTEMPT, n, start + ATTEMPT_TIME),
                sf.when(redirected, _step(Kind.REDIRECT, n, start + ATTEMPT_TIME)),
            )

        failing = sf.col("end").isin("dies", "gives up")
        stop = sf.when(sf.col("end") == "dies", sf.floor(fails * sf.col("last")).cast("int")).otherwise(
            sf.when(failing, sf.greatest(sf.col("last") - 1, sf.lit(0))).otherwise(sf.col("last"))
        )
        tried = sf.flatten(sf.transform(sf.sequence(sf.lit(0), stop), lines))
        zero = sf.lit(0)
        alive_count = sf.greatest(sf.floor((sf.col("next") - sf.col("began") - back - 1) / ALIVE), sf.lit(0))
        alive = sf.transform(
            sf.slice(sf.sequence(sf.lit(0), alive_count.cast("int")), 2, 1_000_000),
            lambda j: _step(Kind.ALIVE, j, back + j * ALIVE),
        )
        before = sf.array(sf.when(sf.col("outage") > 1, _step(Kind.LOST, zero, sf.lit(0.0))))
        after = (
            sf.when(sf.col("end") == "dies", sf.array(_nothing()))
            .when(sf.col("end") == "gives up", sf.array(_step(Kind.GAVE_UP, zero, back)))
            .when(
                sf.col("end") == "closes",
                sf.array(_step(Kind.CONNECTED, zero, back), _step(Kind.CLOSED, zero, back + 1)),
            )
            .otherwise(sf.concat(sf.array(_step(Kind.CONNECTED, zero, back)), alive))
        )
        return sf.array_compact(sf.concat(before, tried, after))

    def _kind(self, n: Column) -> Column:
        drawn = self.luck("kind", sf.col("id"), sf.col("outage"), n)
        other = sf.when(drawn < REFUSED + FORCED, "closed").otherwise("redirected")
        return sf.when(drawn < REFUSED, "refused").otherwise(other)

    def numbered_rows(self, rows: DataFrame) -> DataFrame:
        """The outages with ``before``, the number of lines that their connection wrote before them."""
        earlier = Window.partitionBy("id").orderBy("outage").rowsBetween(Window.unboundedPreceding, -1)
        before = sf.coalesce(sf.sum(sf.size("steps")).over(earlier), sf.lit(0))
        return rows.withColumn("before", before)

    def _is_lost(self, sequence: Column) -> Column:
        return self.luck("lost line", sf.col("id"), sequence) < self.dirt.lost

    def truth(self, rows: DataFrame) -> DataFrame:
        """What an analysis should find."""
        count = sf.size("steps")
        tries = sf.filter("steps", lambda step: step["kind"] == Kind.ATTEMPT.value)
        lost = sf.filter(sf.sequence(sf.lit(1), count), lambda n: self._is_lost(sf.col("before") + n))
        outcome = sf.when(sf.col("end") == "dies", "never_came_back").when(
            sf.col("end") == "gives up", "gave_up"
        )
        return rows.select(
            "client_id",
            sf.lit(1).cast("bigint").alias("connection"),
            sf.col("outage").cast("bigint"),
            _cluster().alias("cluster"),
            sf.when(~sf.col("end").isin("dies", "gives up"), sf.round(_end("last"), 6)).alias("time_away"),
            sf.size(tries).cast("bigint").alias("attempts"),
            outcome.otherwise("back").alias("outcome"),
            sf.size(lost).cast("bigint").alias("lost_lines"),
        )

    def events(self, rows: DataFrame) -> DataFrame:
        """One row a line, copies included, with the columns of the schema and ``last_words``."""
        steps = rows.select("*", sf.posexplode("steps").alias("pos", "line"))
        steps = steps.withColumn("sequence", sf.col("before") + sf.col("pos") + 1)
        steps = steps.where(~self._is_lost(sf.col("sequence")))
        twice = self.luck("twice", "id", "sequence") < self.dirt.duplicated
        copies = sf.when(twice, sf.array(sf.lit(0), sf.lit(1))).otherwise(sf.array(sf.lit(0)))
        steps = steps.withColumn("copy", sf.explode(copies))
        dead = (sf.col("end") == "dies") & (sf.col("pos") == sf.size("steps") - 1)
        columns = self._columns()
        made = [columns[key.column].cast(key.type.value).alias(key.column) for key in KEYS]
        garbage = (self.luck("bad", "id", "sequence") < self.dirt.bad) & (sf.col("copy") == 0)
        return steps.select(*made, "copy", dead.alias("last_words"), garbage.alias("garbage"))

    def _columns(self) -> dict[str, Column]:
        kind, n, at = sf.col("line.kind"), sf.col("line.n"), sf.col("line.at")

        def only(kinds: tuple[Kind, ...], value: Column) -> Column:
            return sf.when(kind.isin(*(one.value for one in kinds)), value)

        attempt, connected = Kind.ATTEMPT, Kind.CONNECTED
        stepped = sf.coalesce(sf.col("outage") >= sf.col("step_at"), sf.lit(False))
        wall = START + sf.col("began") + at + sf.col("skew") + sf.when(stepped, sf.col("step")).otherwise(0.0)
        won = (n == sf.col("last")) & ~sf.col("end").isin("dies", "gives up")
        failed = only((attempt,), sf.when(~won, self._kind(n)))
        primary, odd = self._primary(), sf.pmod(n, sf.lit(2))
        member = sf.when((kind == attempt.value) & ~won | (kind == Kind.REDIRECT.value), odd).otherwise(
            primary
        )
        member = sf.when(kind == Kind.LOST.value, 1 - primary).otherwise(member)
        placed = only((attempt, connected, Kind.LOST, Kind.REDIRECT, Kind.ALIVE), member)
        backoff = (Kind.BACKOFF,)
        base = sf.least(sf.lit(CAP), BASE * sf.pow(sf.lit(2.0), n))
        known = (sf.col("outage") > 1) | kind.isin(connected.value, Kind.ALIVE.value, Kind.CLOSED.value)
        given = {
            "specversion": sf.lit("1.0"),
            "event_id": self._event_id(),
            "source": sf.concat(sf.lit("/haclient/"), "instance"),
            "type": kind,
            "time": sf.timestamp_micros(sf.round(wall * 1e6).cast("bigint")),
            "subject": sf.concat("client_id", sf.lit("/1")),
            "dataschema": sf.lit(DATASCHEMA),
            "client_id": sf.col("client_id"),
            "service": sf.concat(sf.lit("service-"), sf.pmod("id", sf.lit(5))),
            "instance": sf.col("instance"),
            "connection": sf.lit(1),
            "sequence": sf.col("sequence"),
            "monotonic": sf.round(sf.col("uptime") + sf.col("began") + at, 6),
            "cluster": sf.when(known, _cluster()),
            "outage_id": sf.concat("client_id", sf.lit("/1/"), "outage"),
            "outage": sf.col("outage"),
            "outage_duration": only((connected, Kind.GAVE_UP), sf.round(at, 6)),
            "attempt": only((attempt, connected), n + 1),
            "attempt_duration": only((attempt,), sf.round(ATTEMPT_TIME * self._pace(n), 6)),
            "server_address": sf.when(placed == 0, sf.concat(_cluster(), sf.lit("-a"))).when(
                placed == 1, sf.concat(_cluster(), sf.lit("-b"))
            ),
            "server_port": sf.when(placed.isNotNull(), 5672),
            "error_type": failed,
            "condition": sf.when(failed == "closed", "amqp:connection:forced").when(
                failed == "redirected", "amqp:connection:redirect"
            ),
            "reason": only((Kind.LOST,), sf.lit("the peer closed the connection")),
            "backoff_base": only(backoff, base),
            "backoff_delay": only(backoff, sf.get("waits", n)),
            "backoff_round": only(backoff, n),
            "backoff_strategy": only(backoff, sf.lit("full")),
            "backoff_max": only(backoff, sf.lit(CAP)),
            "redirect_address": only(
                (Kind.REDIRECT,), sf.concat(_cluster(), sf.when(odd == 0, "-b").otherwise("-a"))
            ),
            "redirect_port": only((Kind.REDIRECT,), sf.lit(5672)),
            "redirect_followed": only((Kind.REDIRECT,), sf.lit(True)),
            "generation": only((connected, Kind.ALIVE, Kind.LOST), self._generation(kind)),
            "unsettled": only((Kind.LOST,), sf.pmod("id", sf.lit(7))),
            "replayed": only((connected,), sf.when(sf.col("outage") > 1, sf.pmod("id", sf.lit(7)))),
            "state": only((Kind.ALIVE,), sf.lit("connected")),
        }
        return {key.column: given.get(key.column, sf.lit(None)) for key in KEYS}

    def _pace(self, n: Column) -> Column:
        return 0.25 + 0.75 * self.luck("pace", sf.col("id"), sf.col("outage"), n)

    def _primary(self) -> Column:
        """Which of the two members the client finds to be primary."""
        right = sf.pmod(sf.col("outage"), sf.lit(2))
        return sf.when(self._sees_split(3, 7), 1 - right).otherwise(right)

    def _generation(self, kind: Column) -> Column:
        told = sf.col("outage") - sf.when(kind == Kind.LOST.value, 1).otherwise(0)
        return sf.when(self._sees_split(4, 11) & (kind != Kind.LOST.value), 1).otherwise(told)

    def _sees_split(self, outage: int, rest: int) -> Column:
        chosen = (sf.pmod("id", sf.lit(100)) == rest) & (sf.col("outage") == outage)
        return chosen & ~sf.col("busy") & sf.lit(self.dirt.split)

    def _event_id(self) -> Column:
        """Like a UUID, from two hashes: 122 bits, so that no two lines of a fleet share one."""
        half = [sf.xxhash64(sf.lit(self.seed + place), "id", "sequence") for place in (0, 1)]
        digits = sf.lower(sf.concat(*(sf.lpad(sf.hex(one), 16, "0") for one in half)))
        parts = [
            sf.substring(digits, 1, 8),
            sf.substring(digits, 9, 4),
            sf.lit("7"),
            sf.substring(digits, 14, 3),
        ]
        parts += [sf.lit("8"), sf.substring(digits, 18, 3), sf.substring(digits, 21, 12)]
        dash = sf.lit("-")
        return sf.concat(
            parts[0], dash, parts[1], dash, parts[2], parts[3], dash, parts[4], parts[5], dash, parts[6]
        )

    def flat(self, events: DataFrame) -> DataFrame:
        """The rows as ``ingest`` has them."""
        rows = events.where(~sf.col("last_words") & (sf.col("copy") == 0))
        return rows.select(*(key.column for key in KEYS), sf.to_date("time").alias("date"))

    def lines(self, events: DataFrame) -> DataFrame:
        """The rows as text."""
        time = sf.date_format("time", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
        outer = [(time if key.column == "time" else sf.col(key.column)).alias(key.name) for key in ENVELOPE]
        inner = sf.struct(*(sf.col(key.column).alias(key.name) for key in DATA))
        text = sf.to_json(sf.struct(*outer, inner.alias("data")))
        cut = sf.when(sf.col("last_words"), sf.expr("left(value, length(value) DIV 2)"))
        rows = events.select(text.alias("value"), "last_words", "garbage")
        rows = rows.select(cut.otherwise(sf.col("value")).alias("value"), "garbage")
        more = sf.when(sf.col("garbage"), sf.array("value", sf.lit("kernel: not a line of telemetry {")))
        return rows.select(sf.explode(more.otherwise(sf.array("value"))).alias("value"))


def _step(kind: Kind, n: Column, at: Column) -> Column:
    return sf.struct(
        sf.lit(kind.value).alias("kind"), n.cast("int").alias("n"), sf.round(at, 6).cast("double").alias("at")
    )


def _nothing() -> Column:
    return sf.lit(None).cast("struct<kind: string, n: int, at: double>")


def _start(n: Column) -> Column:
    """When attempt ``n`` begins, in seconds from the beginning of the outage."""
    waited = sf.aggregate(sf.slice("waits", sf.lit(1), n + 1), sf.lit(0.0), lambda sum_, wait: sum_ + wait)
    return waited + n * ATTEMPT_TIME


def _end(number: str) -> Column:
    return sf.get("starts", sf.col(number)) + ATTEMPT_TIME


def _cluster() -> Column:
    return sf.concat(sf.lit("cluster-"), "place")
