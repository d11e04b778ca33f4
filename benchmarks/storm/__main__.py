"""``python -m benchmarks.storm``: connect thousands of clients, kill their primary, count all messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from benchmarks.storm import report
from benchmarks.storm.environment import EnvironmentUnavailable
from benchmarks.storm.fleet import FleetError, Kind
from benchmarks.storm.progress import Bars
from benchmarks.storm.run import Plan, Standby, run
from broker_stub.local_cluster.member_process import MemberStartError
from haclient.cli.options import BROKEN, UnusableError
from haclient.command_line import interrupts
from haclient.errors import HaclientError
from haclient.simulation import plot as pictures


@click.command()
@click.option(
    "--client",
    "kind",
    type=click.Choice(get_args(Kind)),
    default="haclient",
    show_default=True,
    help="Whose connections: this client's, proton's Container's, or rhea's (node), both with their default "
    "reconnect.",
)
@click.option("--connections", type=click.IntRange(min=1), default=1_000, show_default=True)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Worker processes; proton takes one more for every 900 connections.",
)
@click.option(
    "--standby",
    type=click.Choice(get_args(Standby)),
    help="The URL option of that name, for haclient.  [default: the client's own]",
)
@click.option(
    "--accept-rate",
    default="",
    metavar="RATE",
    help="As `broker-stub serve` takes it.  [default: the member's]",
)
@click.option("--options", default="", metavar="A=1&B=2", help="More URL options, for haclient.")
@click.option(
    "--outage",
    type=click.FloatRange(min=0),
    default=3.0,
    show_default=True,
    help="Seconds between the kill and the promotion.",
)
@click.option(
    "--messages",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Messages a client, half of them before the kill.",
)
@click.option(
    "--established",
    type=click.IntRange(min=0),
    default=0,
    metavar="SENDERS",
    help="Then time the messages of so many connected senders while as many new clients connect at once.",
)
@click.option(
    "--members", type=click.IntRange(min=2), default=2, show_default=True, help="Of the local cluster."
)
@click.option("--url", default="", help="A cluster that runs, in place of a local one; with --kill.")
@click.option("--kill", "kill_command", default="", metavar="COMMAND", help="Kills that cluster's primary.")
@click.option(
    "--node-modules",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that has rhea, if node does not find it itself.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--deadline",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="Seconds after the kill at which those that are not back are counted as such.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a PNG.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page that needs no network."
)
def storm(*, as_json: bool, plot: Path | None, html: Path | None, **given: Any) -> None:
    """Connect many clients to a pair, kill its primary, and see how they come back.

    Exits with 1 when a client did not come back or a settled message is lost.
    """
    plan = plan_of(given)
    try:
        pictures.need_for(plot, html)
        with Bars() as bars:
            outcome = asyncio.run(run(plan, bars))
    except (
        pictures.NoPlotsError,
        FleetError,
        EnvironmentUnavailable,
        MemberStartError,
        HaclientError,
        TimeoutError,
    ) as error:
        raise UnusableError(str(error)) from error
    if as_json:
        click.echo(json.dumps(report.facts(outcome.figures, outcome.flood)))
    else:
        report.print_results(Console(), [outcome])
    report.draw([outcome], plot, html)
    if outcome.figures.back < outcome.figures.clients or outcome.figures.lost:
        raise click.exceptions.Exit(BROKEN)


def plan_of(given: dict[str, Any]) -> Plan:
    """Return the plan that the options describe."""
    if bool(given["url"]) != bool(given["kill_command"]):
        raise click.UsageError("--url and --kill go together")
    if given["standby"] is not None and given["kind"] != "haclient":
        raise click.UsageError(f"--standby is not for {given['kind']}")
    return Plan(**given)


if __name__ == "__main__":
    interrupts.command_starts()
    storm()
