"""Reading telemetry, and storing it as Parquet.

Rules
-----
1. A line that is not JSON, or not of the schema, is kept in ``quarantine`` with its file, its text
   and the error.  It never stops the job.  A gzip file that is cut short is read up to the cut, and is
   in ``quarantine`` as a whole, without a text; so is a file that goes away before it is read, for a live
   folder rotates its files.  Unknown keys are ignored, missing ones are null.
2. An ``event_id`` of a ``source`` counts once.  Lines are written at least once: a second one is a copy.  Of
   copies that differ the one with the earliest time stays, whatever the order of the files.  A line without a
   source has that of its ``instance``.
3. ``store`` marks its ``event_id`` column as unique in each source, in the metadata of the Parquet schema.
   Such a store is not searched for copies again; that would cost one more shuffle of every line.
4. A time before 2000, or more than a day after it is read, is taken away from its line, and the line is in
   ``quarantine`` too, for ``tables.clock`` can place it by the others of its process.
5. Former names of keys, columns and types are read as today's (``former``).
6. Each line is read and parsed once: what was parsed stays on disk until events and quarantine are stored.
7. Lines of a part of the time are read with ``MARGIN`` around it, by the dates of a store and by ``time``:
   ``tables.clock`` places them later.
8. Paths that end in ``.parquet`` or are a store of this module hold Parquet, all others JSON lines,
   plain or in a compression that Spark recognises by the file's name (``.gz``).

Columns: ``Key.column`` of every key in ``haclient.telemetry.schema``, ``time`` as timestamp (null where
it is not plausible), and ``date``, the day of ``time`` in UTC.
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
"""What decides which of several copies stays; copies that are equal in all of it are the same line."""
_OLDEST = datetime(2000, 1, 1, tzinfo=UTC)  # of a clock that was ever set
_VERSIONS = f"{schema.DATASCHEMA.rpartition(':')[0]}:"
_SOURCE = "/haclient/"  # with the id of the instance: how a client names its process
_WHOLE_NUMBER = r'(":\s*-?\d+)\.0+(?=\s*[,}])'
_RFC_3339 = (  # 5.6, with its note on the space; a year of more digits is one of a wrong clock
    r"^[+-]?\d{4,6}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$"
)
_TRAILER = 4  # bytes
_LARGEST = 2**31 - 1  # bytes of a file that Spark takes as one value
BROKEN = "_broken"  # where from_json puts the text of a line that it cannot read


MARGIN = timedelta(days=1)
"""How far the wall clock of a line may be off, where lines of a part of the time are asked for."""

_LISTED = "file: string, trailer_size: bigint, blank: boolean"


@dataclass(frozen=True, slots=True)
class Period:
    """A part of the time.

    :param since: lines from this time on; all earlier ones without it.
    :param until: lines before this time.
    """

    since: datetime | None = None
    until: datetime | None = None

    def near(self, name: str, kind: str) -> Column:
        """Whether the column, a time or a date, is not further than ``MARGIN`` from it, or not known."""
        met = sf.lit(True)
        if self.since is not None:
            met &= sf.col(name) >= sf.lit(self.since - MARGIN).cast(kind)
        if self.until is not None:
            met &= sf.col(name) <= sf.lit(self.until + MARGIN).cast(kind)
        return met | sf.col(name).isNull()


ALWAYS = Period()


@dataclass(frozen=True, slots=True)
class Ingested:
    """What was read.

    :param events: one row a line, without copies.
    :param quarantine: lines that could not be read: ``file``, ``line``, ``error``.
    :param parsed: what both are made of, persisted; whoever has stored both unpersists it.
    """

    events: DataFrame
    quarantine: DataFrame
    parsed: DataFrame | None = None


def read(spark: SparkSession, paths: str | Iterable[str], period: Period = ALWAYS) -> Ingested:
    """The lines under ``paths``: files, folders or patterns; JSON or Parquet, not both at once."""
    found = [paths] if isinstance(paths, str) else list(paths)
    if _is_parquet(spark, found):
        events, one_store = read_parquet(spark, found, period), len(found) == 1
        # To look for copies takes a tenth of the time that it takes to sort every column.
        if (one_store and _is_distinct(events)) or is_single(spark) or has_copies(events):
            events = distinct(events, single=one_store)
        return Ingested(events, implausible_times(spark, found))
    text = _lines_of(spark, "*").text(found)
    lines = read_lines(text, period)
    assert lines.parsed is not None
    files = listed(spark, text.inputFiles())
    if files is None:  # they are not on this machine
        files = _trailers(_lines_of(spark, "*.gz").format("binaryFile").load(found))
    return replace(lines, quarantine=single(lines.quarantine.unionByName(unread(files, lines.parsed))))


def _lines_of(spark: SparkSession, pattern: str) -> DataFrameReader:
    """Reads what it can of a damaged file, and passes over one that has gone, instead of failing."""
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", pattern)
    return reader.option("ignoreCorruptFiles", "true").option("ignoreMissingFiles", "true")


def read_lines(text: DataFrame, period: Period = ALWAYS) -> Ingested:
    """The lines of a DataFrame with the column ``value``, from files or from a stream of files."""
    parsed = computed_once(flat(parse(text)), StorageLevel.DISK_ONLY)
    return Ingested(
        distinct(events_of(parsed).where(period.near("time", "timestamp"))), quarantine_of(parsed), parsed
    )


def listed(spark: SparkSession, files: Sequence[str]) -> DataFrame | None:
    """What the files themselves say: ``file``, ``trailer_size`` of gzip (see ``unread``), and ``blank``.

    ``None`` where they are not on this machine.
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
    """The size in the trailer of a gzip file, and whether the file is empty."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if path.suffix != ".gz" or size < _TRAILER:
                return {"blank": not size}
            file.seek(-_TRAILER, os.SEEK_END)
            return {"blank": False, "trailer_size": int.from_bytes(file.read(_TRAILER), "little")}
    except OSError:  # gone, or not for us to read
        return {"blank": False}


def _trailers(packed: DataFrame) -> DataFrame:
    """The same of gzip files as Spark's ``binaryFile``, which are read whole for it."""
    tail = sf.hex(sf.expr(f"substring(content, -{_TRAILER}, {_TRAILER})"))
    bytes_ = [sf.substring(tail, start, 2) for start in (7, 5, 3, 1)]
    return packed.where(sf.col("length") < _LARGEST).select(
        sf.col("_metadata.file_path").alias("file"),
        sf.conv(sf.concat(*bytes_), 16, 10).cast("bigint").alias("trailer_size"),
        sf.lit(False).alias("blank"),
    )


def unread(files: DataFrame, parsed: DataFrame) -> DataFrame:
    """The files of which lines are missing, as rows of ``quarantine``.

    The last four bytes of a gzip file are the size of its content [1].  Those of a file that was cut are any
    number, which is hardly ever smaller than what could be read.

    [1] RFC 1952, 2.3.1: ISIZE.

    :param files: of ``listed``.
    :param parsed: of ``flat``.
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
    """Columns ``file``, ``value``, ``line`` (a struct of the schema, with ``BROKEN``), ``stamp``, ``time``.

    ``stamp`` is the line's time, ``time`` is null where that is not plausible.

    The struct goes through an array of one: what is asked of a plain column, Spark asks of the expression
    that made it, and would parse each line once for every question.
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
    """A line that could not be read, read as if ``5672.0`` were ``5672``, which for JSON it is."""
    text = sf.regexp_replace("value", _WHOLE_NUMBER, "$1")
    return sf.when(line[BROKEN].isNotNull(), _from_json(text)).otherwise(line)


def _stamp(text: Column) -> Column:
    """The time that a text says.  Spark knows capitals only, and no leap second."""
    second = sf.when(text.contains(":60"), sf.regexp_replace(text, r":60(?=[.Zz+-])", ":59")).otherwise(text)
    capitals = sf.translate(second, "tz", "TZ")  # `upper` loads the tables of all alphabets
    return sf.when(text.rlike(_RFC_3339), capitals.try_cast("timestamp")).alias("stamp")


def _plausible(time: str) -> Column:
    return sf.col(time).between(sf.lit(_OLDEST), sf.current_timestamp() + sf.expr("INTERVAL 1 DAY"))


def flat(parsed: DataFrame) -> DataFrame:
    """One row a line: the columns of an event, and ``file``, ``size``, ``line`` and ``error``.

    ``event_id`` is null where the line is none, ``line`` is its text where there is an ``error``.

    :param parsed: of ``parse``.
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
        (sf.octet_length("value") + 2).alias("size"),  # with either end of a line
        sf.when(error.isNotNull(), sf.col("value")).alias("line"),
        error.alias("error"),
    )


def events_of(parsed: DataFrame) -> DataFrame:
    """The good lines of ``flat``, copies included."""
    return parsed.where("event_id IS NOT NULL").select(*(key.column for key in KEYS), "date")


def _sourced(rows: DataFrame) -> DataFrame:
    """The rows, each with a source where that can be told: a copy of a line has the same."""
    return rows.withColumn("source", _source(sf.col("source"), sf.col("instance")))


def _source(source: Column, instance: Column) -> Column:
    return sf.coalesce(source, sf.concat(sf.lit(_SOURCE), instance))


def _value(key: Key) -> Column:
    """The value of a key in ``data``, under its name or its former one."""
    value = sf.col(f"line.data.`{key.name}`")
    if key.name in FORMER_KEYS:
        return sf.coalesce(value, sf.col(f"line.data.`{FORMER_KEYS[key.name]}`"))
    return value


def quarantine_of(parsed: DataFrame) -> DataFrame:
    """The bad lines of ``flat``: ``file``, ``line``, ``error``."""
    return parsed.where("error IS NOT NULL").select("file", "line", "error")


def read_parquet(spark: SparkSession, paths: Sequence[str], period: Period = ALWAYS) -> DataFrame:
    """Parquet with the columns of the schema; those that it lacks are null."""
    frames = (_of_period(spark.read.parquet(path), period) for path in paths)
    rows = reduce(DataFrame.unionByName, (_complete(former.current(frame)) for frame in frames))
    return (
        _sourced(rows)
        .withColumn("time", sf.when(_plausible("time"), sf.col("time")))
        .withColumn("date", sf.to_date("time"))
    )


def _of_period(stored: DataFrame, period: Period) -> DataFrame:
    """The rows that may be of the period: Spark leaves out files and parts of files by this."""
    if period == ALWAYS or "time" not in stored.columns:
        return stored
    if stored.schema["event_id"].metadata == UNIQUE:
        stored = stored.where(period.near("date", "date"))
    return stored.where(period.near("time", "timestamp"))


def implausible_times(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The rows of Parquet with a time that is not plausible, as rows of ``quarantine``."""
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
    """One row for each id of a source; ``single`` if all rows are of one folder, which may be a store."""
    if single and _is_distinct(events):
        return events
    copies = Window.partitionBy(*IDENTITY).orderBy(*(sf.asc_nulls_last(name) for name in ORDER))
    return events.withColumn("_copy", sf.row_number().over(copies)).where("_copy = 1").drop("_copy")


def _is_distinct(events: DataFrame) -> bool:
    return bool(events.schema["event_id"].metadata == UNIQUE)


def has_copies(events: DataFrame) -> bool:
    """Whether an id of a source is there twice; this looks at one number of each line."""
    identity = sf.xxhash64(*IDENTITY).alias("identity")
    counted = events.groupBy(identity).agg(sf.count("*").alias("lines"))
    return not counted.where("lines > 1").isEmpty()


def store(events: DataFrame, path: str, *, mode: str = "errorifexists") -> None:
    """Write distinct ``events`` as Parquet, a folder for each date.

    Spark spreads the rows of a date over as many files as their size asks for, and small dates get one: a
    folder of small files takes longer to open than to read.
    """
    unique = sf.col("event_id").alias("event_id", metadata=UNIQUE)
    others = [sf.col(name) for name in events.columns if name != "event_id"]
    rows = by_date(events.select(unique, *others))
    rows.write.mode(mode).partitionBy("date").parquet(path)


def by_date(rows: DataFrame) -> DataFrame:
    """The rows in as few partitions of their date as their size asks for."""
    if rows.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true":
        return rows.hint("rebalance", "date")
    return rows.repartition("date")  # without adaptive plans there is nothing else


def _error() -> Column:
    """The error of a parsed line that is no event; null if it is one."""
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
    """Whether something follows the object, as where two lines were written as one: Spark does not look."""
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
    """No rows; from ``createDataFrame`` they would come through a Python process."""
    nothing = sf.lit(None).cast("string")
    return spark.range(0).select(*(nothing.alias(name) for name in ("file", "line", "error")))
