"""Correct the times of lines: ``t``, which is independent of wrong or stepping wall clocks.

Rules
-----
1. The offset of a process (``source``) is the median of ``time - monotonic``; ``t = monotonic + offset``.
2. If three consecutive lines agree on another offset, the wall clock was set, and a new piece with an offset
   of its own begins.  One or two lines with a strange time change nothing.  Offsets agree within
   ``TOLERANCE``.
3. A line without a monotonic clock, or without a source, has its ``time`` as ``t``.  If the ingest removed
   an implausible time, the line gets its ``t`` from other lines of the process.  A line that has neither is
   dropped.
4. ``as_of`` is the time of the newest lines, but not of a single clock: the k-th largest of the
   processes' last ``t``, with k = max(2, 1 % of the processes).  The times of files are ignored: a copied
   archive is new.

Nearly all processes have one piece; a small aggregation finds them.  Only lines of the other processes are
sorted, three numbers each.  The pieces are a small separate table: a store of lines needs no ``t``.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from haclient.analysis.io.session import single
from haclient.analysis.tables.dictionary import name_hash
from haclient.analysis.tables.rollup import checkpoint, micros

TOLERANCE = 0.25  # s; NTP steps a clock that is off by more than 0.128 s, and slews both clocks below that
LONGEST = 1e10  # s; no machine is up for longer, and sums of microseconds stay in 64 bits
BROADCAST = 500_000  # most pieces to broadcast to each task: about 30 MB
SHARE, FEWEST = 0.01, 2  # of the processes may be ahead of ``as_of``

AHEAD = 60.0  # s; the interval of the `alive` lines, so every live process has a line within it

_ALWAYS = 2**62  # microseconds
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def placed(events: DataFrame) -> DataFrame:
    """Add ``t``, a timestamp, to the events.

    :param events: distinct lines, preferably from a store: three of their columns are read once more.
    """
    found, few = pieces(events)
    lines = events.withColumns({"_process": name_hash("source"), "_monotonic": _monotonic()})
    same = (sf.col("_process") == sf.col("process")) & (sf.col("_monotonic") >= sf.col("begin"))
    same &= sf.col("_monotonic") < sf.col("end")
    joined = lines.join(sf.broadcast(found) if few else found, same, "left")
    t = sf.coalesce(sf.timestamp_micros(sf.col("_monotonic") + sf.col("offset")), "time")
    return joined.withColumn("t", t).where("t IS NOT NULL").select(*events.columns, "t")


def pieces(events: DataFrame) -> tuple[DataFrame, bool]:
    """Divide the lines of each process into pieces of equal offset.

    :return: the pieces, and whether they are few enough to broadcast.  Columns: ``process`` (hash), ``begin``
        and ``end`` by its monotonic clock, ``offset``; in microseconds.
    """
    lines = _lines(events)
    # Spark sorts the input of percentiles, but counts numbers in a hash table: most offsets are equal.
    counted = lines.groupBy("process", "offset").agg(sf.count("*").alias("lines"))
    width = sf.max("offset") - sf.min("offset")
    spread = counted.groupBy("process").agg(_median(sf.col("lines")).alias("offset"), width.alias("spread"))
    # all offsets of the process agree, so no line begins a new piece
    steady = sf.col("spread") <= _TOLERANCE
    spread, found = checkpoint(spread, processes=sf.count("*"), others=sf.count_if(~steady))
    whole = spread.where(steady).select(
        "process", sf.lit(-_ALWAYS).alias("begin"), sf.lit(_ALWAYS).alias("end"), "offset"
    )
    if not found["others"]:
        return whole, found["processes"] <= BROADCAST
    others = spread.where(~steady).select("process")
    if found["others"] <= BROADCAST:
        others = sf.broadcast(others)
    stepping = _stepping(lines.join(others, "process", "left_semi"))
    made, found = checkpoint(single(whole.unionByName(stepping)), pieces=sf.count("*"))
    return made, found["pieces"] <= BROADCAST


_TOLERANCE = int(TOLERANCE * 1e6)


def _monotonic() -> Column:
    return sf.when(sf.abs("monotonic") < LONGEST, micros("monotonic"))


def _lines(events: DataFrame) -> DataFrame:
    """Return the offset of each line's wall clock from its monotonic clock."""
    lines = events.select(
        name_hash("source").alias("process"),
        _monotonic().alias("monotonic"),
        sf.unix_micros("time").alias("time"),
    )
    known = lines.where("process IS NOT NULL AND monotonic IS NOT NULL AND time IS NOT NULL")
    return known.select("process", "monotonic", (sf.col("time") - sf.col("monotonic")).alias("offset"))


def _median(lines: Column | int = 1) -> Column:
    return sf.rint(sf.percentile("offset", sf.lit(0.5), lines)).cast("bigint")


def _stepping(lines: DataFrame) -> DataFrame:
    """Return the pieces of processes whose clock may have been set."""
    order = Window.partitionBy("process").orderBy("monotonic", "offset")
    three = [sf.col("offset"), sf.lead("offset", 1).over(order), sf.lead("offset", 2).over(order)]
    low, high = sf.least(*three), sf.greatest(*three)
    middle = three[0] + three[1] + three[2] - low - high  # null for the last two
    agreed = lines.select("*", sf.when(high - low <= _TOLERANCE, middle).alias("agreed"))
    before = sf.last("agreed", ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = sf.coalesce((sf.abs(sf.col("agreed") - before) > _TOLERANCE).cast("int"), sf.lit(0))
    numbered = agreed.withColumn("begins", begins).withColumn("piece", sf.sum("begins").over(order))
    found = numbered.groupBy("process", "piece").agg(
        sf.min("monotonic").alias("first"), _median().alias("offset")
    )
    ordered = Window.partitionBy("process").orderBy("piece")
    begin = sf.when(sf.col("piece") == 0, -_ALWAYS).otherwise(sf.col("first"))
    end = sf.coalesce(sf.lead("first").over(ordered), sf.lit(_ALWAYS))
    return found.select("process", begin.alias("begin"), end.alias("end"), "offset")


def microseconds(moment: datetime) -> int:
    """Convert to microseconds since the epoch."""
    return (moment - _ZERO) // timedelta(microseconds=1)


def lives(events: DataFrame) -> DataFrame:
    """Return each process's ``last`` time, and its ``lowest`` and ``highest`` offset, in microseconds.

    :param events: from ``placed``.
    """
    t = sf.unix_micros("t")
    offset = t - _monotonic()
    return (
        events.groupBy(name_hash("source").alias("process"))
        .agg(sf.max(t).alias("last"), sf.min(offset).alias("lowest"), sf.max(offset).alias("highest"))
        .localCheckpoint()
    )


def as_of(lives: DataFrame) -> int | None:
    """Return the reference time of the analysis, in microseconds since the epoch; ``None`` without lines.

    :param lives: from the function ``lives``.
    """
    processes = lives.count()
    rank = min(max(FEWEST, math.ceil(SHARE * processes)), processes)
    row = lives.orderBy(sf.desc("last")).limit(rank).agg(sf.min("last").alias("last")).first()
    assert row is not None
    moment: int | None = row["last"]
    return moment


def wrong(lives: DataFrame, as_of: int | None) -> DataFrame:
    """Count processes whose clocks were ``set`` or are ``ahead``, one row for each.

    Columns: ``how`` (set or ahead), ``many`` (processes), ``by`` (at most, in s), ``last`` (time of the last
    such line).  Lines without a source have no process.

    :param lives: from the function ``lives``.
    :param as_of: from the function ``as_of``.
    """
    known = lives.where("process IS NOT NULL")
    step = (sf.col("highest") - sf.col("lowest")) / 1e6
    ahead = (sf.col("last") - sf.lit(as_of)) / 1e6
    cases = sf.array(
        sf.struct(sf.lit("set").alias("how"), (step > TOLERANCE).alias("holds"), step.alias("by")),
        sf.struct(sf.lit("ahead").alias("how"), (ahead > AHEAD).alias("holds"), ahead.alias("by")),
    )
    rows = known.select("last", sf.inline(cases)).where("holds")
    return rows.groupBy("how").agg(
        sf.count("*").alias("many"),
        sf.max("by").alias("by"),
        sf.timestamp_micros(sf.max("last")).alias("last"),
    )
