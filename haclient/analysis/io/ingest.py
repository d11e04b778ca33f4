"""Read telemetry, and store it as Parquet.

Rules
-----
1. A line that is not JSON, or not of the schema, goes to ``quarantine`` with its file, its text and the
   error.  It never stops the job.  A truncated gzip file is read up to the cut, and has a row without text
   in ``quarantine``.  So has a file that disappears before it is read, because a live folder rotates its
   files.  Unknown keys are ignored, missing ones are null.
2. An ``event_id`` of a ``source`` counts once, because lines are written at least once.  If copies differ,
   the earliest is kept, whatever the order of the files.  A line without a source gets its
   ``instance`` as source.
3. ``store`` marks its ``event_id`` column as unique in each source, in the metadata of the Parquet schema.
   Such a store is not deduplicated again, which saves a shuffle of every line.
4. A time before 2000, or more than a day after its reading, is removed from its line.  The line also
   goes to ``quarantine``; ``tables.clock`` can place it by other lines of its process.
5. Former names of keys, columns and types are read as today's (``former``).
6. Each line is read and parsed once: parsed lines stay on disk until events and quarantine are stored.
7. For a limited period, lines are read with ``MARGIN`` around it, by the dates of a store and by ``time``,
   because ``tables.clock`` corrects times later.
8. Paths that end in ``.parquet`` or are a store of this module hold Parquet, all others JSON lines.
   Files may have a compression that Spark recognises by their name (``.gz``).

Columns: ``Key.column`` of every key in ``haclient.telemetry.schema``, ``time`` as timestamp (null if it is
not plausible), and ``date``, the day of ``time`` in UTC.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession, Window
from pyspark.sql import functions as sf

from haclient.analysis.io import former
from haclient.analysis.io.session import computed_once, is_single, literal, single
from haclient.telemetry import schema
from haclient.telemetry.schema import DATA, ENVELOPE, FORMER_KEYS, KEYS, Key, Reason, Type

UNIQUE = {"haclient.unique": True}
IDENTITY = ("source", "event_id")
ORDER = ("time", "monotonic", "sequence", "type")
"""The sort order that selects one of several copies; copies equal in all of it are the same line."""
_OLDEST = datetime(2000, 1, 1, tzinfo=UTC)  # an earlier time means a clock that was never set
_VERSIONS = f"{schema.DATASCHEMA.rpartition(':')[0]}:"
_SOURCE = "/haclient/"  # prefix of an instance's id in the name of its process
_WHOLE_NUMBER = r'(":\s*-?\d+)\.0+(?=\s*[,}])'
_RFC_3339 = (  # 5.6, with its note on the space; a wrong clock may write a year of more digits
    r"^[+-]?\d{4,6}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$"
)
_TRAILER = 4  # bytes
_LARGEST = 2**31 - 1  # bytes; larger files cannot be one value in Spark
BROKEN = "_broken"  # column in which from_json keeps the text of a line that it cannot parse


MARGIN = timedelta(days=1)
"""Tolerance for wrong wall clocks when lines of a limited period are read."""

_LISTED = "file: string, trailer_size: bigint, blank: boolean"


@dataclass(frozen=True, slots=True)
class Period:
    """A limited period of time.

    :param since: start of the period; ``None`` for no start.
    :param until: end of the period, which lines must precede; ``None`` for no end.
    """

    since: datetime | None = None
    until: datetime | None = None

    def near(self, name: str, kind: str) -> Column:
        """Test if the column, a time or a date, is within ``MARGIN`` of the period, or null."""
        met = sf.lit(True)
        if self.since is not None:
            met &= sf.col(name) >= sf.lit(self.since - MARGIN).cast(kind)
        if self.until is not None:
            met &= sf.col(name) <= sf.lit(self.until + MARGIN).cast(kind)
        return met | sf.col(name).isNull()


ALWAYS = Period()


@dataclass(frozen=True, slots=True)
class Ingested:
    """Lines that were read.

    :param events: one row per line, without copies.
    :param quarantine: lines with an error, some of which are also events: ``file``, ``line``, ``error``.
    :param parsed: the cached source of both; the caller unpersists it after storing them.
    """

    events: DataFrame
    quarantine: DataFrame
    parsed: DataFrame | None = None


def read(spark: SparkSession, paths: str | Iterable[str], period: Period = ALWAYS) -> Ingested:
    """Read the lines under ``paths``: files, folders or patterns; all JSON or all Parquet.

    A mixture of both is not supported.

    :param period: limits the events, but not the quarantine.
    """
    found = [paths] if isinstance(paths, str) else list(paths)
    if _is_parquet(spark, found):
        events, one_store = read_parquet(spark, found, period), len(found) == 1
        # The check for copies takes a tenth of the time of sorting every column.
        if (one_store and _is_distinct(events)) or is_single(spark) or has_copies(events):
            events = distinct(events, single=one_store)
        return Ingested(events, implausible_times(spark, found))
    text = _lines_of(spark, "*").text(found)
    lines = read_lines(text, period)
    assert lines.parsed is not None
    files = listed(spark, text.inputFiles())
    if files is None:  # not on this machine
        files = _trailers(_lines_of(spark, "*.gz").format("binaryFile").load(found))
    return replace(lines, quarantine=single(lines.quarantine.unionByName(unread(files, lines.parsed))))


def _lines_of(spark: SparkSession, pattern: str) -> DataFrameReader:
    """Configure a reader that skips missing files and the damaged part of corrupt ones."""
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", pattern)
    return reader.option("ignoreCorruptFiles", "true").option("ignoreMissingFiles", "true")


def read_lines(text: DataFrame, period: Period = ALWAYS) -> Ingested:
    """Read lines of JSON from the files of a job, or from one batch of a stream.

    Copies in other batches are not removed.  Files that lack lines are not in the quarantine: see ``unread``.

    :param text: from ``spark.read.text``, with the column ``value``.
    """
    parsed = computed_once(flat(parse(text)), StorageLevel.DISK_ONLY)
    return Ingested(
        distinct(events_of(parsed).where(period.near("time", "timestamp"))), quarantine_of(parsed), parsed
    )


def listed(spark: SparkSession, files: Sequence[str]) -> DataFrame | None:
    """Inspect files on this machine, so that ``unread`` can find files that lack lines.

    Columns: ``file``, ``trailer_size`` (from the end of a gzip file, else null), ``blank`` (file is empty).

    :return: ``None`` if some are not on this machine.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect") or not all(
        urlsplit(file).scheme == "file" for file in files
    ):
        return None
    entries = [
        {"file": file.replace("file:///", "file:/", 1)} | _on_disk(Path(unquote(urlsplit(file).path)))
        for file in files  # lines have the name with one slash
    ]
    return literal(spark, entries, _LISTED)


def _on_disk(path: Path) -> dict[str, int]:
    """Return the size in the trailer of a gzip file, and whether the file is empty."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if path.suffix != ".gz" or size < _TRAILER:
                return {"blank": not size}
            file.seek(-_TRAILER, os.SEEK_END)
            return {"blank": False, "trailer_size": int.from_bytes(file.read(_TRAILER), "little")}
    except OSError:  # missing, or not readable
        return {"blank": False}


def _trailers(packed: DataFrame) -> DataFrame:
    """Return the same columns for gzip files from Spark's ``binaryFile``, which reads them whole."""
    tail = sf.hex(sf.expr(f"substring(content, -{_TRAILER}, {_TRAILER})"))
    bytes_ = [sf.substring(tail, start, 2) for start in (7, 5, 3, 1)]
    return packed.where(sf.col("length") < _LARGEST).select(
        sf.col("_metadata.file_path").alias("file"),
        sf.conv(sf.concat(*bytes_), 16, 10).cast("bigint").alias("trailer_size"),
        sf.lit(False).alias("blank"),
    )


def unread(files: DataFrame, parsed: DataFrame) -> DataFrame:
    """Return a row of ``quarantine`` for each file that lacks lines.

    The last four bytes of a gzip file are the size of its content [1].  In a truncated file they are
    arbitrary, and hardly ever less than the size of the readable content.

    [1] RFC 1952, 2.3.1: ISIZE.

    :param files: from ``listed``.
    :param parsed: from ``flat``.
    """
    read_ = parsed.groupBy("file").agg(sf.sum("size").alias("size"))
    size, trailer = sf.coalesce("size", sf.lit(0)), sf.col("trailer_size")
    packed = sf.col("file").endswith(".gz")
    error = sf.when(packed & (trailer.isNull() | (size < trailer)), Reason.CUT_SHORT.value).when(
        ~packed & sf.col("size").isNull() & ~sf.col("blank"), Reason.GONE.value
    )
    rows = files.join(read_, "file", "left").withColumn("error", error).where("error IS NOT NULL")
    return rows.select("file", sf.lit(None).cast("string").alias("line"), "error")


def parse(text: DataFrame) -> DataFrame:
    """Parse lines into ``file``, ``value``, ``line`` (a struct with ``BROKEN``), ``stamp`` and ``time``.

    ``stamp`` is the line's time; ``time`` is the same, or null if it is not plausible.

    The struct goes through an array of one.  Otherwise Spark would inline the expression behind the column,
    and parse each line again for every use.
    """
    lines = text.select(sf.col("_metadata.file_path").alias("file"), "value")
    mended = sf.transform(sf.array(_from_json(sf.col("value"))), _with_whole_numbers)
    once = sf.transform(mended, lambda one: sf.struct(one.alias("line"), _stamp(one["time"])))
    stamped = lines.select("file", "value", sf.inline(once))
    return stamped.withColumn("time", sf.when(_plausible("stamp"), sf.col("stamp")))


def _from_json(text: Column) -> Column:
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": BROKEN,
        "allowNonNumericNumbers": "false",
        "allowSingleQuotes": "false",
    }
    return sf.from_json(text, f"{schema.ddl()}, {BROKEN} STRING", options)


def _with_whole_numbers(line: Column) -> Column:
    """Parse a broken line again with ``5672.0`` read as ``5672``, which are equal in JSON."""
    text = sf.regexp_replace("value", _WHOLE_NUMBER, "$1")
    return sf.when(line[BROKEN].isNotNull(), _from_json(text)).otherwise(line)


def _stamp(text: Column) -> Column:
    """Parse a time.  Spark accepts capitals only, and no leap second."""
    second = sf.when(text.contains(":60"), sf.regexp_replace(text, r":60(?=[.Zz+-])", ":59")).otherwise(text)
    capitals = sf.translate(second, "tz", "TZ")  # `upper` loads the tables of all alphabets
    return sf.when(text.rlike(_RFC_3339), capitals.try_cast("timestamp")).alias("stamp")


def _plausible(time: str) -> Column:
    return sf.col(time).between(sf.lit(_OLDEST), sf.current_timestamp() + sf.expr("INTERVAL 1 DAY"))


def flat(parsed: DataFrame) -> DataFrame:
    """Flatten parsed lines to the columns of an event, and ``file``, ``size``, ``line`` and ``error``.

    ``event_id`` is null for a bad line; ``line`` holds the text of lines with an ``error``.  ``size`` is the
    line's length in bytes, plus two for its end.

    :param parsed: from ``parse``.
    """
    blank = sf.trim("value") == ""
    bad = blank | _error().isNotNull()
    misplaced = sf.when(sf.col("time").isNull(), Reason.IMPLAUSIBLE.value)
    error = sf.when(~blank, sf.coalesce(_error(), misplaced))
    outer = {
        key.column: former.current_kind(sf.col("line.type"))
        if key.name == "type"
        else sf.col(f"line.{key.name}")
        for key in ENVELOPE
        if key.type is not Type.TIMESTAMP
    }
    known = outer | {key.column: _value(key) for key in DATA} | {"time": sf.col("time")}
    known["source"] = _source(known["source"], known["instance"])
    known["event_id"] = sf.when(~bad, known["event_id"])
    return parsed.select(
        *(known[key.column].alias(key.column) for key in KEYS),
        sf.to_date("time").alias("date"),
        "file",
        (sf.octet_length("value") + 2).alias("size"),  # with a line end of up to two bytes
        sf.when(error.isNotNull(), sf.col("value")).alias("line"),
        error.alias("error"),
    )


def events_of(parsed: DataFrame) -> DataFrame:
    """Return the events among parsed lines, copies included.

    :param parsed: from ``flat``.
    """
    return parsed.where("event_id IS NOT NULL").select(*(key.column for key in KEYS), "date")


def _sourced(rows: DataFrame) -> DataFrame:
    """Fill in missing sources where possible, so that all copies of a line have the same."""
    return rows.withColumn("source", _source(sf.col("source"), sf.col("instance")))


def _source(source: Column, instance: Column) -> Column:
    return sf.coalesce(source, sf.concat(sf.lit(_SOURCE), instance))


def _value(key: Key) -> Column:
    """Return the value of a key in ``data``, under its current or its former name."""
    value = sf.col(f"line.data.`{key.name}`")
    if key.name in FORMER_KEYS:
        return sf.coalesce(value, sf.col(f"line.data.`{FORMER_KEYS[key.name]}`"))
    return value


def quarantine_of(parsed: DataFrame) -> DataFrame:
    """Return the parsed lines with an error, which include events without a plausible time.

    :param parsed: from ``flat``.
    """
    return parsed.where("error IS NOT NULL").select("file", "line", "error")


def read_parquet(spark: SparkSession, paths: Sequence[str], period: Period = ALWAYS) -> DataFrame:
    """Read Parquet with the columns of the schema; missing columns are null.

    Copies stay.  Times that are not plausible become null.
    """
    frames = (_of_period(spark.read.parquet(path), period) for path in paths)
    rows = reduce(DataFrame.unionByName, (_complete(former.current(frame)) for frame in frames))
    return (
        _sourced(rows)
        .withColumn("time", sf.when(_plausible("time"), sf.col("time")))
        .withColumn("date", sf.to_date("time"))
    )


def _of_period(stored: DataFrame, period: Period) -> DataFrame:
    """Filter by period, so that Spark can skip files and parts of files."""
    if period == ALWAYS or "time" not in stored.columns:
        return stored
    if stored.schema["event_id"].metadata == UNIQUE:
        stored = stored.where(period.near("date", "date"))
    return stored.where(period.near("time", "timestamp"))


def implausible_times(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return rows of Parquet whose time is not plausible, as rows of ``quarantine``."""
    made = [_nothing(spark)]
    for frame in map(spark.read.parquet, paths):
        if "time" in frame.columns:
            text = sf.to_json(sf.struct(*frame.columns)).alias("line")
            file = sf.col("_metadata.file_path").alias("file")
            made.append(
                frame.where(~_plausible("time")).select(
                    file, text, sf.lit(Reason.IMPLAUSIBLE.value).alias("error")
                )
            )
    return reduce(DataFrame.unionByName, made)


def distinct(events: DataFrame, *, single: bool = False) -> DataFrame:
    """Keep one row per id and source.

    :param single: whether all rows are from one folder; if it is a store, they are distinct already.
    """
    if single and _is_distinct(events):
        return events
    copies = Window.partitionBy(*IDENTITY).orderBy(*(sf.asc_nulls_last(name) for name in ORDER))
    return events.withColumn("_copy", sf.row_number().over(copies)).where("_copy = 1").drop("_copy")


def _is_distinct(events: DataFrame) -> bool:
    return bool(events.schema["event_id"].metadata == UNIQUE)


def has_copies(events: DataFrame) -> bool:
    """Report whether an id of a source seems to occur twice.

    Hashes are compared, which is fast.  If two different ids have the same hash, the answer is also True.
    """
    identity = sf.xxhash64(*IDENTITY).alias("identity")
    counted = events.groupBy(identity).agg(sf.count("*").alias("lines"))
    return not counted.where("lines > 1").isEmpty()


def store(events: DataFrame, path: str, *, mode: str = "errorifexists") -> None:
    """Write distinct ``events`` as Parquet, a folder for each date.

    Spark chooses the number of files per date by size, and writes one for a small date: many small files
    take longer to open than to read.
    """
    unique = sf.col("event_id").alias("event_id", metadata=UNIQUE)
    others = [sf.col(name) for name in events.columns if name != "event_id"]
    rows = by_date(events.select(unique, *others))
    rows.write.mode(mode).partitionBy("date").parquet(path)


def by_date(rows: DataFrame) -> DataFrame:
    """Partition the rows by date, into as few partitions as their size requires."""
    if rows.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true":
        return rows.hint("rebalance", "date")
    return rows.repartition("date")  # rebalancing needs adaptive plans


def _error() -> Column:
    """Return the error of a line that is not an event; null for an event."""
    missing = sf.col("line.id").isNull() | sf.col("line.type").isNull()
    broken, version = sf.col(f"line.{BROKEN}").isNotNull(), sf.col("line.dataschema")
    return (
        sf.when((broken & missing) | _has_more(sf.col("value")), Reason.NOT_JSON.value)
        .when(broken, Reason.OTHER_TYPE.value)
        .when(missing, Reason.NO_ID.value)
        .when(sf.col("stamp").isNull(), Reason.NO_TIME.value)
        .when(version.startswith(_VERSIONS) & (version != schema.DATASCHEMA), Reason.OTHER_VERSION.value)
    )


def _has_more(text: Column) -> Column:
    """Test for text after the object, such as two lines written as one, which Spark ignores."""
    return ~sf.rtrim(text, sf.lit(" \t\r")).endswith("}") | text.contains('}{"')


def _complete(rows: DataFrame) -> DataFrame:
    return rows.select(*(_column(key, rows.columns) for key in KEYS))


def _column(key: Key, present: Sequence[str]) -> Column:
    if key.column in present:
        return sf.col(key.column)
    return sf.lit(None).cast(key.type.value).alias(key.column)


def _is_parquet(spark: SparkSession, paths: Sequence[str]) -> bool:
    if all(path.rstrip("/").endswith(".parquet") for path in paths):
        return True
    if all(Path(path).is_dir() for path in paths) and not any(
        next(Path(path).rglob("*.parquet"), None) for path in paths
    ):
        return False
    try:
        found = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
        return bool(found.parquet(*paths).columns)
    except AnalysisException:  # none of the files is Parquet, or there is none
        return False


def _nothing(spark: SparkSession) -> DataFrame:
    """Return no rows; ``createDataFrame`` would send them through a Python process."""
    nothing = sf.lit(None).cast("string")
    return spark.range(0).select(*(nothing.alias(name) for name in ("file", "line", "error")))
