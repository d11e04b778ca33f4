"""``haclient telemetry``: validate telemetry, generate a fleet's, and print the format."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from haclient.analysis.io.session import spark_session
from haclient.cli.exit_codes import LESS, examples
from haclient.cli.options import UnusableError, plain_errors
from haclient.cli.spark import stopped_after
from haclient.command_line.groups import Group
from haclient.printable.lines import echo_line
from haclient.printable.text import printable
from haclient.telemetry import schema as lines
from haclient.telemetry.contract import paths as judged


@click.group(
    cls=Group,
    epilog=examples(
        "haclient telemetry generate --clients 1000 --out telemetry",
        "haclient telemetry validate telemetry",
        "haclient analyze telemetry --out results",
    ),
)
def telemetry() -> None:
    """Validate telemetry, generate it for a trial of the analysis, or print its format."""


@telemetry.command()
def schema() -> None:
    """Print the keys of a line, as a table in Markdown."""
    click.echo(lines.markdown_table(), nl=False)


@telemetry.command(
    epilog=examples(
        "haclient telemetry validate /var/log/telemetry",
        "zcat old.jsonl.gz | haclient telemetry validate - --json",
    )
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def validate(paths: tuple[str, ...], *, as_json: bool) -> None:
    """Check the lines of files and folders, plain or gzip, against the contract; - is standard input.

    Prints the number of each complaint, and the first place; exits with 1 if there is any.
    """
    try:
        found = judged.validate(paths)
    except (OSError, ValueError) as error:
        raise UnusableError(str(error)) from None
    if not found.lines and not found.wrong:
        raise UnusableError("no line in it")
    click.echo(json.dumps(_as_json(found), indent=2)) if as_json else _print(found)
    if found.wrong:
        raise click.exceptions.Exit(LESS)


def _as_json(found: judged.Report) -> dict[str, object]:
    complaints = [{**asdict(what), **asdict(where)} for what, where in found.complaints.items()]
    unknown = [{"type": name, **asdict(where)} for name, where in found.unknown_types.items()]
    counts = {"files": found.files, "lines": found.lines, "wrong": found.wrong}
    return {**counts, "complaints": complaints, "unknown_types": unknown}


def _print(found: judged.Report) -> None:
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    click.echo(
        f"{found.lines:,} lines in {files}: {found.lines - found.wrong:,} right, {found.wrong:,} wrong"
    )
    if found.complaints:
        table = Table(box=None, pad_edge=False)
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column("complaint")
        table.add_column("first", overflow="fold")
        for what, where in sorted(found.complaints.items(), key=lambda each: -each[1].count):
            text = f"{what.reason}: {what.detail}" if what.detail else what.reason
            table.add_row(
                f"{where.count:,}", Text(printable(text)), Text(printable(f"{where.file}:{where.line}"))
            )
        Console().print(table)
    for name, where in found.unknown_types.items():
        echo_line(f"not judged: {where.count:,} of the unknown type {name}, first {where.file}:{where.line}")


@telemetry.command(
    option_groups={
        "Fleet": ("clients", "outages", "seed"),
        "Output": ("out", "format"),
        "Spark": ("master",),
    },
    epilog=examples(
        "haclient telemetry generate --out telemetry",
        "haclient telemetry generate --clients 100000 --outages 5 --format parquet --out fleet",
    ),
)
@click.option("--clients", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option(
    "--outages", type=click.IntRange(min=0), default=2, show_default=True, help="Deaths of the primary."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same lines.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
@click.option(
    "--format", "kind", type=click.Choice(["json", "json.gz", "parquet"]), default="json", show_default=True
)
@click.option("--master", help="Spark master; local[*] without it.")
def generate(  # noqa: PLR0917 - click passes them by name
    clients: int, outages: int, seed: int, out: Path, kind: str, master: str | None
) -> None:
    """Write telemetry of a generated fleet, with the faults that real telemetry has."""
    with plain_errors():
        from haclient.analysis import generate as fleet  # noqa: PLC0415  # pyspark may be missing

        with stopped_after(lambda: spark_session(master)) as session:
            made = fleet.generate(session, clients=clients, outages=outages, seed=seed)
            fleet.write(made, str(out), form=kind)
    click.echo(f"telemetry in {out}")
