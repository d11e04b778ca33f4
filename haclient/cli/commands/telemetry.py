"""``haclient telemetry``: generate telemetry of a fleet, and print the format."""

from __future__ import annotations

from pathlib import Path

import click

from haclient.analysis.io.session import spark_session
from haclient.cli.options import plain_errors
from haclient.telemetry import schema as lines


@click.group()
def telemetry() -> None:
    """Telemetry: its format, and some to try the analysis on."""


@telemetry.command()
def schema() -> None:
    """Print the keys of a line, as a table in Markdown."""
    click.echo(lines.markdown_table(), nl=False)


@telemetry.command()
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

        session = spark_session(master)
        try:
            made = fleet.generate(session, clients=clients, outages=outages, seed=seed)
            fleet.write(made, str(out), form=kind)
        finally:
            session.stop()
    click.echo(f"telemetry in {out}")
