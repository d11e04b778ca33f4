"""Find storms: many connections of a cluster that are lost within seconds.

Rules
-----
1. A connection is *live* if it has connected, and was not lost or closed since.  One known only by its loss
   was live from the start; one whose return was not recorded is live from its last line of that outage.
2. A window is ``WITHIN`` seconds that begin with a loss.  It is heavy if at least ``LEAST`` connections, and
   at least ``SHARE`` of those live at its start, are lost in it; each counts once.
3. Heavy windows that overlap or touch are one *core*.  The storm is every outage lost in a core.  An outage
   whose line ``lost`` is missing is in no storm.
4. A storm starts with its first loss that is no outlier, at most ``FENCE`` quartile distances before the
   first quartile of its losses [1].  So a client whose clock is slow does not move the start.

Times are whole milliseconds here.  A first pass counts losses in whole buckets of ``WITHIN`` seconds, and
keeps the few in which a heavy window may begin or end.  Only the milliseconds with losses in these are
sorted.  So single losses cost nothing, and a storm has no more rows than milliseconds.

[1] J. W. Tukey, "Exploratory Data Analysis", 1977: the inner fences.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.tables.episodes import CONNECTION

WITHIN = 5.0  # s; time until all clients have noticed a dead peer
LEAST = 5  # connections
SHARE = 0.1  # of the live connections
FENCE = 1.5  # quartile distances [1]

_EARLIEST = -(2**50)  # ms, before all lines
_ROUNDING = 1e-9  # in floating point, a tenth of 30 is a little more than 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The conditions that make losses a storm.

    :param within: length of a window, in seconds.
    :param least: fewest connections lost in the window.
    :param share: smallest share of the live connections lost in the window.
    """

    within: float = WITHIN
    least: int = LEAST
    share: float = SHARE

    @property
    def length(self) -> int:
        """Length of a window, in milliseconds."""
        return int(self.within * 1000)

    def is_heavy(self, lost: Column, live: Column) -> Column:
        """Test if a window with so many losses is heavy."""
        return (lost >= self.least) & (lost >= self.share * live - _ROUNDING)


USUAL = Definition()


def losses(episodes: DataFrame, definition: Definition = USUAL) -> DataFrame:
    """Find all storms, and return their outages, checkpointed.

    In addition to columns of ``episodes`` there are ``storm`` (a number), ``started_at`` and ``live`` of the
    storm.  ``zero`` is the origin of the outage's times: the storm's start, or the outage's own start if its
    clock is slow.  ``is_last`` marks its connection's last outage in the storm.

    :param episodes: from ``episodes.classified``.
    """
    steps = _steps(episodes).localCheckpoint()
    cores = _cores(_heavy(steps, _candidates(steps, definition), definition), definition).localCheckpoint()
    hit = _hit(steps, cores, definition).localCheckpoint()
    zero = sf.least("lost_at", "started_at").alias("zero")
    return hit.join(sf.broadcast(_started(hit)), "storm").select(*hit.columns, "started_at", zero)


# -- changes of each connection -------------------------------------------------------------------


def _steps(episodes: DataFrame) -> DataFrame:
    """Return the episodes, with the times at which their connection was established, and lost or closed."""
    whole = Window.partitionBy(*CONNECTION)
    order = whole.orderBy("outage")
    cluster = sf.coalesce("cluster", sf.max("cluster").over(whole))
    said = sf.when(sf.col("said_connected") > 0, sf.col("first_line_at"))
    later = sf.when(sf.lead("outage").over(order).isNotNull(), sf.col("last_event_at"))
    came_at = sf.coalesce("back_at", said, later)
    left_at = sf.when(sf.col("outage") > 1, sf.coalesce("lost_at", "first_line_at"))
    closed_at = sf.when(came_at <= sf.col("closed_at"), sf.col("closed_at"))
    return episodes.select(
        cluster.alias("cluster"),
        sf.xxhash64(cluster).alias("place"),
        *(*CONNECTION, "outage", "lost_at", "downtime", "episode_result", "attempts"),
        *("generation_before", "generation_after"),
        sf.unix_millis(came_at).alias("came_ms"),
        sf.unix_millis(left_at).alias("left_ms"),
        sf.unix_millis(closed_at).alias("closed_ms"),
        ((sf.col("outage") > 1) & sf.lag("outage").over(order).isNull()).alias("was_there"),
        sf.unix_millis("lost_at").alias("lost_ms"),
        sf.unix_millis(sf.lag("lost_at").over(order)).alias("before_ms"),
        sf.unix_millis(sf.lead("lost_at").over(order)).alias("next_ms"),
    )


def _change(cell: Column, came: int = 0, gone: int = 0, lost: Column | None = None) -> Column:
    counts = {"came": sf.lit(came), "gone": sf.lit(gone), "lost": sf.lit(0) if lost is None else lost}
    return sf.struct(cell.alias("cell"), *(count.alias(name) for name, count in counts.items()))


def _changes(steps: DataFrame, definition: Definition, *more: Column) -> DataFrame:
    """Return ``place``, ``bucket``, ``cell`` (ms), and how many connections came, left, and were lost.

    ``first`` is the first millisecond whose window has this loss, but not the connection's previous one.
    """
    lost = sf.col("lost_ms").isNotNull().cast("int")
    every = sf.array(
        _change(sf.col("came_ms"), came=1),
        _change(sf.col("left_ms"), gone=1, lost=lost),
        _change(sf.col("closed_ms"), gone=1),
        *more,
    )
    first = sf.greatest(sf.col("before_ms") + 1, sf.col("lost_ms") - definition.length + 1)
    rows = steps.select("place", first.alias("first"), sf.inline(every)).where("cell IS NOT NULL")
    return rows.withColumn("bucket", _bucket("cell", definition))


def _bucket(cell: str, definition: Definition) -> Column:
    return sf.floor(sf.col(cell) / definition.length)


# -- whole buckets --------------------------------------------------------------------------------


def _candidates(steps: DataFrame, definition: Definition) -> DataFrame:
    """Return the buckets in which a heavy window may begin or end; ``base``: live connections before it."""
    before = sf.when(sf.col("was_there"), sf.lit(_EARLIEST))
    buckets = (
        _changes(steps, definition, _change(before, came=1))
        .groupBy("place", "bucket")
        .agg(*(sf.sum(name).alias(name) for name in ("came", "gone", "lost")))
    )
    order = Window.partitionBy("place").orderBy("bucket")
    so_far = sf.sum(sf.col("came") - sf.col("gone")).over(order)
    counted = buckets.withColumn("base", so_far - sf.col("came") + sf.col("gone"))
    soon = sf.sum("lost").over(order.rangeBetween(0, 1))
    may_begin = definition.is_heavy(soon, sf.col("base") - sf.col("gone"))
    begins = counted.withColumn("begins", may_begin)
    near = sf.max("begins").over(order.rangeBetween(-1, 0))
    return begins.withColumn("near", near).where("near").select("place", "bucket", "base").localCheckpoint()


# -- milliseconds ---------------------------------------------------------------------------------


def _heavy(steps: DataFrame, candidates: DataFrame, definition: Definition) -> DataFrame:
    """Find the milliseconds in which a heavy window begins: ``place``, ``cell`` and ``live``."""
    near = _changes(steps, definition).join(candidates, ["place", "bucket"])
    enters = sf.when(sf.col("lost") > 0, sf.struct(*_counted("first", hit=1)))
    leaves = sf.when(sf.col("lost") > 0, sf.struct(*_counted(sf.col("cell") + 1, hit=-1)))
    itself = sf.struct("cell", "came", "gone", "lost", sf.lit(0).alias("hit"), "base")
    every = sf.array_compact(sf.array(itself, enters, leaves))
    cells = (
        near.select("place", sf.inline(every))
        .groupBy("place", _bucket("cell", definition).alias("bucket"), "cell")
        .agg(
            *(sf.sum(name).alias(name) for name in ("came", "gone", "lost", "hit")),
            sf.max("base").alias("base"),
        )
    )
    order = Window.partitionBy("place").orderBy("cell")
    own = Window.partitionBy("place", "bucket").orderBy("cell")
    live = sf.col("base") + sf.sum(sf.col("came") - sf.col("gone")).over(own) + sf.col("gone")
    counted = cells.withColumn("hit", sf.sum("hit").over(order)).withColumn("live", live)
    heavy = (sf.col("lost") > 0) & definition.is_heavy(sf.col("hit"), sf.col("live"))
    return counted.where(heavy).select("place", "cell", "live")


def _counted(cell: str | Column, *, hit: int) -> list[Column]:
    """Return the columns of a row that only changes the number of losses in a window."""
    at = sf.col(cell) if isinstance(cell, str) else cell
    zeros = (sf.lit(0).alias(name) for name in ("came", "gone", "lost"))
    return [at.alias("cell"), *zeros, sf.lit(hit).alias("hit"), sf.lit(None).cast("bigint").alias("base")]


def _cores(heavy: DataFrame, definition: Definition) -> DataFrame:
    """Merge heavy windows to cores: ``place``, ``begin`` and ``end`` (ms) and ``live``."""
    order = Window.partitionBy("place").orderBy("cell")
    apart = sf.col("cell") > sf.lag("cell").over(order) + definition.length
    begins = heavy.withColumn("begins", sf.coalesce(apart, sf.lit(True)).cast("int"))
    numbered = begins.withColumn("number", sf.sum("begins").over(order))
    return numbered.groupBy("place", "number").agg(
        sf.min("cell").alias("begin"),
        (sf.max("cell") + definition.length).alias("end"),
        sf.min_by("live", "cell").alias("live"),
    )


def _hit(steps: DataFrame, cores: DataFrame, definition: Definition) -> DataFrame:
    """Return the outages lost in a core."""
    last = _bucket("end", definition)  # one bucket too many does no harm
    buckets = sf.explode(sf.sequence(_bucket("begin", definition), last))
    found = cores.select(
        *("place", "begin", "end", "live"),
        sf.xxhash64("place", "begin").alias("storm"),
        buckets.alias("bucket"),
    )
    lost = steps.where("lost_ms IS NOT NULL").withColumn("bucket", _bucket("lost_ms", definition))
    both = lost.join(found, ["place", "bucket"])
    inside = (sf.col("lost_ms") >= sf.col("begin")) & (sf.col("lost_ms") < sf.col("end"))
    is_last = sf.coalesce(sf.col("next_ms") >= sf.col("end"), sf.lit(True)).alias("is_last")
    inner = [name for name in steps.columns if name.endswith("_ms")]
    names = [name for name in steps.columns if name not in ("place", "was_there", *inner)]
    return both.where(inside).select("storm", "live", *names, is_last)


def _started(hit: DataFrame) -> DataFrame:
    """Return the start of each storm without outliers: ``storm`` and ``started_at``."""
    at = sf.unix_millis("lost_at")
    quartiles = hit.groupBy("storm").agg(sf.percentile(at, [0.25, 0.75]).alias("quartiles"))
    low, high = sf.col("quartiles")[0], sf.col("quartiles")[1]
    fence = quartiles.select("storm", (low - FENCE * (high - low)).alias("fence"))
    inlier = sf.when(at >= sf.col("fence"), sf.col("lost_at"))
    return hit.join(sf.broadcast(fence), "storm").groupBy("storm").agg(sf.min(inlier).alias("started_at"))
