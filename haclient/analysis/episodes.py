"""One row for each outage of each connection: the base of most other tables.

Rules
-----
1. A connection is ``client_id``, ``instance`` and ``connection``: a client that starts again under its
   old id is another one.  Its outages are numbered; 1 is the first connect.
2. Time away is by the monotonic clock of the client: what ``connected`` says itself, which is there when the
   line of the loss is missing, else the difference of the two lines.  Only when neither is there do
   the wall clocks of the two have to do; ``clock`` tells which it was.
3. Lines may be missing.  An outage is over as well when its connection has a later one.
4. ``never_came_back``: not back, and nothing was heard of the connection for ``silence`` seconds before
   ``as_of``.  ``open``: not back, but still heard of.

``outages`` does the work, in one aggregation without a window over lines, so that a client with a
million lines is a million rows of input and no row of any size.  ``episodes`` reads the result.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.telemetry.schema import Kind

SILENCE = 120.0  # s: two intervals of the `alive` lines
CONNECTION = ("client_id", "instance", "connection")
OUTAGE = (*CONNECTION, "outage")
KINDS = tuple(kind.value for kind in Kind if kind.value.startswith("haclient.connection."))

COLUMNS = (
    *("cluster", "client_id", "connection", "outage", "outage_id", "service", "instance"),
    *("first_connect", "lost_at", "began_at", "first_attempt_at", "back_at", "time_away", "clock"),
    *("attempts", "redirects", "members_tried", "reasons", "lost_reason"),
    *("hints_obeyed", "backoffs", "backoff_total", "generation_before", "generation_after"),
    *("endpoint_before", "endpoint_after", "unsettled", "replayed", "outcome"),
)


def only(kind: Kind, column: str | Column) -> Column:
    """The column on lines of this kind, null on others."""
    return sf.when(sf.col("type") == kind.value, sf.col(column) if isinstance(column, str) else column)


def endpoint() -> Column:
    """``host:port`` of a line; null without a host."""
    return sf.concat_ws(
        ":", sf.when(sf.col("server_address").isNotNull(), sf.col("server_address")), "server_port"
    )


def outages(events: DataFrame) -> DataFrame:
    """Everything that is known of each outage, before it is judged.

    Besides the facts of ``episodes`` there is what ``absent`` and the alarms want: ``heard_at`` (the
    last line), ``last_type``, ``last_error``, ``last_endpoint``, ``state_then``, ``lines``, and
    the lowest and highest ``sequence``.
    """
    lines = events.where(sf.col("type").isin(*KINDS)).select(*OUTAGE, *_facts())
    return lines.groupBy(*OUTAGE).agg(*_aggregates())


def _facts() -> list[Column]:
    names = (
        *("type", "time", "monotonic", "sequence", "cluster", "service", "outage_id", "outage_duration"),
        *("attempt_duration", "error_type", "reason", "backoff_delay", "hint", "generation"),
        *("unsettled", "replayed", "state"),
    )
    place = sf.when(sf.col("server_address").isNotNull(), endpoint())
    return [*(sf.col(name) for name in names), place.alias("endpoint")]


def _aggregates() -> list[Column]:
    started = sf.col("time") - sf.make_dt_interval(secs=sf.col("attempt_duration").cast("decimal(18,6)"))
    return [
        sf.max("cluster").alias("cluster"),
        sf.max("service").alias("service"),
        sf.max("outage_id").alias("outage_id"),
        sf.max(only(Kind.LOST, "time")).alias("lost_at"),
        sf.max(only(Kind.LOST, "monotonic")).alias("lost_clock"),
        sf.min("time").alias("first_line_at"),
        sf.min(only(Kind.ATTEMPT, started)).alias("first_attempt_at"),
        sf.max(only(Kind.CONNECTED, "time")).alias("back_at"),
        sf.max(only(Kind.CONNECTED, "monotonic")).alias("back_clock"),
        sf.max(only(Kind.CONNECTED, "outage_duration")).alias("told"),
        sf.count(only(Kind.ATTEMPT, "type")).alias("attempts"),
        sf.count(only(Kind.REDIRECT, "type")).alias("redirects"),
        sf.collect_set(only(Kind.ATTEMPT, "endpoint")).alias("tried"),
        sf.collect_list(only(Kind.ATTEMPT, "error_type")).alias("errors"),
        sf.max(only(Kind.LOST, "reason")).alias("lost_reason"),
        sf.count(only(Kind.BACKOFF, "hint")).alias("hints_obeyed"),
        sf.count(only(Kind.BACKOFF, "type")).alias("backoffs"),
        sf.sum(only(Kind.BACKOFF, sf.col("backoff_delay").cast("decimal(18,6)"))).alias("backoff_total"),
        sf.max(only(Kind.LOST, "generation")).alias("generation_before"),
        sf.max(only(Kind.CONNECTED, "generation")).alias("generation_after"),
        sf.max(only(Kind.LOST, "endpoint")).alias("endpoint_before"),
        sf.max(only(Kind.CONNECTED, "endpoint")).alias("endpoint_after"),
        sf.max(only(Kind.LOST, "unsettled")).alias("unsettled"),
        sf.max(only(Kind.CONNECTED, "replayed")).alias("replayed"),
        sf.count(only(Kind.GAVE_UP, "type")).alias("gave_up"),
        sf.count(only(Kind.CLOSED, "type")).alias("closed"),
        sf.max("time").alias("heard_at"),
        sf.max_by("type", "sequence").alias("last_type"),
        sf.max_by("error_type", sf.when(sf.col("error_type").isNotNull(), sf.col("sequence"))).alias(
            "last_error"
        ),
        sf.max_by("endpoint", sf.when(sf.col("endpoint").isNotNull(), sf.col("sequence"))).alias(
            "last_endpoint"
        ),
        sf.max_by("state", sf.when(sf.col("state").isNotNull(), sf.col("sequence"))).alias("state_then"),
        sf.count("sequence").alias("lines"),
        sf.min("sequence").alias("lowest"),
        sf.max("sequence").alias("highest"),
    ]


def judged(
    found: DataFrame, events: DataFrame, *, as_of: datetime | None = None, silence: float = SILENCE
) -> DataFrame:
    """The columns of ``COLUMNS`` beside those of ``outages`` that others read.

    :param found: ``outages(events)``.
    :param as_of: when the question is asked; the time of the last line without it.
    :param silence: seconds.
    """
    moment = events.agg(sf.max("time").alias("as_of"))
    if as_of is not None:
        moment = moment.select(sf.lit(as_of).cast("timestamp").alias("as_of"))
    whole = Window.partitionBy(*CONNECTION)
    rows = found.withColumn("last_outage", sf.max("outage").over(whole)).crossJoin(sf.broadcast(moment))
    quiet = sf.timestamp_micros(sf.unix_micros("as_of") - int(silence * 1e6))
    superseded = sf.col("outage") < sf.col("last_outage")
    outcome = (
        sf.when(sf.col("back_at").isNotNull() | superseded, "back")
        .when(sf.col("gave_up") > 0, "gave_up")
        .when(sf.col("closed") > 0, "closed")
        .when(sf.col("heard_at") < quiet, "never_came_back")
        .otherwise("open")
    )
    return rows.select(*found.columns, *_conclusions(), outcome.alias("outcome")).drop("tried", "errors")


def _conclusions() -> list[Column]:
    by_clock = sf.coalesce(sf.round(sf.col("back_clock") - sf.col("lost_clock"), 6), "told")
    by_wall = (sf.unix_micros("back_at") - sf.unix_micros("lost_at")) / 1e6
    back = sf.col("back_at").isNotNull()
    kinds = sf.sort_array(sf.array_distinct("errors"))
    counted = sf.transform(
        kinds,
        lambda kind: sf.size(sf.filter("errors", lambda error: error == kind)).cast("bigint"),
    )
    return [
        (sf.col("outage") == 1).alias("first_connect"),
        sf.coalesce("lost_at", "first_line_at").alias("began_at"),
        sf.when(back, sf.coalesce(by_clock, by_wall)).alias("time_away"),
        sf.when(back & by_clock.isNotNull(), "monotonic")
        .when(back & by_wall.isNotNull(), "wall")
        .alias("clock"),
        sf.size("tried").cast("bigint").alias("members_tried"),
        sf.map_from_arrays(kinds, counted).alias("reasons"),
    ]


def published(rows: DataFrame) -> DataFrame:
    """The table as others see it, of ``judged`` rows."""
    columns = {"backoff_total": sf.col("backoff_total").cast("double").alias("backoff_total")}
    return rows.select(*(columns.get(name, sf.col(name)) for name in COLUMNS))


def episodes(events: DataFrame, *, as_of: datetime | None = None, silence: float = SILENCE) -> DataFrame:
    """One row for each outage of each connection; docs/analysis.md has the columns."""
    return published(judged(outages(events), events, as_of=as_of, silence=silence))
