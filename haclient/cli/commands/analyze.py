"""``haclient analyze``: the batch job and the stream, for people and for scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from haclient.analysis import thresholds
from haclient.analysis.io.session import spark_session
from haclient.cli.exit_codes import DONE, examples
from haclient.cli.options import BROKEN, Setting, check_reachable, plain_errors, shared_options
from haclient.cli.spark import leave, stopped_after
from haclient.command_line.groups import Command
from haclient.command_line.interrupts import handle
from haclient.printable.text import printable
from haclient.telemetry.schema import RESOURCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from haclient.analysis.job import Job
    from haclient.analysis.stream import Round

ERRORS = Console(stderr=True)
_ALARMS = 10  # most alarms to print


_OPTION_GROUPS = {
    "Input": ("since", "until", "cluster"),
    "Results": ("out", "tables", "json", "by", "slo", "baseline", "accept-rate", "fail-if"),
    "Following": ("follow", "interval", "refresh", "alert-after"),
    "Spark": ("master", "conf", "remote", "package"),
}
_EXAMPLES = examples(
    "haclient analyze /var/log/telemetry --out night",
    "haclient analyze telemetry --out night --since 2026-11-20 --by service.version",
    "haclient analyze telemetry --out night --json --fail-if 'p99_downtime>5'",
    "haclient analyze telemetry --out live --follow          # until Ctrl-C",
)


@click.command(cls=Command, option_groups=_OPTION_GROUPS, epilog=_EXAMPLES)
@click.argument("source", metavar="DIR", required=False)
@shared_options
@click.option("--master", help="Spark master; local[*] without it.")
@click.option(
    "--conf", "settings", type=Setting(), multiple=True, help="An option of Spark: spark.executor.memory=4g."
)
@click.option(
    "--remote", metavar="sc://HOST:PORT", help="A Spark Connect server; DIR is a path on the server."
)
@click.option(
    "--by",
    type=click.Choice([key.name for key in RESOURCE]),
    multiple=True,
    help="Also print who was hit, by an attribute: service.version.",
    metavar="ATTRIBUTE",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--follow", is_flag=True, help="Go on with new lines until interrupted.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="With --follow: seconds between two reads of new lines.",
)
@click.option(
    "--refresh",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="With --follow: seconds between two reports.",
)
@click.option(
    "--alert-after",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="With --follow: seconds of downtime until an alert.",
)
@click.option(
    "--package", type=click.Path(dir_okay=False, path_type=Path), help="Only write the zip for spark-submit."
)
@click.option("--metrics", "list_metrics", is_flag=True, help="Only list the metrics that --fail-if knows.")
def analyze(**given: Any) -> None:
    """Analyse the telemetry in DIR: outages, reconnects and storms.

    Writes tables (Parquet, JSON), summary.json and report.html to --out.
    """
    if given["list_metrics"]:
        for name, meaning in thresholds.METRICS.items():
            click.echo(f"{name:<20} {meaning}")
    elif given["package"] is not None:
        _package(given["package"])
    else:
        _check(given)
        with plain_errors():
            _analyze(given)


def _package(path: Path) -> None:
    from haclient.analysis.io.package import build  # noqa: PLC0415  # only needed here

    script = build(path)
    click.echo(f"spark-submit --py-files {path} {script} DIR --out DIR")


def _check(given: Mapping[str, Any]) -> None:
    if given["source"] is None:
        raise click.UsageError("DIR is missing: the folder of telemetry")
    if given["out"] is None:
        raise click.UsageError("--out is missing: the folder for the results")
    if given["master"] and given["remote"]:
        raise click.UsageError("--master and --remote exclude each other")
    if given["remote"] and (given["follow"] or given["tables"]):
        raise click.UsageError(
            "--remote goes with neither --follow nor --tables: results come to this machine"
        )
    if given["follow"] and given["tables"]:
        raise click.UsageError("--follow and --tables exclude each other")


def _analyze(given: Mapping[str, Any]) -> None:
    from haclient.analysis.job import is_light, job_of, local_source  # noqa: PLC0415  # pyspark may be missing
    from haclient.cli.replay import replay  # noqa: PLC0415  # takes a while

    job = job_of(given, remote=bool(given["remote"]), replay=replay)
    if not given["follow"]:
        local_source(job)  # fails before Spark starts, which takes seconds
    check_reachable(given["master"] or given["remote"])
    light = not given["follow"] and is_light(job)
    config = dict(given["settings"])

    def start() -> SparkSession:
        return spark_session(given["master"], given["remote"], config=config, light=light)

    try:
        with stopped_after(start) as session:
            summary = _follow(session, job, given) if given["follow"] else _run(session, job)
    except KeyboardInterrupt:
        if given["follow"]:  # it never ends by itself, and no lines were read yet
            raise click.exceptions.Exit(DONE) from None
        raise
    if summary is not None:
        _conclude(summary, given)


def _run(session: SparkSession, job: Job) -> Mapping[str, float | None]:
    from haclient.analysis.job import run  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=ERRORS, transient=True, disable=not ERRORS.is_terminal) as bar:
        task = bar.add_task("reading")

        def progress(stage: str, number: int, stages: int) -> None:
            bar.update(task, description=stage, completed=number, total=stages)

        return run(session, job, progress)


def _follow(session: SparkSession, job: Job, given: Mapping[str, Any]) -> Mapping[str, float | None] | None:
    from haclient.analysis.stream import Pace, follow, following  # noqa: PLC0415

    pace = Pace(interval=given["interval"], refresh=given["refresh"], alert_after=given["alert_after"])
    stop = threading.Event()

    def end(_: int, __: FrameType | None) -> None:
        stop.set()
        handle(leave)

    handle(end)
    last: Mapping[str, float | None] | None = None

    def report(result: Round) -> None:
        nonlocal last
        for alert in result.alerts:
            ERRORS.print(
                f"down since {alert['lost_at']}: {alert['client_id']}, connection {alert['connection']}",
                markup=False,
                highlight=False,
            )
        if result.given_up:
            ERRORS.print(f"waits no longer for the end of {result.given_up} losses: too old, or too many")
        if result.summary is not None:
            last = result.summary
            if not given["as_json"]:
                Console().print(_table(last))
                _show_alarms(given["out"])

    with following(session, job, pace) as stream:
        ERRORS.print(f"following {job.source}, results in {job.out}", markup=False, highlight=False)
        follow(stream, pace, stop, report)
    return last


def _conclude(summary: Mapping[str, float | None], given: Mapping[str, Any]) -> None:
    if given["as_json"]:
        by = {attribute: _hit_by(given["out"], attribute) for attribute in given["by"]}
        click.echo(json.dumps({**summary, **({"hit_by": by} if by else {})}, indent=2))
    elif not given["follow"]:
        Console().print(_table(summary))
        for attribute in given["by"]:
            _print_hit_by(attribute, _hit_by(given["out"], attribute))
        _show_alarms(given["out"])
        click.echo(f"results in {given['out']}")
    complaints = thresholds.broken(given["fail_if"], summary)
    for complaint in complaints:
        click.echo(complaint, err=True)
    if complaints:
        raise click.exceptions.Exit(BROKEN)


def _show_alarms(out: Path) -> None:
    """Print the most urgent alarms of the summary: detail, meaning and next action."""
    alarms = json.loads((out / "summary.json").read_text(encoding="utf-8"))["alarms"]
    for alarm in alarms[:_ALARMS]:
        where = ", ".join(filter(None, [alarm["cluster"], *alarm["endpoints"]]))
        about = f"{alarm['kind']}{f' ({where})' if where else ''}: {alarm['detail']}"
        click.echo(f"\n{alarm['severity']}: {printable(about)}")
        click.echo(f"  {alarm['meaning']}\n  Next: {alarm['action']}")
    if len(alarms) > _ALARMS:
        click.echo(f"\n{len(alarms) - _ALARMS} more in {out / 'json' / 'alarms'}")
    if alarms:
        click.echo()


def _table(summary: Mapping[str, float | None]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for name, meaning in thresholds.METRICS.items():
        if name not in thresholds.BOUNDS.values():
            longer = "> " if thresholds.is_bound(name, summary) else ""
            table.add_row(name, f"{longer}{_number(summary[name])}", meaning)
    return table


def _hit_by(out: Path, attribute: str) -> list[dict[str, Any]]:
    """Read the rows of one attribute, the most hit first."""
    from haclient.analysis.job import HIT_BY  # noqa: PLC0415

    return [row for row in json.loads((out / HIT_BY).read_text()) if row["attribute"] == attribute]


def _print_hit_by(attribute: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo(f"no line has {attribute}")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(attribute, overflow="fold", min_width=len(attribute))
    for head in _HIT.values():
        table.add_column(head, justify="right")
    for row in rows:
        bounds = ("> " if row.get(thresholds.BOUNDS.get(name, "")) else "" for name in _HIT)
        numbers = (f"{bound}{_number(row[name])}" for bound, name in zip(bounds, _HIT, strict=True))
        table.add_row(Text(printable(_value(row))), *numbers)
    Console().print(table)


_HIT = {
    "connections": "connections",
    "connections_hit": "hit",
    "outages": "outages",
    "gave_up": "gave up",
    "open": "open",
    "silent": "silent",
    "p50_downtime": "p50",
    "p99_downtime": "p99",
}
"""Columns of the table to print, with their headings."""


def _value(row: Mapping[str, Any]) -> str:
    """Return the value, or a placeholder in parentheses."""
    if row["value"] is not None:
        return str(row["value"])
    return f"({row['values']} others)" if row["values"] else "(not given)"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
