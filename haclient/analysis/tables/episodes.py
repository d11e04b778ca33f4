"""The table ``episodes``: one row for each episode of each connection, the base of most other tables.

Rules
-----
1. A connection is identified by ``client_id``, ``instance``, ``process`` (hash of its source) and
   ``connection``: a client that restarts under its old id has new connections.  Its episodes are numbered in
   ``outage``; 1 is the first connect, later ones are outages.
2. The monotonic clock of the client measures downtime: the difference of the lines ``lost`` and
   ``connected``, or the duration in ``connected`` if the ``lost`` line is missing.  If both are
   missing, it is the difference of the two wall-clock times; ``clock`` names the clock.
3. Lines may be missing.  An outage has also ended if its connection has a later one, or reports on an
   ``alive`` line that it is connected: it is back, at an unknown time.
4. ``episode_result`` is the first that applies: ``back``; ``gave_up``; ``closed``; ``replaced``, if a newer
   process of the client began after the last line, or after the loss if the client is silent; ``open``, with
   a line in the ``silence`` seconds before ``as_of``; ``silent``.  Every loss has exactly one result.
5. An episode that is open, silent or was given up is ``longer_than`` the time from its loss to ``as_of``.
6. A first connect is ``never_connected`` if it is not back ``PATIENCE`` seconds after it began.
7. A line's time is its ``t`` (``clock``).
8. A planned reconnect with a new token is no outage if its first attempt succeeded: it has no row.

``facts`` does most of the work, in one aggregation without a window over lines: a client with a
million lines is a million rows of input, but no large row.  ``classified`` adds the results.

Spark aggregates in a compiled hash table as long as every intermediate result is a number.  With one text or
list among them, it sorts all lines.  So names are hashes (``dictionary``), errors are one counter each,
and endpoints are bits.  If there are too many of these, their tables are aggregated separately and joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from haclient.analysis.tables import clock
from haclient.analysis.tables.dictionary import dictionary, endpoint_hash, name_hash, with_names
from haclient.analysis.tables.hit_by import resource_number
from haclient.analysis.tables.rollup import SeenValues, micros, roll_up, seen_values
from haclient.telemetry.schema import NO_FAILURES, Kind

SILENCE = 120.0  # s: two intervals of the `alive` lines
PATIENCE = 60.0  # s; the longest normal first connect
CONNECTION = ("client_id", "instance", "process", "connection")
PLANNED = "renewal"
LASTING = ("gave_up", "open", "silent")
"""Results of episodes whose end is unknown."""

EPISODE = (*CONNECTION, "outage")
NAMED = ("cluster", "service", "lost_reason", "lost_kind", "endpoint_before", "endpoint_after")
FEW_ERRORS, FEW_ENDPOINTS = 32, 62  # counters of one row, and bits of a number
_FAR = 2**62  # more than any sequence number
KINDS = tuple(kind.value for kind in Kind if kind.value.startswith("haclient.connection."))

COLUMNS = (
    *("cluster", "client_id", "connection", "outage", "outage_id", "service", "instance"),
    *("first_connect", "lost_at", "began_at", "first_attempt_at", "back_at", "downtime", "clock"),
    *("attempts", "redirects", "members_tried", "reasons", "lost_reason", "lost_kind"),
    *("retry_after_honored", "backoffs", "backoff_total", "generation_before", "generation_after"),
    *("endpoint_before", "endpoint_after", "unsettled", "replayed", "episode_result"),
    *("longer_than", "never_connected", "resource", "last_event_at"),
)


def facts(events: DataFrame, rolled_up: DataFrame, seen: SeenValues) -> DataFrame:
    """Return all facts about each episode, before it is classified.

    In addition to the columns of ``episodes`` it has those for ``not_recovered`` and the alarms:
    ``last_event_at``, ``last_type``, the hashes ``last_error``, ``last_endpoint`` and ``last_state``,
    ``lines``, and the lowest and highest ``sequence``.  ``last_error`` prefers the last error that explains
    the failure, and ``last_endpoint`` is where it occurred.  A row with ``known`` of 0 is no episode: it has
    only lines of unknown types, which count in the sequence.

    :param rolled_up: ``roll_up(events)``, preferably persisted.
    :param seen: from the same roll-up.
    """
    kind = _number(sf.col("type"), KINDS).alias("kind")  # every aggregate compares it on every line
    lines = events.where(sf.col("type").isin(*KINDS) | _unknown()).select(
        "*", kind, endpoint_hash().alias("endpoint_hash"), name_hash("source").alias("process")
    )
    many_errors, many_endpoints = len(seen.errors) > FEW_ERRORS, len(seen.endpoints) > FEW_ENDPOINTS
    few = SeenValues(() if many_errors else seen.errors, () if many_endpoints else seen.endpoints)
    found = _named(lines.groupBy(*EPISODE).agg(*_aggregates(), *_counters(few)), few)
    if many_errors:
        found = _beside(found.drop("reasons"), _reasons(lines))
    if many_endpoints:
        found = _beside(found.drop("members_tried"), _members_tried(lines))
    return with_names(found, dictionary(rolled_up), *NAMED)


def _unknown() -> Column:
    """Test for a connection's line of a type from a later version: it has a sequence number too."""
    numbered = (
        sf.col("client_id").isNotNull() & sf.col("connection").isNotNull() & sf.col("sequence").isNotNull()
    )
    return numbered & ~sf.col("type").startswith("haclient.member.")


def _aggregates() -> list[Column]:
    started = sf.unix_micros("t") - micros("attempt_duration")
    highest = {
        "cluster": name_hash("cluster"),
        "service": name_hash("service"),
        "lost_at": _on(Kind.LOST, "t"),
        "lost_clock": _on(Kind.LOST, "monotonic"),
        "lost_reason": _on(Kind.LOST, name_hash("reason")),
        "lost_kind": _on(Kind.LOST, name_hash("close_kind")),
        "generation_before": _on(Kind.LOST, "generation"),
        "endpoint_before": _on(Kind.LOST, "endpoint_hash"),
        "unsettled": _on(Kind.LOST, "unsettled"),
        "back_at": _on(Kind.CONNECTED, "t"),
        "back_clock": _on(Kind.CONNECTED, "monotonic"),
        "reported_duration": _on(Kind.CONNECTED, "outage_duration"),
        "generation_after": _on(Kind.CONNECTED, "generation"),
        "endpoint_after": _on(Kind.CONNECTED, "endpoint_hash"),
        "replayed": _on(Kind.CONNECTED, "replayed"),
        "closed_at": _on(Kind.CLOSED, "t"),
        "last_event_at": sf.col("t"),
        "highest": sf.col("sequence"),
        "resource": resource_number(),
    }
    counted = {
        "attempts": _on(Kind.ATTEMPT, sf.lit(1)),
        "redirects": _on(Kind.REDIRECT, sf.lit(1)),
        "backoffs": _on(Kind.BACKOFF, sf.lit(1)),
        "retry_after_honored": _on(Kind.BACKOFF, "retry_after"),
        "gave_up": _on(Kind.GAVE_UP, sf.lit(1)),
        "closed": _on(Kind.CLOSED, sf.lit(1)),
        "said_connected": _on(Kind.ALIVE, sf.when(sf.col("state") == "connected", 1)),
        "lines": sf.col("sequence"),
        "known": sf.col("kind"),
    }
    explains = sf.col("error_type").isNotNull() & ~sf.col("error_type").isin(*NO_FAILURES)
    last = {
        "last_error": _last(name_hash("error_type"), explains),
        "last_endpoint": _last(sf.col("endpoint_hash"), explains),
        "last_state": _last(name_hash("state")),
    }
    return [
        *(sf.max(column).alias(name) for name, column in highest.items()),
        *(sf.count(column).alias(name) for name, column in counted.items()),
        *(column.alias(name) for name, column in last.items()),
        _last(sf.col("kind")).alias("last_type"),
        sf.min("t").alias("first_line_at"),
        sf.min(_on(Kind.ATTEMPT, started)).alias("first_attempt"),
        sf.min("sequence").alias("lowest"),
        (sf.sum(_on(Kind.BACKOFF, micros("backoff_delay"))) / 1e6).alias("backoff_total"),
    ]


def _on(kind: Kind, column: str | Column) -> Column:
    """Return the column on lines of this kind, null on others."""
    value = sf.col(column) if isinstance(column, str) else column
    return sf.when(sf.col("kind") == KINDS.index(kind.value), value)


def _number(column: Column, values: Sequence[str | int]) -> Column:
    """Return the index of a line's value in ``values``; null if it is missing there."""
    chosen = sf.when(column == values[0], 0)
    for number, value in enumerate(values[1:], start=1):
        chosen = chosen.when(column == value, number)
    return chosen


def _last(column: Column, preferred: Column | None = None) -> Column:
    """Return the column's value on the last line that has one.

    :param preferred: condition on lines; the last line that meets it is chosen first.
    """
    order: Column = sf.col("sequence")
    if preferred is not None:
        order = sf.when(preferred, order).otherwise(sf.try_subtract(order, sf.lit(_FAR)))
    return sf.max_by(column, sf.when(column.isNotNull(), order))


def _counters(few: SeenValues) -> list[Column]:
    """Count failed attempts by error, and set a bit for each endpoint that was tried."""
    failed = [_on(Kind.ATTEMPT, sf.when(sf.col("error_type") == error, 1)) for error in few.errors]
    number = _number(sf.col("endpoint_hash"), few.endpoints) if few.endpoints else sf.lit(None).cast("int")
    bit = sf.call_function("shiftleft", sf.lit(1).cast("bigint"), number)
    return [
        *(sf.count(column).alias(f"error_{number}") for number, column in enumerate(failed)),
        sf.bit_or(_on(Kind.ATTEMPT, bit)).alias("bits"),
    ]


def _named(found: DataFrame, few: SeenValues) -> DataFrame:
    """Convert the counters to the public columns."""
    entries = [
        sf.struct(sf.lit(error).alias("key"), sf.col(f"error_{number}").alias("value"))
        for number, error in enumerate(few.errors)
    ]
    nothing = sf.array().cast("array<struct<key: string, value: bigint>>")
    seen = sf.filter(sf.array(*entries), lambda entry: entry["value"] > 0) if entries else nothing
    kind = sf.get(sf.array(*(sf.lit(kind) for kind in KINDS)), sf.col("last_type"))
    outage_id = sf.concat_ws("/", "client_id", "connection", "outage")
    return found.select(
        *(sf.col(name) for name in found.columns if name not in _INNER),
        kind.alias("last_type"),
        sf.when(sf.col("client_id").isNotNull(), outage_id).alias("outage_id"),
        sf.timestamp_micros("first_attempt").alias("first_attempt_at"),
        sf.map_from_entries(seen).alias("reasons"),
        sf.coalesce(sf.bit_count("bits"), sf.lit(0)).cast("bigint").alias("members_tried"),
    )


_INNER = {"bits", "first_attempt", "last_type", *(f"error_{number}" for number in range(FEW_ERRORS))}


def _reasons(lines: DataFrame) -> DataFrame:
    failed = lines.where((sf.col("type") == Kind.ATTEMPT.value) & sf.col("error_type").isNotNull())
    counted = failed.groupBy(*EPISODE, "error_type").agg(sf.count("*").alias("attempts"))
    entries = sf.sort_array(sf.collect_list(sf.struct("error_type", "attempts")))
    return counted.groupBy(*EPISODE).agg(sf.map_from_entries(entries).alias("reasons"))


def _members_tried(lines: DataFrame) -> DataFrame:
    tried = lines.where((sf.col("type") == Kind.ATTEMPT.value) & sf.col("endpoint_hash").isNotNull())
    return tried.groupBy(*EPISODE).agg(sf.count_distinct("endpoint_hash").alias("members_tried"))


_NONE = {"reasons": "map()", "members_tried": "0"}


def _beside(found: DataFrame, apart: DataFrame) -> DataFrame:
    """Join the last column of ``apart`` to ``found``; some episodes have no row in ``apart``."""
    value = apart.columns[-1]
    its = apart.select(*(sf.col(name).alias(f"its_{name}") for name in EPISODE), sf.col(value).alias("its"))
    same = [sf.col(name).eqNullSafe(sf.col(f"its_{name}")) for name in EPISODE]
    return found.join(its, same, "left").select(
        *found.columns,
        sf.coalesce("its", sf.expr(_NONE[value])).cast(its.schema["its"].dataType).alias(value),
    )


def unfinished(found: DataFrame) -> DataFrame:
    """Return the few episodes without a line ``connected``.

    ``superseded`` marks other proof that the connection came back.  ``newest_life`` is the time at which the
    client last started, in this process or another one.

    :param found: from ``facts``.
    """
    newest = found.groupBy(*CONNECTION).agg(sf.max("outage").alias("newest"))
    its = newest.select(*(sf.col(name).alias(f"its_{name}") for name in CONNECTION), "newest")
    same = [sf.col(name).eqNullSafe(sf.col(f"its_{name}")) for name in CONNECTION]
    rows = found.where(sf.col("back_at").isNull()).join(its, same)
    rows = _with_newest_life(rows.select(*found.columns, "newest"), found)
    later = sf.coalesce(sf.col("outage") < sf.col("newest"), sf.lit(False))
    superseded = (later | (sf.col("said_connected") > 0)).alias("superseded")
    return rows.select(*found.columns, superseded, "newest_life")


def _with_newest_life(rows: DataFrame, found: DataFrame) -> DataFrame:
    """Add the start of the newest process with the same client id or instance."""
    lives = found.groupBy("client_id", "instance", "process").agg(sf.min("first_line_at").alias("began"))
    clients = lives.groupBy("client_id").agg(sf.max("began").alias("client_began"))
    processes = lives.groupBy("instance", "process").agg(sf.min("began").alias("began"))
    instances = processes.groupBy("instance").agg(sf.max("began").alias("instance_began"))
    named = rows.join(clients, "client_id", "left").join(instances, "instance", "left")
    return named.withColumn("newest_life", sf.greatest("client_began", "instance_began"))


def classified(
    found: DataFrame,
    rest: DataFrame,
    *,
    as_of: int | None,
    silence: float = SILENCE,
) -> DataFrame:
    """Classify the episodes: return ``COLUMNS`` and the columns of ``facts`` for other tables.

    :param found: from ``facts``.
    :param rest: from ``unfinished``; preferably both are persisted.
    :param as_of: reference time, in microseconds since the epoch; ``None`` without lines.
    :param silence: seconds.
    """
    now = sf.lit(as_of).cast("bigint")
    silent = sf.col("last_event_at") < sf.timestamp_micros(now - int(silence * 1e6))
    began = sf.coalesce("lost_at", "first_line_at")
    replaced = (sf.col("newest_life") > sf.col("last_event_at")) | (silent & (sf.col("newest_life") > began))
    result = (
        sf.when(sf.col("superseded"), "back")
        .when(sf.col("gave_up") > 0, "gave_up")
        .when(sf.col("closed") > 0, "closed")
        .when(replaced, "replaced")
        .when(silent, "silent")
        .otherwise("open")
    )
    planned = (sf.col("lost_kind") == PLANNED) & (sf.col("attempts") <= 1)
    ended = found.where(sf.col("back_at").isNotNull() & ~sf.coalesce(planned, sf.lit(False)))
    back = ended.select("*", sf.lit("back").alias("episode_result"))
    rows = back.unionByName(rest.select(*found.columns, result.alias("episode_result")))
    return rows.select("*", *_downtime_columns(), *_unseen_end(now, began))


def _unseen_end(now: Column, began: Column) -> list[Column]:
    age = (now - sf.unix_micros(began)) / 1e6
    lasting = sf.col("episode_result").isin(*LASTING)
    never = (sf.col("outage") == 1) & (sf.col("episode_result") != "back") & (age > PATIENCE)
    return [
        sf.when(lasting, sf.greatest(age, sf.lit(0.0))).alias("longer_than"),
        sf.coalesce(never, sf.lit(False)).alias("never_connected"),
    ]


def _downtime_columns() -> list[Column]:
    by_clock = sf.coalesce(micros(sf.col("back_clock") - sf.col("lost_clock")) / 1e6, "reported_duration")
    by_wall = (sf.unix_micros("back_at") - sf.unix_micros("lost_at")) / 1e6
    back = sf.col("back_at").isNotNull()
    return [
        (sf.col("outage") == 1).alias("first_connect"),
        sf.coalesce("lost_at", "first_line_at").alias("began_at"),
        sf.when(back, sf.coalesce(by_clock, by_wall)).alias("downtime"),
        sf.when(back & by_clock.isNotNull(), "monotonic")
        .when(back & by_wall.isNotNull(), "wall")
        .alias("clock"),
    ]


def published(rows: DataFrame) -> DataFrame:
    """Select the public columns of ``classified`` rows; keep all rows."""
    return rows.select(*COLUMNS)


def not_recovered(outages: DataFrame, names: DataFrame) -> DataFrame:
    """One row a connection that is still searching, silent since a loss, gave up, or never connected.

    :param outages: rows of ``classified``; docs/analysis.md has the columns.
    :param names: of ``dictionary``.
    """
    gave_up = sf.col("episode_result") == "gave_up"
    then = sf.when(gave_up, "gave up").when(sf.col("last_type") == Kind.LOST.value, "lost")
    lasting = sf.col("episode_result").isin(*LASTING) & (sf.col("outage") > 1)
    gone = outages.where(lasting | sf.col("never_connected"))
    return with_names(gone, names, "last_error", "last_endpoint", "last_state").select(
        *("client_id", "connection", "service", "instance", "cluster"),
        sf.col("last_event_at").alias("last_seen"),
        *("last_type", "last_error", "last_endpoint"),
        sf.coalesce(then, sf.col("last_state"), sf.lit("reconnecting")).alias("last_state"),
        *("outage_id", "episode_result", "never_connected"),
    )


def episodes(events: DataFrame, *, as_of: datetime | None = None, silence: float = SILENCE) -> DataFrame:
    """Return one row per episode of each connection; docs/analysis.md has the columns.

    :param as_of: reference time; ``None`` for the time of the newest lines (``clock``, rule 4).
    :param silence: seconds.
    """
    moment = clock.as_of(clock.lives(events)) if as_of is None else clock.microseconds(as_of)
    rolled_up = roll_up(events).persist()
    seen = seen_values(rolled_up)
    found = facts(events, rolled_up, seen).where("known > 0").persist()
    return published(classified(found, unfinished(found), as_of=moment, silence=silence))
