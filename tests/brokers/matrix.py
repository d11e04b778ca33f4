"""The matrix: clusters x programs x faults. Runs each cell under load and records the clients' losses.

    python -m tests.brokers.matrix                                # a subset with every pair
    python -m tests.brokers.matrix --whole --resume               # all cells that do not hold yet
    python -m tests.brokers.matrix --only "pair kill" --kills 20  # these cells, 20 kills each

It appends a row to the results file for each cell. At the end it prints two tables of the whole file: by
cell, and by cluster and fault. It exits with 1 if a cell of this run does not hold. Programs on other
clients (``cells.OTHER_CLIENTS``) have rows for comparison, which may fail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tests.brokers import clusters, results
from tests.brokers.cells import OTHER_CLIENTS, Cell, every, of_other_clients, pairwise
from tests.brokers.results import Row
from tests.brokers.run import STABLE_AFTER, Job, run
from tests.brokers.topology import Fault, Launch
from tests.interop.clients.building import MissingClientError
from tests.interop.clients.toolchains import CLIENTS

RESULTS = Path(__file__).resolve().parents[2] / ".brokers" / "results.jsonl"
_ROOT = Path(__file__).resolve().parents[2]
_SHORT = {
    Cell("artemis-locked", "asyncio", Fault.KILL): 2,
    Cell("broker-j", "asyncio", Fault.MOVE): 1,
    Cell("rabbitmq4", "asyncio", Fault.KILL): 2,
    Cell("activemq", "asyncio", Fault.KILL): 2,
}
"""Repetitions of each fault in the short run."""
_SHORT_STABLE_AFTER = 1.0
"""Seconds. The default would make most of a short run a pause between faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of one run.

    :param cells: the cells, with the number of faults for each.
    :param results: the file that rows are appended to.
    :param keep: keep the histories and logs of cells that hold, too.
    :param stable_after: see ``run.Job``.
    """

    cells: dict[Cell, int]
    seed: int
    results: Path
    keep: bool = False
    stable_after: float = STABLE_AFTER


def faults() -> dict[str, frozenset[Fault]]:
    """Return the faults of each cluster that can be started here."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: clusters.launch(name, Launch(Path(folder) / name)).faults
            for name in clusters.NAMES
            if not clusters.missing(name)
        }


def selected(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the cells that contain every word of at least one of these texts."""
    wanted = [set(text.split()) for text in only]
    return [cell for cell in cells if not wanted or any(words <= set(str(cell).split()) for words in wanted)]


async def run_cells(plan: Plan) -> bool:
    """Run the cells one after the other. Return whether all that could run hold, and at least one ran."""
    holds, ran = True, not plan.cells
    for number, (cell, times) in enumerate(plan.cells.items(), 1):
        click.echo(f"[{number} of {len(plan.cells)}] {cell}, {times} times")
        row = await _run_cell(cell, plan, times)
        results.append(plan.results, row)
        holds &= row.holds or bool(row.skipped) or cell.program in OTHER_CLIENTS
        ran |= not row.skipped
        _report(row)
    return holds and ran


async def _run_cell(cell: Cell, plan: Plan, times: int) -> Row:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    facts: dict[str, Any] = {"commit": commit(), "seed": plan.seed, "date": date}
    names: dict[str, Any] = {"cluster": cell.cluster, "program": cell.program, "fault": cell.fault.value}
    if reason := clusters.missing(cell.cluster) or _missing(cell.program):
        return Row(**facts, **names, skipped=reason)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="brokers-"))
    histories = folder / "histories"
    histories.mkdir()
    cluster = clusters.launch(cell.cluster, Launch(folder / "cluster", cell.fault))
    seed = random.Random(f"{plan.seed} {cell}").getrandbits(32)
    job = Job(
        cell=cell,
        folder=histories,
        times=times,
        seed=seed,
        report=_indented,
        stable_after=plan.stable_after,
    )
    done = await run(job, cluster)
    judged = done.judgement
    counted = ("sent", "settled", "refused", "unknown", "missing", "doubled", "redelivered")
    measured = ("outages", "shares", "errors", "next_dials", "handshakes", "most_dials", "smallest_gap")
    row = Row(
        **facts,
        **names,
        version=done.version,
        times=len(done.faults) if judged else 0,
        **({name: getattr(judged, name) for name in (*counted, *measured)} if judged else {}),
        wrong=done.wrong,
        broken=done.broken,
        seconds=round(time.monotonic() - began, 1),
        load=round(os.getloadavg()[0], 1),
    )
    if row.holds and not plan.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        click.echo(f"    histories and logs: {folder}")
    return row


def _missing(program: str) -> str:
    """Build a program's dependencies. Return why that is impossible, or an empty text."""
    for client in CLIENTS:
        if client.name == program:
            try:
                client.command()
            except MissingClientError as error:
                return str(error)
    return ""


def _indented(text: str) -> None:
    click.echo(f"    {text}")


def _report(row: Row) -> None:
    if row.skipped:
        _indented(f"skipped: {row.skipped}")
        return
    for text in (*row.wrong, *([f"could not be run: {row.broken}"] if row.broken else [])):
        _indented(text)
    outage, share = results.spread(row.outages), results.spread(row.shares)
    dial, handshake = results.spread(row.next_dials), results.spread(row.handshakes)
    click.echo(
        f"    {'holds' if row.holds else 'DOES NOT HOLD'}: {row.settled:,} settled, {row.missing} missing,"
        f" {row.doubled} doubled, {row.redelivered} redelivered, outage {outage}, the client's {share},"
        f" next dial {dial}, handshake {handshake}, at most {row.most_dials} dials a second,"
        f" {results.shown_gap(row.smallest_gap)} apart,"
        f" {row.seconds:.0f} s"
    )


def commit() -> str:
    """Return the commit of this repository, with a ``+`` if there are uncommitted changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(_ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + changed


@click.command(context_settings={"show_default": True})
@click.option("--whole", is_flag=True, help="Every cell, not only a subset that has every pair.")
@click.option("--short", is_flag=True, help="The few cells of a continuous build.")
@click.option(
    "--only", multiple=True, metavar="WORDS", help='Cells with these words, as "artemis-locked kill".'
)
@click.option("--kills", "times", type=click.IntRange(min=1), default=2, help="Faults in each cell.")
@click.option("--seed", type=int, help="What decides on sizes and pauses.  [default: a new one]")
@click.option(
    "--results", "path", type=click.Path(path_type=Path), default=RESULTS, help="The file of results."
)
@click.option("--resume", is_flag=True, help="Leave out the cells that hold in the file of results.")
@click.option("--keep", is_flag=True, help="Keep the histories and logs of cells that hold as well.")
@click.option("--show", is_flag=True, help="Run nothing; print the tables of the file.")
def main(
    *,
    whole: bool,
    short: bool,
    only: tuple[str, ...],
    times: int,
    seed: int | None,
    path: Path,
    resume: bool,
    keep: bool,
    show: bool,
) -> None:
    """Run cells of the matrix, and print the file of results."""
    logging.getLogger("broker_stub").setLevel(logging.CRITICAL)
    skipped = {name: reason for name in clusters.NAMES if (reason := clusters.missing(name))}
    holds = True
    if not show:
        for name, reason in skipped.items():
            click.echo(f"skipped: {name}: {reason}")
        cells = _SHORT if short else dict.fromkeys(_chosen(only, whole=whole), times)
        held = {row.cell for row in results.read(path) if row.holds} if resume else set()
        left = {cell: n for cell, n in cells.items() if (cell[0], cell[1], cell[2].value) not in held}
        seed = secrets.randbits(32) if seed is None else seed
        stable_after = _SHORT_STABLE_AFTER if short else STABLE_AFTER
        plan = Plan(cells=left, seed=seed, results=path, keep=keep, stable_after=stable_after)
        click.echo(f"{len(left)} cells, seed {plan.seed}, results in {path}")
        holds = asyncio.run(run_cells(plan))
    rows = results.read(path)
    click.echo(f"\n{results.cells_table(rows)}\n\n{results.sums_table(rows)}")
    for name, reason in skipped.items():
        click.echo(f"skipped: {name}: {reason}")
    sys.exit(not holds)


def _chosen(only: Sequence[str], *, whole: bool) -> list[Cell]:
    """Return the chosen cells. A word that names a cell outside the subset adds that cell."""
    can_be_made = faults()
    cells, others = every(can_be_made), of_other_clients(can_be_made)
    if unknown := [text for text in only if not selected([*cells, *others], [text])]:
        raise click.UsageError(f"no cell that can be run here has all these words: {', '.join(unknown)}")
    return selected([*cells, *others], only) if whole or only else [*pairwise(cells), *others]


if __name__ == "__main__":
    main()
