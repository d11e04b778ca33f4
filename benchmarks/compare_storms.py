"""The same reconnect storm five times: haclient in three modes, proton's Container, and rhea.

In each storm, real connections are made to a local pair and its primary is killed (SIGKILL).  The backup is
promoted some seconds later, and all clients reconnect.  ``benchmarks.storm.figures`` describes the figures
and the measurement of mu.  All storms use the same kind of pair, one after the other in the same run:

- ``haclient, standby=none``: ``retry-after`` only, no client is parked;
- ``haclient, standby=outage``: parked by the passive member while there is no primary (the default);
- ``haclient, standby=warm``: parked in advance, in addition to the live connection;
- ``proton``: ``Container`` with its default reconnect;
- ``rhea``: node's client with its default reconnect (skipped without node and npm).

A connection flood follows the second storm: equally many newcomers at once, at a live primary, while twenty
connected senders time their messages.  It runs twice: with default placement, and with the primary on a
processor without the backup and the newcomers (kept apart), as in a cluster of separate machines.

``--broker rabbitmq`` does the same to a RabbitMQ node that is stopped and started (``rabbitmq_storm``).

Bars: all back, none gives up, nothing lost; for haclient the last one within 1.3 N/mu; the 99th percentile
of the connected senders within 3 times the value before.

Writes ``storm.png``, ``storm.html`` and ``storm.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import measure
from rich.console import Console

from benchmarks.storm import report
from benchmarks.storm.fleet import FleetError
from benchmarks.storm.progress import Bars
from benchmarks.storm.run import Outcome, Plan, run

_NODE = Path(__file__).resolve().parent / "node"
_ESTABLISHED = 20


def _plans(arguments: argparse.Namespace) -> list[Plan]:
    modules = _rhea()

    def plan(**given: object) -> Plan:
        return Plan(
            connections=arguments.connections,
            accept_rate=arguments.accept_rate,
            outage=arguments.outage,
            deadline=arguments.deadline,
            **given,
        )

    plans = [
        plan(standby="none"),
        plan(standby="outage", established=_ESTABLISHED, apart=True),
        plan(standby="warm"),
        plan(kind="proton"),
    ]
    if modules is not None:
        plans.append(plan(kind="rhea", node_modules=modules))
    return plans


def _rhea() -> Path | None:
    """Return rhea's folder; install rhea if it is missing and npm exists. ``None`` without node or npm."""
    modules = _NODE / "node_modules"
    if not (modules / "rhea").is_dir():
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            print("# rhea is left out: node or npm is missing")
            return None
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=_NODE, check=True, capture_output=True)
    return modules


def _outcome(plan: Plan, bars: Bars) -> list[Outcome]:
    """Run a storm; if another client's fleet fails, print only the reason."""
    try:
        return [asyncio.run(run(plan, bars))]
    except FleetError as error:
        if plan.kind == "haclient":
            raise
        print(f"{plan.name}: no figures: {error}", flush=True)
        return []


def _bars(outcome: Outcome) -> None:
    one = outcome.figures
    measure.print_bar(f"{one.name}: not back, or gave up", one.clients - one.back, 0, at_least=False, unit="")
    measure.print_bar(f"{one.name}: settled messages lost", one.lost, 0, at_least=False, unit="")
    if one.name.startswith("haclient"):
        measure.print_bar(f"{one.name}: last one back / (N/mu)", one.ratio, 1.3, at_least=False)
    for words, flood in (("", outcome.flood), (", kept apart", outcome.apart)):
        if flood is not None:
            what = f"{one.name}: p99 during / before newcomers{words}"
            measure.print_bar(what, flood.ratio, 3, at_least=False)


def _rabbitmq(arguments: argparse.Namespace) -> None:
    import rabbitmq_storm  # noqa: PLC0415 - the other storms need no RabbitMQ

    with measure.many_sockets(), Bars() as bars:
        rows = rabbitmq_storm.run_all(arguments, _rhea(), bars)
    arguments.out.mkdir(parents=True, exist_ok=True)
    rabbitmq_storm.report(rows, arguments.out)
    for row in rows:
        one = row.outcome.figures
        measure.print_bar(
            f"{one.name}: not back, or gave up", one.clients - one.back, 0, at_least=False, unit=""
        )
        measure.print_bar(f"{one.name}: settled messages lost", one.lost, 0, at_least=False, unit="")


def main() -> None:
    parser = measure.argument_parser(__doc__, connections=3_000)
    parser.add_argument("--accept-rate", default="", help="of every member; its own default if left out")
    parser.add_argument("--outage", type=float, default=3.0, help="seconds without a primary, default 3")
    parser.add_argument("--deadline", type=float, default=180.0, help="seconds that a storm may take")
    parser.add_argument("--broker", choices=("pair", "rabbitmq"), default="pair", help="default pair")
    parser.add_argument("--only", default="", help="storms whose name has this in it")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the files, default here")
    arguments = measure.parse_arguments(parser)
    measure.print_header("A real reconnect storm", arguments)
    if arguments.broker == "rabbitmq":
        _rabbitmq(arguments)
        return
    outcomes: list[Outcome] = []
    with measure.many_sockets(), Bars() as bars:
        for plan in _plans(arguments):
            if arguments.only in plan.name:
                bars.title(plan.name)
                outcomes += _outcome(plan, bars)
    if not outcomes:
        return
    report.print_results(Console(width=160), outcomes)
    for outcome in outcomes:
        _bars(outcome)
    arguments.out.mkdir(parents=True, exist_ok=True)
    report.draw(outcomes, arguments.out / "storm.png", arguments.out / "storm.html")
    facts = [report.facts(outcome.figures, outcome.flood, outcome.apart) for outcome in outcomes]
    (arguments.out / "storm.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
