"""The lines of a generated fleet: as rows of ``ingest``, and as text with the injected errors."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.generate.fleet import ATTEMPT_TIME, BASE, CAP, Fleet, fails_to_connect
from haclient.analysis.generate.truth import START
from haclient.telemetry.schema import DATA, DATASCHEMA, ENVELOPE, KEYS, Kind

_WITH_ENDPOINT = (Kind.ATTEMPT, Kind.CONNECTED, Kind.LOST, Kind.REDIRECT)


def events(fleet: Fleet, rows: DataFrame) -> DataFrame:
    """Return one row per line, copies included: the columns of the schema, ``copy``, ``torn``, ``garbage``.

    :param rows: from ``fleet.episodes_of``.
    """
    steps = rows.select("*", sf.posexplode("steps").alias("pos", "line"))
    steps = steps.withColumn("sequence", sf.col("before") + sf.col("pos") + 1)
    steps = steps.where(~fleet.is_lost(sf.col("sequence")))
    twice = fleet.prng("twice", "id", "sequence") < fleet.faults.duplicated
    copies = sf.when(twice, sf.array(sf.lit(0), sf.lit(1))).otherwise(sf.array(sf.lit(0)))
    steps = steps.withColumn("copy", sf.explode(copies))
    dead = (sf.col("end") == "dies") & (sf.col("pos") == sf.size("steps") - 1)
    columns = _Line(fleet).columns()
    made = [columns.get(key.column, sf.lit(None)).cast(key.type.value).alias(key.column) for key in KEYS]
    garbage = (fleet.prng("bad", "id", "sequence") < fleet.faults.bad) & (sf.col("copy") == 0)
    return steps.select(*made, "copy", dead.alias("torn"), garbage.alias("garbage"))


def flat(made: DataFrame) -> DataFrame:
    """Return the rows as ``ingest`` returns them: without copies and torn lines.

    :param made: from ``events``.
    """
    rows = made.where(~sf.col("torn") & (sf.col("copy") == 0))
    return rows.select(*(key.column for key in KEYS), sf.to_date("time").alias("date"))


def text(made: DataFrame) -> DataFrame:
    """Return the rows as JSON in the column ``value``.

    A torn row is cut in half, and a row marked as garbage is followed by another row that is no telemetry.

    :param made: from ``events``.
    """
    time = sf.date_format("time", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    outer = [(time if key.column == "time" else sf.col(key.column)).alias(key.name) for key in ENVELOPE]
    inner = sf.struct(*(sf.col(key.column).alias(key.name) for key in DATA))
    value = sf.to_json(sf.struct(*outer, inner.alias("data")))
    cut = sf.when(sf.col("torn"), sf.expr("left(value, length(value) DIV 2)"))
    rows = made.select(value.alias("value"), "torn", "garbage")
    rows = rows.select(cut.otherwise(sf.col("value")).alias("value"), "garbage")
    more = sf.when(sf.col("garbage"), sf.array("value", sf.lit("kernel: not a line of telemetry {")))
    return rows.select(sf.explode(more.otherwise(sf.array("value"))).alias("value"))


@dataclass(frozen=True, slots=True)
class _Line:
    """The content of each line, by column; columns that are always null are left out."""

    fleet: Fleet

    def columns(self) -> dict[str, Column]:
        return (
            self._envelope()
            | self._connection()
            | self._attempt()
            | self._endpoint()
            | self._backoff()
            | self._end()
        )

    def _envelope(self) -> dict[str, Column]:
        stepped = sf.coalesce(sf.col("outage") >= sf.col("step_at"), sf.lit(False))
        wall = START + sf.col("began") + sf.col("line.at") + sf.col("skew")
        wall = wall + sf.when(stepped, sf.col("step")).otherwise(0.0)
        return {
            "specversion": sf.lit("1.0"),
            "event_id": _event_id(self.fleet.seed),
            "source": sf.concat(sf.lit("/haclient/"), "instance"),
            "type": sf.col("line.kind"),
            "time": sf.timestamp_micros(sf.round(wall * 1e6).cast("bigint")),
            "subject": sf.concat("client_id", sf.lit("/1")),
            "dataschema": sf.lit(DATASCHEMA),
        }

    def _connection(self) -> dict[str, Column]:
        known = (sf.col("outage") > 1) | _is(Kind.CONNECTED, Kind.CLOSED) | _serves()
        return {
            "client_id": sf.col("client_id"),
            "service": sf.concat(sf.lit("service-"), sf.pmod("number", sf.lit(5))),
            "instance": sf.col("instance"),
            "connection": sf.lit(1),
            "sequence": sf.col("sequence"),
            "monotonic": sf.round(sf.col("uptime") + sf.col("began") + sf.col("line.at"), 6),
            "cluster": sf.when(known, sf.col("cluster_name")),
            "outage_id": sf.concat("client_id", sf.lit("/1/"), "outage"),
            "outage": sf.col("outage"),
            "generation": sf.when(_is(Kind.CONNECTED, Kind.LOST) | _serves(), self._generation()),
            "state": sf.when(
                _is(Kind.ALIVE), sf.when(fails_to_connect(), "reconnecting").otherwise("connected")
            ),
        }

    def _attempt(self) -> dict[str, Column]:
        n = sf.col("line.n")
        pace = 0.25 + 0.75 * self.fleet.prng("pace", sf.col("id"), sf.col("outage"), n)
        failed = sf.when(_is(Kind.ATTEMPT) & ~_won(), self.fleet.error(n))
        return {
            "attempt": sf.when(_is(Kind.ATTEMPT, Kind.CONNECTED), n + 1).when(
                _is(Kind.GAVE_UP), sf.greatest("last", sf.lit(1))
            ),
            "attempt_duration": sf.when(_is(Kind.ATTEMPT), sf.round(ATTEMPT_TIME * pace, 6)),
            "error_type": failed,
            "condition": sf.when(failed == "closed", "amqp:connection:forced").when(
                failed == "redirected", "amqp:connection:redirect"
            ),
        }

    def _endpoint(self) -> dict[str, Column]:
        """Return the endpoint of a line: 0 and 1 are the members of its cluster."""
        primary, parity = self._primary(), sf.pmod(sf.col("line.n"), sf.lit(2))
        member = (
            sf.when(_is(Kind.LOST), 1 - primary)
            .when(_is(Kind.ATTEMPT) & ~_won() | _is(Kind.REDIRECT), parity)
            .otherwise(primary)
        )
        index = sf.when(_is(*_WITH_ENDPOINT) | _serves(), member)
        redirect = _is(Kind.REDIRECT)
        return {
            "server_address": sf.when(index == 0, _member("-a")).when(index == 1, _member("-b")),
            "server_port": sf.when(index.isNotNull(), 5672),
            "redirect_address": sf.when(
                redirect, sf.concat("cluster_name", sf.when(parity == 0, "-b").otherwise("-a"))
            ),
            "redirect_port": sf.when(redirect, sf.lit(5672)),
            "redirect_followed": sf.when(redirect, sf.lit(True)),
        }

    def _backoff(self) -> dict[str, Column]:
        n, backoff = sf.col("line.n"), _is(Kind.BACKOFF)
        base = sf.least(sf.lit(CAP), BASE * sf.pow(sf.lit(2.0), n))
        return {
            "backoff_base": sf.when(backoff, base),
            "backoff_floor": sf.when(backoff, 0.0),
            "backoff_delay": sf.when(backoff, sf.get("waits", n)),
            "backoff_round": sf.when(backoff, n),
            "backoff_strategy": sf.when(backoff, sf.lit("full")),
            "backoff_max": sf.when(backoff, sf.lit(CAP)),
        }

    def _end(self) -> dict[str, Column]:
        """Return the values of lines about a loss, and about the end of an outage."""
        unsettled = sf.pmod("id", sf.lit(7))
        killed = sf.pmod("outage", sf.lit(2)) == 0  # every other primary; the others are stopped
        at = sf.round("line.at", 6)
        return {
            "outage_duration": sf.when(_is(Kind.CONNECTED, Kind.GAVE_UP), at),
            "reason": sf.when(_is(Kind.LOST) & killed, sf.lit("the peer closed the socket")),
            "close_kind": sf.when(_is(Kind.LOST), sf.when(killed, "cut").otherwise("close")),
            "unsettled": sf.when(_is(Kind.LOST), unsettled),
            "replayed": sf.when(_is(Kind.CONNECTED), sf.when(sf.col("outage") > 1, unsettled).otherwise(0)),
        }

    def _primary(self) -> Column:
        """Return the number of the member that the client finds to be primary."""
        right = sf.pmod(_era(), sf.lit(2))
        return sf.when(self._sees_split(3, 7), 1 - right).otherwise(right)

    def _generation(self) -> Column:
        reported = _era() - sf.when(_is(Kind.LOST), 1).otherwise(0)
        return sf.when(self._sees_split(4, 11) & ~_is(Kind.LOST), 1).otherwise(reported)

    def _sees_split(self, outage: int, rest: int) -> Column:
        chosen = (sf.pmod("id", sf.lit(100)) == rest) & (sf.col("outage") == outage)
        return chosen & ~sf.col("busy") & sf.lit(self.fleet.faults.split)


def _is(*kinds: Kind) -> Column:
    """Test if a line is of one of these kinds."""
    return sf.col("line.kind").isin(*(kind.value for kind in kinds))


def _won() -> Column:
    """Test if a line is of the attempt that made the connection."""
    return (sf.col("line.n") == sf.col("last")) & ~fails_to_connect()


def _serves() -> Column:
    """Test if a line is an ``alive`` line of an established connection."""
    return _is(Kind.ALIVE) & ~fails_to_connect()


def _era() -> Column:
    """Return the generation of the primary that ends an outage."""
    return sf.col("outage") + sf.col("earlier")


def _member(ending: str) -> Column:
    return sf.concat("cluster_name", sf.lit(ending))


def _event_id(seed: int) -> Column:
    """Return a UUID-like id from two hashes: 122 bits, so that no two lines of a fleet share one."""
    hashes = [sf.xxhash64(sf.lit(seed + half), "id", "sequence") for half in (0, 1)]
    digits = sf.lower(sf.concat(*(sf.lpad(sf.hex(one), 16, "0") for one in hashes)))

    def part(begin: int, length: int, version: str = "") -> Column:
        return sf.concat(sf.lit(version), sf.substring(digits, begin, length))

    return sf.concat_ws("-", part(1, 8), part(9, 4), part(14, 3, "7"), part(18, 3, "8"), part(21, 12))
