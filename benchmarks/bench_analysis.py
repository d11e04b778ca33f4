"""The Spark analysis of millions of telemetry lines, compared with DuckDB and Polars on the same files.

A generated fleet with all kinds of faults (lost, doubled and malformed lines, clients that die) is kept under
``--data``.  It is written once, as JSON lines and as Parquet.  Each contestant runs in its own process, one
after the other, and does two things with the files:

``queries``   scan and count, storm peak, lag and running sum: typical first questions
``job``       read, drop copies, store, make every table and store it; Spark's is the job that
              ``haclient analyze`` runs, which writes each table as JSON lines too, and the report

For its growth, Spark's job also runs on a tenth of the lines, and with ``--large`` on five times as many.
Peak memory is the largest resident set of the process and its children together.  Spark's is Python and a
JVM, whose heap takes all that it is allowed before it collects.

Bars: the job on Parquet within 3x the slowest of Spark's own queries; time for ten times the lines
below 11x.  DuckDB and Polars have no bar: on one machine they are faster, and the tables say by how much.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import analysis_peers as peers
import measure
from analysis_peers import Stage

FORMS = ("parquet", "json")
CONTESTANTS = ("spark", "duckdb", "polars")
LINES_PER_CLIENT = 73  # for three outages; the actual number is counted
MILLION = 1_000_000
SLOWER_THAN_QUERY, SLOWER_PER_TENFOLD = 3.0, 11.0

_DATA = Path(tempfile.gettempdir()) / "haclient-bench-analysis"

Measured = dict[str, Any]


# -- in a contestant's process --------------------------------------------------------------------


def _spark_session() -> Any:
    from haclient.analysis.io.session import spark_session  # noqa: PLC0415 - the parent needs no JVM

    spark = spark_session()
    spark.range(MILLION).selectExpr("sum(id)").collect()  # a JVM's first job is always slow
    return spark


def _spark_queries(spark: Any, form: str, folder: Path) -> Iterator[Stage]:
    from haclient.analysis.io import ingest  # noqa: PLC0415

    if form == "parquet":
        events = spark.read.parquet(str(folder))
    else:
        events = ingest.events_of(ingest.flat(ingest.parse(spark.read.text(str(folder)))))
    events.createOrReplaceTempView("events")
    for name, query in peers.BASELINE_SQL.items():
        sql = query.replace("epoch(", "unix_micros(").replace("GROUP BY ALL)", "GROUP BY cluster, second)")
        sql = sql.replace("floor(unix_micros(time))", "unix_seconds(time)")
        yield peers.timed(name, lambda sql=sql: spark.sql(sql).collect())


def _spark_job(spark: Any, folder: Path, out: Path) -> Iterator[Stage]:
    """Return the seconds between the progress reports of the job.

    Work shared by tables counts for the first table that needs it: the survey and the aggregation by client
    for ``episodes``, the storms' timeline for ``storms``.
    """
    from haclient.analysis import job  # noqa: PLC0415

    reported: list[Stage] = []
    job.run(
        spark,
        job.Job(source=str(folder), out=out),
        lambda stage, _place, _stages: reported.append((stage, time.perf_counter())),
    )
    reported.append(("", time.perf_counter()))
    return ((name, end - began) for (name, began), (_, end) in itertools.pairwise(reported))


def _contestant(name: str, form: str, folder: Path, out: Path) -> Measured:
    if name == "spark":
        spark = _spark_session()
        queries = dict(_spark_queries(spark, form, folder))
        before = _cpu_seconds()
        stages = dict(_spark_job(spark, folder, out))
    else:
        query = {"duckdb": peers.duckdb_baselines, "polars": peers.polars_baselines}[name]
        whole = {"duckdb": peers.duckdb_stages, "polars": peers.polars_stages}[name]
        queries = dict(query(form, folder))
        before = _cpu_seconds()
        stages = dict(whole(form, folder, out))
    cpu = _cpu_seconds() - before
    peak = _peak_kib(os.getpid(), *_descendants(os.getpid()))
    if name == "spark":
        spark.stop()
    return {"queries": queries, "stages": stages, "cpu": cpu, "peak_mib": peak / 1024}


def _cpu_seconds() -> float:
    """Return the user and system time of this process and its children so far."""
    ticks = 0
    for pid in (os.getpid(), *_descendants(os.getpid())):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _peak_kib(*pids: int) -> int:
    """Return the sum of the processes' peak resident sets."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _generate(folder: Path, events: int, forms: Sequence[str]) -> Measured:
    """Make the files, unless they exist; return the number of lines."""
    from haclient.analysis import generate  # noqa: PLC0415

    wanted = [form for form in forms if not (folder / f"{form}.done").exists()]
    spark = _spark_session()
    if wanted:
        fleet = generate.generate(spark, clients=max(events // LINES_PER_CLIENT, 20))
        for form in wanted:
            shutil.rmtree(
                folder / f"events.{form}", ignore_errors=True
            )  # possibly incomplete, from an interrupted run
            generate.write(fleet, str(folder / f"events.{form}"), form=form)
            (folder / f"{form}.done").touch()
    return {"lines": spark.read.parquet(str(folder / "events.parquet")).count()}


# -- in the parent --------------------------------------------------------------------------------


def _child(*arguments: str) -> Measured:
    command = [sys.executable, __file__, *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def _print_stages(lines: int, form: str, found: Mapping[str, Measured]) -> None:
    print(f"\n{lines:,} lines, {form}")
    print(f"  {'seconds (thousand lines/s)':<30}" + "".join(f"{name:>20}" for name in found))
    names = [stage for measured in found.values() for stage in measured["stages"]]
    for kind, stages in (("queries", peers.BASELINES), ("stages", tuple(dict.fromkeys(names)))):
        for stage in stages:
            _print_row(stage, lines, {name: one[kind].get(stage) for name, one in found.items()})
        if kind == "stages":
            _print_row("whole job", lines, {name: _whole(one) for name, one in found.items()})
    for title, name in (("CPU seconds of the job", "cpu"), ("peak memory, MiB", "peak_mib")):
        print(f"  {title:<30}" + "".join(f"{one[name]:>20,.0f}" for one in found.values()), flush=True)


def _print_row(stage: str, lines: int, values: Mapping[str, float | None]) -> None:
    cells = (
        f"{'':>20}" if value is None else f"{value:>10.2f}{f'({lines / value / 1000:,.0f})':>10}"
        for value in values.values()
    )
    print(f"  {stage:<30}" + "".join(cells), flush=True)


def _whole(measured: Measured) -> float:
    return float(sum(measured["stages"].values()))


def _print_answers(data: Path, found: Mapping[str, Measured]) -> None:
    """Print whether the contestants found the same."""
    patterns = {
        name: (f"{data}/out-{name}/tables/{{}}/*.parquet", "clients_hit")
        if name == "spark"
        else (f"{data}/out-{name}/{{}}.parquet", "clients")
        for name in found
    }
    answers = {name: peers.answers(*pattern) for name, pattern in patterns.items()}
    for table in peers.CHECKS:
        reported = {name: answer[table] for name, answer in answers.items()}
        verdict = "same" if len(set(reported.values())) == 1 else "NOT THE SAME"
        print(f"  {table}: {verdict}: " + ", ".join(f"{name} {value}" for name, value in reported.items()))


def _measure(
    data: Path, events: int, form: str, contestants: tuple[str, ...], runs: int
) -> dict[str, Measured]:
    """Return medians of ``runs`` rounds, in which the contestants take turns."""
    files = str(_folder(data, events) / f"events.{form}")
    rounds: dict[str, list[Measured]] = {name: [] for name in contestants}
    began = time.perf_counter()
    for _ in range(runs):
        for name, done in rounds.items():
            out = str(data / f"out-{name}")
            try:
                done.append(_child("--child", name, "--form", form, "--files", files, "--out", out))
            except subprocess.CalledProcessError as error:
                print(f"# {name} did not get to its end: {_how(error)}", flush=True)
    print(f"\n# {events:,} events, {form}: {time.perf_counter() - began:.0f} s of measuring", flush=True)
    return {name: _median(done) for name, done in rounds.items() if len(done) == runs}


def _how(error: subprocess.CalledProcessError) -> str:
    if error.returncode == -signal.SIGKILL:
        return "killed, as the kernel does when there is no memory left"
    return f"exit code {error.returncode}"


def _median(rounds: Sequence[Measured]) -> Measured:
    def of(kind: str) -> dict[str, float]:
        names = rounds[0][kind]
        return {name: statistics.median(one[kind][name] for one in rounds) for name in names}

    whole = {name: statistics.median(one[name] for one in rounds) for name in ("cpu", "peak_mib")}
    return {"queries": of("queries"), "stages": of("stages"), **whole}


def _folder(data: Path, events: int) -> Path:
    return data / f"{events / MILLION:g}M"


def _compare(data: Path, events: int, runs: int) -> dict[str, Measured]:
    """Compare all contestants on both forms; return Spark's results by form."""
    kept: dict[str, Measured] = {}
    lines = _lines(data, events, *FORMS)
    for form in FORMS:
        found = _measure(data, events, form, CONTESTANTS, runs)
        _print_stages(lines, form, found)
        _print_answers(data, found)
        kept[form] = found["spark"]
    return kept


def _lines(data: Path, events: int, *forms: str) -> int:
    """Make the files if necessary; return the number of lines."""
    given = ["--events", str(events), "--form", ",".join(forms), "--files", str(_folder(data, events))]
    began = time.perf_counter()
    lines = int(_child("--child", "generate", *given)["lines"])
    print(f"\n# {events:,} events: {time.perf_counter() - began:.0f} s of making files", flush=True)
    return lines


def _grow(data: Path, sizes: list[int], known: tuple[int, Measured], runs: int) -> None:
    """Print the time of Spark's job on Parquet by number of lines."""
    print("\ngrowth of Spark's job on Parquet")
    before: tuple[int, float] | None = None
    for size in sizes:
        lines = _lines(data, size, "parquet")
        measured = known[1]
        if size != known[0]:
            measured = _measure(data, size, "parquet", ("spark",), runs)["spark"]
        seconds = _whole(measured)
        print(f"  {lines:>12,} lines: {seconds:8.1f} s, {lines / seconds:,.0f} lines/s", end="")
        print(f", CPU {measured['cpu']:,.0f} s, peak {measured['peak_mib']:,.0f} MiB", flush=True)
        if before is not None:
            tenfold = (seconds / before[1]) ** (1 / math.log10(lines / before[0]))
            measure.print_bar("time for ten times the lines", tenfold, SLOWER_PER_TENFOLD, at_least=False)
        before = (lines, seconds)


def _arguments() -> argparse.Namespace:
    parser = measure.argument_parser(__doc__)
    parser.add_argument("--events", type=int, default=10 * MILLION, help="lines, about; default 10 million")
    parser.add_argument("--data", type=Path, default=_DATA, help=f"for the files; default {_DATA}")
    parser.add_argument("--large", action="store_true", help="grow to five times the lines too")
    parser.add_argument("--runs", type=int, default=1, help="rounds to take the medians of; default 1")
    for hidden in ("--child", "--form"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    for hidden in ("--files", "--out"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    arguments = measure.parse_arguments(parser)
    if arguments.quick:
        arguments.events = min(arguments.events, MILLION // 5)
    return arguments


def _main() -> None:
    arguments = _arguments()
    if arguments.child == "generate":
        print(json.dumps(_generate(arguments.files, arguments.events, arguments.form.split(","))))
        return
    if arguments.child:
        out = peers.emptied(arguments.out)
        print(json.dumps(_contestant(arguments.child, arguments.form, arguments.files, out)))
        return
    measure.print_header("analysis of telemetry", arguments)
    print(f"# {_versions()}", flush=True)
    arguments.data.mkdir(parents=True, exist_ok=True)
    spark = _compare(arguments.data, arguments.events, arguments.runs)
    for form, measured in spark.items():
        slowest = max(measured["queries"].values())
        what = f"the whole job to its slowest query, {form}"
        measure.print_bar(what, _whole(measured) / slowest, SLOWER_THAN_QUERY, at_least=False)
    sizes = [arguments.events // 10, arguments.events, *([arguments.events * 5] if arguments.large else [])]
    _grow(arguments.data, sizes, (arguments.events, spark["parquet"]), arguments.runs)


def _versions() -> str:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S607 - the PATH's, as Spark
    found = [f"{name} {importlib.metadata.version(name)}" for name in ("pyspark", "duckdb", "polars")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{', '.join(found)}, {java.splitlines()[0]}, {memory:.0f} GiB"


if __name__ == "__main__":
    _main()
