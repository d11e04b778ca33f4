"""Run the batch job: read telemetry, write tables, a summary and a report.

    spark-submit --py-files dist/haclient.zip dist/haclient_analyze.py DIR --out DIR

Rules
-----
* Nothing here needs the client, click or rich: a cluster's driver may have none of them.
* The stream shares ``compute`` and ``conclude``, so the same lines give the same results in both.
* Lines are parsed once, freed of duplicates and stored as Parquet under the output folder.  Every table
  reads them there.
* Unusable input raises an ``InputError`` that names the location and the missing data.

Under the output folder are ``events/`` and ``tables/`` (Parquet), ``json/`` (JSON lines),
``summary.json``, ``hit_by.json`` and ``report.html``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from haclient.analysis import thresholds
from haclient.analysis.advice import Replay
from haclient.analysis.io import ingest
from haclient.analysis.io.output import Output, output
from haclient.analysis.io.session import AnalysisError, computed_once, is_single, single, spark_session
from haclient.analysis.options import OPTIONS, SLO, Option
from haclient.analysis.report import baseline
from haclient.analysis.tables import alarms, build, clock
from haclient.analysis.tables.summary import summarize

OK, BROKEN, UNUSABLE, INTERRUPTED = 0, 1, 3, 128 + signal.SIGINT
"""Exit codes; 2 is for wrong usage."""

HIT_BY = "hit_by.json"
"""File in the output folder that holds the table ``hit_by`` as one JSON list."""

_ALARMS = 50  # most alarms in the summary; the table has all of them

_DRAWS = ("jinja2", "altair", "vl_convert")  # packages that a report needs
_NOT_ASKED = "{}: no line of the time and the cluster that are asked for"
_LIGHT_LIMIT = 32 * 2**20  # bytes of JSON lines: 50,000 of them
_PACKED = {".gz": 15, ".parquet": 20}  # bytes of JSON lines per byte of such a file

Progress = Callable[[str, int, int], None]
"""Called with the next stage, its number, and the number of stages."""

Summary = Mapping[str, float | None]


class InputError(AnalysisError):
    """The given source has no telemetry to analyse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The input of an analysis and the destination of its results.

    :param source: folder, file or URI of telemetry, as Spark reads it.
    :param out: folder on this machine.
    :param remote: whether Spark is a Connect server, with other file systems than this machine.
    :param stored: path or URI for the tables, if other than ``out``.
    :param since: keep lines from this time on.
    :param until: keep lines before this time.
    :param cluster: keep connections of this cluster only.
    :param slo: share of the time that connections should be usable, from 0 to 1.
    :param baseline: folder on this machine with the results of a former run, for comparison.
    :param accept_rate: connections a second that the clusters are configured to admit, if known.
    :param replay: simulator for the advice.
    """

    source: str
    out: Path
    remote: bool = False
    stored: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cluster: str | None = None
    slo: float = SLO
    baseline: Path | None = None
    accept_rate: float | None = None
    replay: Replay | None = None

    @property
    def base(self) -> str:
        """Path or URI that Spark writes to."""
        return self.stored or str(self.out.resolve())


def job_of(given: Mapping[str, Any], *, remote: bool = False, replay: Replay | None = None) -> Job:
    """Build the job from a command's options.

    :param given: parsed values by name: ``source`` and the options of ``OPTIONS``; ``slo`` in per cent.
    """
    return Job(
        source=given["source"],
        out=given["out"],
        remote=remote,
        stored=given["tables"],
        since=given["since"],
        until=given["until"],
        cluster=given["cluster"],
        slo=given["slo"] / 100,
        baseline=given["baseline"],
        accept_rate=given["accept_rate"],
        replay=replay,
    )


def silent(stage: str, number: int, stages: int) -> None:
    """Ignore progress."""


def run(spark: SparkSession, job: Job, progress: Progress = silent) -> Summary:
    """Run the whole job and return the summary.

    :raises InputError: if there is nothing to analyse, or the baseline cannot be read.
    """
    former(job)  # raises on a bad baseline before anything that takes long
    job.out.mkdir(parents=True, exist_ok=True)
    if _draws():  # importing the chart libraries takes seconds; Python is idle while Spark works
        threading.Thread(target=_load_library, daemon=True).start()
    progress("reading", 0, 1)
    read_, quarantine = read(spark, job)
    everything = clock.placed(read_)
    events = narrowed(everything, job)
    if events is not everything and not _any(events):
        raise InputError(_NOT_ASKED.format(job.source))
    made = compute(events, quarantine, output(spark, job.base, remote=job.remote), job, progress=progress)
    try:
        return conclude(made, events, job)
    finally:
        spark.catalog.clearCache()  # the tables share cached frames until here


def read(spark: SparkSession, job: Job) -> tuple[DataFrame, DataFrame]:
    """Return the parsed lines without duplicates, and the quarantined ones.

    Lines far outside the job's period are left out; ``narrowed`` applies its exact limits.

    :raises InputError: if no line is left.
    """
    found = ingest.read(spark, local_source(job), ingest.Period(job.since, job.until))
    events, quarantine = _stored(spark, found.events, job), found.quarantine
    if found.parsed is not None:
        quarantine = single(quarantine).localCheckpoint()
        found.parsed.unpersist()
    if not _any(events):
        raise InputError(_empty_error(quarantine, job))
    return events, quarantine


def _any(events: DataFrame) -> bool:
    return bool(events.select(sf.lit(1)).take(1))


def _stored(spark: SparkSession, events: DataFrame, job: Job) -> DataFrame:
    """Store the lines so that the tables need not parse or deduplicate them again."""
    if events.schema["event_id"].metadata == ingest.UNIQUE:
        return computed_once(events) if is_single(spark) else events
    if job.remote:
        return events.localCheckpoint()  # the server's file systems are unknown
    path = f"{job.base}/events"
    if is_single(spark):
        events = computed_once(events)
        ingest.store(events, path, mode="overwrite")
        return events
    ingest.store(events, path, mode="overwrite")
    return ingest.read(spark, path).events


def local_source(job: Job) -> str:
    """Return the path for Spark; check it first if it is on this machine.

    :raises InputError: if a path on this machine does not exist or has no file.
    """
    if job.remote or "://" in job.source:
        return job.source
    path = Path(job.source).resolve()
    if not path.exists():
        raise InputError(f"{job.source}: no such directory")
    if path.is_dir() and not any(child.is_file() for child in path.rglob("*")):
        raise InputError(f"{job.source}: no file in it")
    return str(path)


def is_light(job: Job) -> bool:
    """Report whether the input is on this machine and small enough for a light session.

    The limit is 32 MiB of JSON lines, estimated from the sizes of the files.

    :raises OSError: if the input does not exist; ``local_source`` checks that.
    """
    if job.remote or "://" in job.source:
        return False
    path = Path(job.source)
    files = path.rglob("*") if path.is_dir() else [path]
    sizes = (file.stat().st_size * _PACKED.get(file.suffix, 1) for file in files)
    return sum(sizes) < _LIGHT_LIMIT


def _empty_error(quarantine: DataFrame, job: Job) -> str:
    if job.since is not None or job.until is not None:
        return _NOT_ASKED.format(job.source)
    bad = quarantine.count()
    if not bad:
        return f"{job.source}: no line of telemetry in it"
    first = quarantine.select("file", "error").first()
    assert first is not None
    where = f"the first, in {first['file']}: {first['error']}"
    return f"{job.source}: none of its {bad} lines is telemetry; {where}"


def narrowed(events: DataFrame, job: Job) -> DataFrame:
    """Keep the lines of the job's period (by ``t``) and cluster.

    A connection learns its cluster at its first connect.  So lines without a cluster are kept if another
    line of the same connection names the job's cluster.
    """
    if job.since is not None:
        events = events.where(sf.col("t") >= sf.lit(job.since))
    if job.until is not None:
        events = events.where(sf.col("t") < sf.lit(job.until))
    if job.cluster is None:
        return events
    connection = ["source", "client_id", "connection"]
    named = events.where(sf.col("cluster") == job.cluster)
    known = named.select(*connection).distinct()
    nameless = events.where(sf.col("cluster").isNull()).join(known, connection, "left_semi")
    return named.unionByName(nameless.select(*named.columns))


def compute(
    events: DataFrame, quarantine: DataFrame, target: Output, job: Job, *, progress: Progress = silent
) -> dict[str, DataFrame]:
    """Compute and store all tables; return them as stored.

    :param events: from ``clock.placed``.
    """
    names = ("quarantine", *build.NAMES)
    options = build.Options(accept_rate=job.accept_rate, replay=job.replay)
    progress(names[0], 1, len(names) + 1)
    made = {names[0]: target.write(names[0], quarantine)}
    frames = build.each(events, options, quarantine=made[names[0]])
    try:
        for number, name in enumerate(names[1:], start=2):
            progress(name, number, len(names) + 1)
            made[name] = target.write(name, next(frames))
    finally:
        target.finish()
    progress("report", len(names) + 1, len(names) + 1)
    return made


def conclude(made: Mapping[str, DataFrame], events: DataFrame, job: Job) -> Summary:
    """Write the summary, ``hit_by.json`` and the report to ``job.out``; return the summary.

    Without the packages for drawing (``jinja2``, ``altair``, ``vl_convert``), there is no report.

    :param made: the stored tables, from ``compute``.
    """
    found = summarize(made)
    hit = [row.asDict() for row in made["hit_by"].collect()]  # at most some hundred rows per attribute
    _replace(job.out / HIT_BY, json.dumps(hit, indent=2) + "\n")
    written = {"source": job.source, "summary": found, "alarms": alarms.first(made["alarms"], _ALARMS)}
    _replace(job.out / "summary.json", json.dumps(written, indent=2) + "\n")
    if _draws():
        _replace(job.out / "report.html", _report(made, events, found, hit, job))
    return found


def _draws() -> bool:
    """Report whether the packages for drawing a report are installed."""
    return all(importlib.util.find_spec(name) is not None for name in _DRAWS)


def _load_library() -> None:
    from haclient.analysis.report import library  # noqa: PLC0415  # its packages may be missing

    library.bundle()


def _report(
    made: Mapping[str, DataFrame], events: DataFrame, found: Summary, hit: list[dict[str, Any]], job: Job
) -> str:
    from haclient.analysis.report import data  # noqa: PLC0415  # their packages may be missing
    from haclient.analysis.report.render import render  # noqa: PLC0415

    rows = data.report_tables(made, events, found, hit)
    before = former(job)
    if before is not None:
        curve = data.former_ecdf(events.sparkSession, job.baseline) if not job.remote else []
        rows["baseline"] = [{**before, "ecdf": curve}]
    return render(rows, title=job.source, generated_at=datetime.now(UTC), slo=job.slo)


def former(job: Job) -> dict[str, Any] | None:
    """Read the results of the former run, if the job names one.

    :raises InputError: if they cannot be read.
    """
    if job.baseline is None:
        return None
    try:
        return baseline.read(job.baseline)
    except baseline.BaselineError as error:
        raise InputError(str(error)) from error


def _replace(path: Path, text: str) -> None:
    """Write ``text`` atomically, so that no reader sees a partial file."""
    hidden = path.with_name(f".{path.name}.new")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job for ``spark-submit``, and print the summary as JSON; return the exit code.

    It is ``BROKEN`` if the summary breaks a threshold of ``--fail-if``, and ``UNUSABLE`` after an
    ``AnalysisError``, whose text is printed.
    """
    given = _parser().parse_args(arguments)
    job = job_of(vars(given))
    try:
        with _ended_by_interrupts():
            found = run(spark_session(), job)
    except AnalysisError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the command's own output
        return UNUSABLE
    print(json.dumps(found, indent=2))  # noqa: T201 - the command's own output
    complaints = thresholds.broken(given.fail_if, found)
    print(*complaints, sep="\n", end="\n" if complaints else "", file=sys.stderr)  # noqa: T201
    return BROKEN if complaints else OK


# Variable that spark-submit sets for its child programs.
_OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """End the process at once on Ctrl-C: the JVM of ``spark-submit`` gets it too and stops answering."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or _OF_SPARK_SUBMIT not in os.environ:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Analyse telemetry; the summary goes to standard output, as JSON."
    )
    parser.add_argument("source", metavar="DIR", help="folder or URI of telemetry, which all nodes can read")
    for option in OPTIONS:
        parser.add_argument(
            option.name,
            metavar=option.metavar,
            type=partial(_read, option),
            help=option.help.replace("%", "%%"),
            default=[] if option.multiple else option.default,
            action="append" if option.multiple else "store",
            required=option.name == "--out",
        )
    return parser


def _read(option: Option, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
