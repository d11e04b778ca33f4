"""The analysis' tables, made with DuckDB and Polars for ``bench_analysis.py``.

Rules
-----
* Same files, same work. Lines that are not JSON are left out, duplicates are removed, and the remaining lines
  are stored once. Each table is made from these and stored as Parquet.
* Each tool is used as its own manual suggests: SQL over a database file, lazy frames on the streaming engine.
* A table has the costly aggregates, over the same rows; cheap names and texts of the real one are left out.
  Sums over its rows and attempts are compared with Spark's in the same run.
"""

# ruff: noqa: S608 - queries are made of this module's own words

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import analysis_storms as storms

from haclient.telemetry.schema import DATA, ENVELOPE, KEYS, Type

Stage = tuple[str, float]
"""The name of a step, and its duration in seconds."""

_DUCKDB_TYPES = {
    Type.STRING: "VARCHAR",
    Type.LONG: "BIGINT",
    Type.DOUBLE: "DOUBLE",
    Type.BOOLEAN: "BOOLEAN",
    Type.TIMESTAMP: "TIMESTAMP",
}
_KIND = "haclient.connection"

BASELINES = ("scan and count", "storm peak", "lag and running sum")
"""The queries to which the whole job is compared."""

BASELINE_SQL = {
    "scan and count": "SELECT count(*) AS n, sum(attempt_duration) AS total FROM events",
    "storm peak": f"""
        SELECT max(n) AS n FROM (
            SELECT cluster, floor(epoch(time)) AS second, count(*) AS n
            FROM events WHERE type = '{_KIND}.attempt' GROUP BY ALL)""",
    "lag and running sum": """
        SELECT sum(gap) AS gaps, max(tried) AS tried FROM (
            SELECT epoch(time) - epoch(lag(time) OVER w) AS gap, sum(attempt_duration) OVER w AS tried
            FROM events WINDOW w AS (PARTITION BY client_id, connection ORDER BY time))""",
}

_EPISODES = f"""
    SELECT client_id, connection, outage, max(cluster) AS cluster, max(outage_id) AS outage_id,
        min(time) FILTER (type = '{_KIND}.lost') AS lost_at, min(time) AS began_at, max(time) AS last_at,
        min(time - to_microseconds(CAST(attempt_duration * 1e6 AS BIGINT)))
            FILTER (type = '{_KIND}.attempt') AS first_attempt_at,
        max(time) FILTER (type = '{_KIND}.connected') AS back_at,
        max(outage_duration) FILTER (type = '{_KIND}.connected') AS downtime,
        count(*) FILTER (type = '{_KIND}.attempt') AS attempts,
        count(*) FILTER (type = '{_KIND}.redirect') AS redirects,
        count(DISTINCT server_address || ':' || server_port)
            FILTER (type = '{_KIND}.attempt') AS members_tried,
        histogram(error_type) FILTER (type = '{_KIND}.attempt') AS reasons,
        count(retry_after) FILTER (type = '{_KIND}.backoff') AS retry_after_honored,
        count(*) FILTER (type = '{_KIND}.backoff') AS backoffs, sum(backoff_delay) AS backoff_total,
        max(generation) FILTER (type = '{_KIND}.lost') AS generation_before,
        max(generation) FILTER (type = '{_KIND}.connected') AS generation_after,
        max(unsettled) AS unsettled, max(replayed) AS replayed,
        bool_or(type = '{_KIND}.gave_up') AS gave_up, bool_or(type = '{_KIND}.closed') AS closed
    FROM events WHERE outage IS NOT NULL GROUP BY client_id, connection, outage"""

TABLES_SQL = {
    "episodes": _EPISODES,
    "storms": storms.SQL,
    "jitter": f"""
        WITH drawn AS (
            SELECT backoff_strategy, backoff_base, backoff_round, backoff_max, backoff_delay,
                backoff_delay / backoff_base AS ratio
            FROM events WHERE type = '{_KIND}.backoff' AND backoff_base > 0 AND retry_after IS NULL),
        placed AS (
            SELECT *, row_number() OVER w AS place, count(*) OVER (
                PARTITION BY backoff_strategy, backoff_base, backoff_round) AS n
            FROM drawn
            WINDOW w AS (PARTITION BY backoff_strategy, backoff_base, backoff_round ORDER BY ratio))
        SELECT backoff_strategy, backoff_base, backoff_round, count(*) AS delays, avg(ratio) AS mean_ratio,
            max(greatest(place / n - ratio, ratio - (place - 1) / n)) AS ks,
            avg((backoff_base >= backoff_max AND ratio > 0.95)::INT) AS at_cap
        FROM placed GROUP BY ALL""",
    "members": f"""
        SELECT server_address, server_port, count(*) AS attempts, count(*) - count(error_type) AS successes,
            histogram(error_type) AS failures, quantile_cont(attempt_duration, [0.5, 0.9, 0.99])
                FILTER (error_type IS NULL) AS connect, min(time) AS first_seen, max(time) AS last_seen
        FROM events WHERE type = '{_KIND}.attempt' GROUP BY ALL""",
    "alarms": """
        SELECT client_id, connection, max(sequence) - min(sequence) + 1 - count(*) AS missing
        FROM events WHERE sequence IS NOT NULL GROUP BY ALL HAVING missing > 0
        UNION ALL
        SELECT client_id, connection, generation FROM (
            SELECT client_id, connection, generation, max(generation) OVER (
                PARTITION BY cluster ORDER BY time, event_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
            FROM events WHERE generation IS NOT NULL) WHERE generation < highest""",
    "not_recovered": """
        WITH ends AS (SELECT source, max(time) AS ended FROM events GROUP BY source),
        last_heard AS (  -- by all but 1 % of the processes, or by all but one
            SELECT min(ended) AS as_of FROM (FROM ends QUALIFY row_number() OVER (ORDER BY ended DESC)
                <= least(greatest(2, ceil(0.01 * (SELECT count(*) FROM ends))), (SELECT count(*) FROM ends))))
        SELECT e.client_id, e.connection, max(e.time) AS last_seen, arg_max(e.type, e.time) AS last_type,
            arg_max(e.error_type, e.time) AS last_error, arg_max(e.server_address, e.time) AS last_endpoint
        FROM events e SEMI JOIN (
            SELECT client_id, connection FROM (
                FROM episodes QUALIFY outage = max(outage) OVER (PARTITION BY client_id, connection))
            WHERE back_at IS NULL AND NOT closed AND (gave_up
            OR last_at < (SELECT as_of FROM last_heard) - INTERVAL 120 SECONDS))
            USING (client_id, connection)
        GROUP BY ALL""",
}


def timed(name: str, work: Callable[[], object]) -> Stage:
    """Do the work; return the name and the seconds taken."""
    began = time.perf_counter()
    work()
    return name, time.perf_counter() - began


# -- DuckDB ---------------------------------------------------------------------------------------


def duckdb_events(form: str, folder: Path) -> str:
    """Return SQL that reads the lines as flat rows."""
    if form == "parquet":
        return f"SELECT * FROM read_parquet('{folder}/**/*.parquet', hive_partitioning = false)"
    inner = ", ".join(f'"{key.name}" {_DUCKDB_TYPES[key.type]}' for key in DATA)
    columns = ", ".join(f"'{key.name}': '{_DUCKDB_TYPES[key.type]}'" for key in ENVELOPE)
    outer = ", ".join(f'"{key.name}" AS {key.column}' for key in ENVELOPE)
    flat = ", ".join(f'data."{key.name}" AS {key.column}' for key in DATA)
    return (
        f"SELECT {outer}, {flat} FROM read_json('{folder}/*.jsonl', format='newline_delimited', "
        f"ignore_errors=true, columns={{{columns}, 'data': 'STRUCT({inner})'}}) WHERE id IS NOT NULL"
    )


def duckdb_stages(form: str, folder: Path, out: Path) -> Iterator[Stage]:
    """Run the whole job."""
    import duckdb  # noqa: PLC0415 - each contestant has a process of its own

    database = duckdb.connect(str(out / "events.duckdb"))
    database.execute("SET preserve_insertion_order = false")
    names = ", ".join(key.column for key in KEYS if key.column != "event_id")
    first = ", ".join(f"any_value({name}) AS {name}" for name in names.split(", "))
    read = f"CREATE TABLE events AS SELECT event_id, {first} FROM ({duckdb_events(form, folder)}) GROUP BY 1"
    yield timed("read", lambda: database.execute(read))
    for name, query in TABLES_SQL.items():
        yield timed(name, lambda query=query, name=name: _duckdb_table(database, name, query, out))
    database.close()


def _duckdb_table(database: Any, name: str, query: str, out: Path) -> None:
    database.execute(f"CREATE TABLE {name} AS {query}")
    database.execute(f"COPY {name} TO '{out}/{name}.parquet' (FORMAT parquet, COMPRESSION zstd)")


def duckdb_baselines(form: str, folder: Path) -> Iterator[Stage]:
    """Run the three queries directly on the files."""
    import duckdb  # noqa: PLC0415

    database = duckdb.connect()
    database.execute(f"CREATE VIEW events AS {duckdb_events(form, folder)}")
    for name, query in BASELINE_SQL.items():
        yield timed(name, lambda query=query: database.execute(query).fetchall())


# -- Polars ---------------------------------------------------------------------------------------


def polars_events(form: str, folder: Path) -> Any:
    """Return the lines as a flat lazy frame."""
    import polars as pl  # noqa: PLC0415

    if form == "parquet":
        return pl.scan_parquet(f"{folder}/**/*.parquet", hive_partitioning=False)
    kinds = {
        Type.STRING: pl.String,
        Type.LONG: pl.Int64,
        Type.DOUBLE: pl.Float64,
        Type.BOOLEAN: pl.Boolean,
        Type.TIMESTAMP: pl.String,
    }
    inner = pl.Struct({key.name: kinds[key.type] for key in DATA})
    line = pl.Struct({**{key.name: kinds[key.type] for key in ENVELOPE}, "data": inner})
    text = pl.scan_csv(
        f"{folder}/*.jsonl", has_header=False, separator="\x01", quote_char=None, new_columns=["line"]
    )
    # Polars' JSON reader stops at a truncated line; every complete line ends like this.
    whole = text.filter(pl.col("line").str.starts_with("{") & pl.col("line").str.ends_with("}}"))
    parsed = whole.select(pl.col("line").str.json_decode(line)).unnest("line")
    moment = pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ")
    outer = [
        moment.alias("time") if key.column == "time" else pl.col(key.name).alias(key.column)
        for key in ENVELOPE
    ]
    return parsed.select(*outer, *(pl.col("data").struct[key.name].alias(key.column) for key in DATA))


def polars_stages(form: str, folder: Path, out: Path) -> Iterator[Stage]:
    """Run the whole job."""
    import polars as pl  # noqa: PLC0415

    distinct = polars_events(form, folder).unique("event_id", keep="any")
    stored = out / "events.parquet"
    yield timed("read", lambda: distinct.sink_parquet(stored, compression="zstd"))
    events = pl.scan_parquet(stored)
    makers: dict[str, Callable[[Any, Any], Any]] = {
        "episodes": _polars_episodes,
        "storms": storms.polars_storms,
        "jitter": _polars_jitter,
        "members": _polars_members,
        "alarms": _polars_alarms,
        "not_recovered": _polars_absent,
    }
    for name, make in makers.items():
        episodes = None if name == "episodes" else pl.scan_parquet(out / "episodes.parquet")
        frame = make(events, episodes)
        yield timed(name, lambda frame=frame, name=name: frame.sink_parquet(out / f"{name}.parquet"))


def polars_baselines(form: str, folder: Path) -> Iterator[Stage]:
    """Run the three queries directly on the files."""
    import polars as pl  # noqa: PLC0415

    events = polars_events(form, folder)
    second = pl.col("time").dt.epoch("s").alias("second")
    tries = events.filter(pl.col("type") == f"{_KIND}.attempt")
    by_client = {"partition_by": ["client_id", "connection"], "order_by": "time"}
    frames = {
        "scan and count": events.select(pl.len(), pl.col("attempt_duration").sum()),
        "storm peak": tries.group_by("cluster", second).len().select(pl.col("len").max()),
        "lag and running sum": events.select(
            (pl.col("time") - pl.col("time").shift(1)).over(**by_client).sum().alias("gaps"),
            pl.col("attempt_duration").fill_null(0).cum_sum().over(**by_client).max().alias("tried"),
        ),
    }
    for name, frame in frames.items():
        yield timed(name, lambda frame=frame: frame.collect(engine="streaming"))


def _polars_episodes(events: Any, _: Any) -> Any:
    import polars as pl  # noqa: PLC0415

    def of(kind: str, column: str) -> Any:
        return pl.col(column).filter(pl.col("type") == f"{_KIND}.{kind}")

    keys = ["client_id", "connection", "outage"]
    endpoint = pl.concat_str("server_address", pl.lit(":"), "server_port").alias("endpoint")
    started = (pl.col("time") - pl.duration(microseconds=pl.col("attempt_duration") * 1e6)).alias("started")
    outages = events.filter(pl.col("outage").is_not_null()).with_columns(endpoint, started)
    made = outages.group_by(keys).agg(
        pl.col("cluster").max(),
        pl.col("outage_id").max(),
        of("lost", "time").min().alias("lost_at"),
        pl.col("time").min().alias("began_at"),
        pl.col("time").max().alias("last_at"),
        of("attempt", "started").min().alias("first_attempt_at"),
        of("connected", "time").max().alias("back_at"),
        of("connected", "outage_duration").max().alias("downtime"),
        of("attempt", "type").len().alias("attempts"),
        of("redirect", "type").len().alias("redirects"),
        of("attempt", "endpoint").n_unique().alias("members_tried"),
        of("backoff", "retry_after").count().alias("retry_after_honored"),
        of("backoff", "type").len().alias("backoffs"),
        pl.col("backoff_delay").sum().alias("backoff_total"),
        of("lost", "generation").max().alias("generation_before"),
        of("connected", "generation").max().alias("generation_after"),
        pl.col("unsettled").max(),
        pl.col("replayed").max(),
        (pl.col("type") == f"{_KIND}.gave_up").any().alias("gave_up"),
        (pl.col("type") == f"{_KIND}.closed").any().alias("closed"),
    )
    failed = outages.filter(pl.col("error_type").is_not_null()).group_by(*keys, "error_type").len()
    reasons = failed.group_by(keys).agg(pl.struct("error_type", "len").alias("reasons"))
    return made.join(reasons, on=keys, how="left")


def _polars_jitter(events: Any, _: Any) -> Any:
    import polars as pl  # noqa: PLC0415

    keys = ["backoff_strategy", "backoff_base", "backoff_round"]
    drawn = events.filter(
        (pl.col("type") == f"{_KIND}.backoff")
        & (pl.col("backoff_base") > 0)
        & pl.col("retry_after").is_null()
    ).with_columns((pl.col("backoff_delay") / pl.col("backoff_base")).alias("ratio"))
    place, count = pl.col("ratio").rank("ordinal"), pl.len()
    distance = pl.max_horizontal(place / count - pl.col("ratio"), pl.col("ratio") - (place - 1) / count)
    at_cap = (pl.col("backoff_base") >= pl.col("backoff_max")) & (pl.col("ratio") > 0.95)
    return drawn.group_by(keys).agg(
        pl.len().alias("delays"),
        pl.col("ratio").mean().alias("mean_ratio"),
        distance.max().alias("ks"),
        at_cap.mean().alias("at_cap"),
    )


def _polars_members(events: Any, _: Any) -> Any:
    import polars as pl  # noqa: PLC0415

    keys = ["server_address", "server_port"]
    tries = events.filter(pl.col("type") == f"{_KIND}.attempt")
    won = pl.col("attempt_duration").filter(pl.col("error_type").is_null())
    return tries.group_by(keys).agg(
        pl.len().alias("attempts"),
        pl.col("error_type").is_null().sum().alias("successes"),
        pl.col("error_type").value_counts().alias("failures"),
        *(won.quantile(share, "linear").alias(f"connect_{share}") for share in (0.5, 0.9, 0.99)),
        pl.col("time").min().alias("first_seen"),
        pl.col("time").max().alias("last_seen"),
    )


def _polars_alarms(events: Any, _: Any) -> Any:
    import polars as pl  # noqa: PLC0415

    keys = ["client_id", "connection"]
    gaps = (
        events.filter(pl.col("sequence").is_not_null())
        .group_by(keys)
        .agg((pl.col("sequence").max() - pl.col("sequence").min() + 1 - pl.len()).alias("missing"))
        .filter(pl.col("missing") > 0)
    )
    reported = events.filter(pl.col("generation").is_not_null()).sort("cluster", "time", "event_id")
    highest = pl.col("generation").cum_max().shift(1).over("cluster")
    back = reported.filter(pl.col("generation") < highest).select(
        *keys, pl.col("generation").alias("missing")
    )
    return pl.concat([gaps.with_columns(pl.col("missing").cast(pl.Int64)), back])


def _polars_absent(events: Any, episodes: Any) -> Any:
    import polars as pl  # noqa: PLC0415

    keys = ["client_id", "connection"]
    ends = events.group_by("source").agg(pl.col("time").max().alias("ended"))
    rank = pl.min_horizontal(pl.max_horizontal(2, (pl.len() * 0.01).ceil()), pl.len())
    as_of = ends.select(pl.col("ended").sort(descending=True).get(rank.cast(pl.Int64) - 1).alias("as_of"))
    silent = (
        episodes.filter(pl.col("outage") == pl.col("outage").max().over(keys))
        .join(as_of, how="cross")
        .filter(
            pl.col("back_at").is_null()
            & ~pl.col("closed")
            & (pl.col("gave_up") | (pl.col("last_at") < pl.col("as_of") - pl.duration(seconds=120)))
        )
        .select(keys)
    )
    last = ("type", "error_type", "server_address")
    return (
        events.join(silent, on=keys, how="semi")
        .group_by(keys)
        .agg(
            pl.col("time").max().alias("last_seen"),
            *(pl.col(name).sort_by("time").drop_nulls().last().alias(f"last_{name}") for name in last),
        )
    )


# -- their answers --------------------------------------------------------------------------------

CHECKS = {
    "episodes": ("episodes", "count(*), sum(attempts)::BIGINT, round(sum(downtime))"),
    "storms": ("storms", "count(*), sum(attempts)::BIGINT, sum({clients})::BIGINT"),
    "members": ("members", "count(*), sum(attempts)::BIGINT, sum(successes)::BIGINT"),
    "not_recovered": ("not_recovered", "count(*)"),
}


def answers(pattern: str, clients: str) -> dict[str, tuple[Any, ...]]:
    """Return a few sums of each table, to check that the contestants did the same work.

    :param pattern: the Parquet files of a table, with ``{}`` for its name.
    :param clients: the column with the storms' connections.
    """
    import duckdb  # noqa: PLC0415

    found = {}
    for name, (table, sums) in CHECKS.items():
        query = f"SELECT {sums.format(clients=clients)} FROM read_parquet('{pattern.format(table)}')"
        found[name] = duckdb.execute(query).fetchone() or ()
    return found


def emptied(folder: Path) -> Path:
    """Return the folder, emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
