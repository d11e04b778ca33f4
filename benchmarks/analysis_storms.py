"""The storms of the analysis, found with DuckDB and Polars for ``analysis_peers.py``.

``docs/analysis.md`` has the definition: windows of 5 s in which 5 connections and a tenth of the live ones
are lost. Windows that touch form one core, and a storm consists of all losses in a core. Losses, arrivals and
ends are changes per millisecond and cluster. Running sums give the live connections and the losses of a
window.
"""

# ruff: noqa: S608 - queries are made of this module's own words

from __future__ import annotations

from typing import Any

_KIND = "haclient.connection"

_WITHIN, _LEAST, _SHARE = 5000, 5, 0.1
"""Thresholds of a storm: ms of a window, connections lost, share of the live ones (docs/analysis.md)."""

SQL = f"""
    WITH steps AS (
        SELECT coalesce(cluster, '?') AS cluster, client_id, connection, outage, attempts, lost_at, back_at,
            epoch_ms(lost_at) AS lost_ms, epoch_ms(back_at) AS came_ms,
            CASE WHEN outage > 1 THEN epoch_ms(coalesce(lost_at, began_at)) END AS left_ms,
            CASE WHEN closed THEN epoch_ms(last_at) END AS closed_ms,
            outage > 1 AND lag(outage) OVER c IS NULL AS was_there, lag(epoch_ms(lost_at)) OVER c AS before_ms
        FROM episodes WINDOW c AS (PARTITION BY client_id, connection ORDER BY outage)),
    changes AS (
        SELECT cluster, came_ms AS cell, 1 AS came, 0 AS gone, 0 AS lost, 0 AS hit FROM steps
        UNION ALL SELECT cluster, -1, 1, 0, 0, 0 FROM steps WHERE was_there
        UNION ALL SELECT cluster, left_ms, 0, 1, (lost_ms IS NOT NULL)::INT, 0 FROM steps
        UNION ALL SELECT cluster, closed_ms, 0, 1, 0, 0 FROM steps WHERE came_ms <= closed_ms
        UNION ALL SELECT cluster, greatest(before_ms + 1, lost_ms - {_WITHIN - 1}), 0, 0, 0, 1 FROM steps
            WHERE lost_ms IS NOT NULL
        UNION ALL SELECT cluster, lost_ms + 1, 0, 0, 0, -1 FROM steps),
    counted AS (
        SELECT cluster, cell, gone, lost, sum(came - gone) OVER w + gone AS live, sum(hit) OVER w AS hit
        FROM (SELECT cluster, cell, sum(came) AS came, sum(gone) AS gone, sum(lost) AS lost, sum(hit) AS hit
            FROM changes WHERE cell IS NOT NULL GROUP BY ALL)
        WINDOW w AS (PARTITION BY cluster ORDER BY cell)),
    heavy AS (
        SELECT cluster, cell, coalesce(cell > lag(cell) OVER w + {_WITHIN}, true) AS begins FROM counted
        WHERE lost > 0 AND hit >= {_LEAST} AND hit >= {_SHARE} * live - 1e-9
        WINDOW w AS (PARTITION BY cluster ORDER BY cell)),
    cores AS (
        SELECT cluster, storm, min(cell) AS core_begin, max(cell) + {_WITHIN} AS core_end
        FROM (SELECT *, sum(begins::INT) OVER (PARTITION BY cluster ORDER BY cell) AS storm FROM heavy)
        GROUP BY ALL),
    members AS (
        SELECT s.*, storm FROM (FROM steps WHERE lost_ms IS NOT NULL) s
        ASOF JOIN cores c ON s.cluster = c.cluster AND lost_ms >= core_begin WHERE lost_ms < core_end),
    storms AS (
        SELECT cluster, storm, min(lost_at) AS started_at, count(DISTINCT (client_id, connection)) AS clients,
            sum(attempts) AS attempts FROM members GROUP BY ALL),
    backs AS (
        SELECT m.cluster, m.storm, quantile_cont(epoch(back_at) - epoch(started_at), [0.5, 0.9, 0.99, 1.0])
            AS back FROM members m JOIN storms USING (cluster, storm) GROUP BY ALL),
    buckets AS (
        SELECT m.cluster, m.storm, floor((epoch(e.time) - epoch(started_at)) * 10) AS tenth,
            e.server_address, e.server_port, count(*) FILTER (e.type = '{_KIND}.attempt') AS attempts,
            count(*) FILTER (e.type = '{_KIND}.connected') AS connected, count(e.error_type) AS failures
        FROM members m JOIN storms USING (cluster, storm)
        JOIN events e USING (client_id, connection, outage)
        WHERE e.type IN ('{_KIND}.attempt', '{_KIND}.connected') GROUP BY ALL),
    peaks AS (
        SELECT cluster, storm, max(n) AS peak, max(c) AS setup_rate FROM (
            SELECT cluster, storm, floor(tenth / 10) AS second, sum(attempts) AS n, sum(connected) AS c
            FROM buckets GROUP BY ALL) GROUP BY ALL)
    SELECT * FROM storms JOIN backs USING (cluster, storm) JOIN peaks USING (cluster, storm)"""


def polars_storms(events: Any, episodes: Any) -> Any:
    import polars as pl  # noqa: PLC0415

    storm = ["cluster", "storm"]
    members = _polars_members_of_storms(episodes)
    storms = members.group_by(storm).agg(
        pl.col("lost_at").min().alias("started_at"),
        pl.struct("client_id", "connection").n_unique().alias("clients"),
        pl.col("attempts").sum(),
    )
    hit = members.drop("attempts").join(storms, on=storm)
    after = (pl.col("back_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    shares = {"back_50": 0.5, "back_90": 0.9, "back_99": 0.99, "back_100": 1.0}
    backs = hit.group_by(storm).agg(
        after.quantile(share, "linear").alias(name) for name, share in shares.items()
    )
    keys = ["client_id", "connection", "outage"]
    lines = events.filter(pl.col("type").is_in([f"{_KIND}.attempt", f"{_KIND}.connected"])).drop("cluster")
    tenth = ((pl.col("time") - pl.col("started_at")).dt.total_milliseconds() // 100).alias("tenth")
    buckets = (
        lines.join(hit.select(*keys, *storm, "started_at"), on=keys)
        .group_by(*storm, tenth, "server_address", "server_port")
        .agg(
            (pl.col("type") == f"{_KIND}.attempt").sum().alias("n"),
            (pl.col("type") == f"{_KIND}.connected").sum().alias("c"),
            pl.col("error_type").count().alias("failures"),
        )
    )
    seconds = buckets.group_by(*storm, (pl.col("tenth") // 10).alias("second")).agg(pl.col("n", "c").sum())
    peaks = seconds.group_by(storm).agg(
        pl.col("n").max().alias("peak"), pl.col("c").max().alias("setup_rate")
    )
    return storms.join(backs, on=storm).join(peaks, on=storm)


def _polars_members_of_storms(episodes: Any) -> Any:
    """Return the outages lost in a core, with the core's number in its cluster."""
    import polars as pl  # noqa: PLC0415

    connection = {"partition_by": ["client_id", "connection"], "order_by": "outage"}
    lost, outage = pl.col("lost_ms"), pl.col("outage")
    left = pl.coalesce("lost_at", "began_at").dt.epoch("ms")
    steps = (
        episodes.with_columns(
            pl.col("cluster").fill_null("?"),
            pl.col("lost_at").dt.epoch("ms").alias("lost_ms"),
            pl.col("back_at").dt.epoch("ms").alias("came_ms"),
            pl.when(outage > 1).then(left).alias("left_ms"),
            pl.when("closed").then(pl.col("last_at").dt.epoch("ms")).alias("closed_ms"),
        )
        .with_columns(
            ((outage > 1) & outage.shift(1).over(**connection).is_null()).alias("was_there"),
            lost.shift(1).over(**connection).alias("before_ms"),
        )
        .filter(pl.col("client_id").is_not_null())
    )
    zeros = [pl.lit(0, pl.Int64).alias(name) for name in ("came", "gone", "lost", "hit")]

    def change(cell: Any, **counts: Any) -> Any:
        given = [
            pl.lit(count).cast(pl.Int64).alias(name) if isinstance(count, int) else count.alias(name)
            for name, count in counts.items()
        ]
        known = steps.select("cluster", cell.cast(pl.Int64).alias("cell"), *zeros, lost.alias("_lost_ms"))
        return known.filter(pl.col("cell").is_not_null()).with_columns(*given).drop("_lost_ms")

    closed = pl.when(pl.col("came_ms") <= pl.col("closed_ms")).then(pl.col("closed_ms"))
    entered = pl.max_horizontal(pl.col("before_ms") + 1, lost - (_WITHIN - 1))
    changes = pl.concat(
        [
            change(pl.col("came_ms"), came=1),
            change(pl.when("was_there").then(pl.lit(-1)), came=1),
            change(pl.col("left_ms"), gone=1, lost=pl.col("_lost_ms").is_not_null().cast(pl.Int64)),
            change(closed, gone=1),
            change(pl.when(lost.is_not_null()).then(entered), hit=1),
            change(lost + 1, hit=-1),
        ]
    )
    cells = changes.group_by("cluster", "cell").agg(pl.col("came", "gone", "lost", "hit").sum())
    so_far = {"partition_by": "cluster", "order_by": "cell"}
    counted = cells.with_columns(
        ((pl.col("came") - pl.col("gone")).cum_sum().over(**so_far) + pl.col("gone")).alias("live"),
        pl.col("hit").cum_sum().over(**so_far),
    )
    heavy = counted.filter(
        (pl.col("lost") > 0) & (pl.col("hit") >= _LEAST) & (pl.col("hit") >= _SHARE * pl.col("live") - 1e-9)
    )
    apart = (pl.col("cell") > pl.col("cell").shift(1).over(**so_far) + _WITHIN).fill_null(value=True)
    cores = (
        heavy.with_columns(apart.alias("begins"))
        .with_columns(pl.col("begins").cum_sum().over(**so_far).alias("storm"))
        .group_by("cluster", "storm")
        .agg(pl.col("cell").min().alias("begin"), (pl.col("cell").max() + _WITHIN).alias("end"))
        .sort("begin")
    )
    in_order = steps.filter(lost.is_not_null()).sort("lost_ms")
    near = in_order.join_asof(
        cores, left_on="lost_ms", right_on="begin", by="cluster", check_sortedness=False
    )
    return near.filter(lost < pl.col("end"))
