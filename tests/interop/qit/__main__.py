"""Runs the matrix: ``python -m tests.interop.qit CHECKOUT --broker pair --out results.jsonl``.

The checkout is qpid-interop-test 2.0, with its shims' dependencies: rhea from npm in
``shims/javascript-rhea``, the jar in ``shims/java-qpid-jms``. A shim that cannot run is skipped, with
the reason. ``python -m tests.interop.qit.page`` makes the page of the results.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TextIO

from tests.interop.qit.brokers import Killer, running
from tests.interop.qit.cases import SUITES
from tests.interop.qit.checkout import Shim, shims
from tests.interop.qit.results import CaseResult
from tests.interop.qit.runner import Runner


def main() -> int:
    """Run the matrix; return 1 if haclient or the pair is at fault for a failure."""
    arguments = _parser().parse_args()
    chosen = _choose(shims(arguments.checkout), arguments.shims.split(",") if arguments.shims else None)
    with arguments.out.open("a") as out:
        return asyncio.run(_run(arguments, chosen, out))


def _choose(found: list[Shim], wanted: list[str] | None) -> list[Shim]:
    chosen = []
    for shim in found:
        if wanted is not None and shim.key not in wanted:
            continue
        if shim.missing:
            sys.stderr.write(f"skipped: {shim.key}: {shim.missing}\n")
        else:
            chosen.append(shim)
    return chosen


async def _run(arguments: argparse.Namespace, chosen: list[Shim], out: TextIO) -> int:
    failed = 0
    ours = {shim.key for shim in chosen if shim.fails_over}
    async with running(arguments.broker) as broker:
        durable = arguments.killed and not broker.keeps_all
        for shim in chosen:
            if durable and shim.speaks_jms:
                sys.stderr.write(
                    f"skipped as a sender: {shim.key}: its messages do not survive a kill here\n"
                )
        jobs = asyncio.Semaphore(1 if arguments.killed else arguments.jobs)

        async def run(sender: Shim) -> None:
            nonlocal failed
            receivers = tuple(
                receiver
                for receiver in chosen
                if not arguments.ours or sender.fails_over or receiver.fails_over or receiver is sender
            )
            kills = Killer(broker, arguments.pause) if arguments.killed else contextlib.nullcontext()
            async with jobs, kills as killer:
                runner = Runner(broker, arguments.checkout, sender, receivers, killer, durable)
                async for result in runner.results(arguments.suites.split(",")):
                    out.write(result.as_json() + "\n")
                    out.flush()
                    failed += sum(item.fault in ours for item in result.items)
                    _print(result)

        async with asyncio.TaskGroup() as group:
            for sender in chosen:
                if arguments.senders is None or sender.key in arguments.senders.split(","):
                    group.create_task(run(sender))
    return 1 if failed else 0


def _print(result: CaseResult) -> None:
    failed = [item for item in result.items if item.problem]
    good = len(result.items) - len(failed)
    pair, case = f"{result.sender} -> {result.receiver}", f"{result.suite} {result.case}"
    lines = [f"{result.mode} {pair} {case}: {good} of {len(result.items)}, {result.kills} kills"]
    lines.extend(f"    {item.problem} [{item.fault}]" for item in failed)
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Runs qpid-interop-test's shims and ours over a broker.")
    parser.add_argument("checkout", type=Path, help="of qpid-interop-test 2.0")
    parser.add_argument("--broker", default="pair", help="pair, a cluster of tests.brokers, or a URL")
    parser.add_argument("--suites", default=",".join(SUITES), help="some of " + ", ".join(SUITES))
    parser.add_argument("--shims", help="some of them, by the names of their folders")
    parser.add_argument("--senders", help="some of those, as senders; each is a receiver in any case")
    parser.add_argument("--ours", action="store_true", help="leave out pairs of two different foreign shims")
    parser.add_argument("--killed", action="store_true", help="kill the primary while they run")
    parser.add_argument(
        "--pause", type=float, default=1.0, help="seconds from a whole cluster to the next kill"
    )
    parser.add_argument("--jobs", type=int, default=2, help="senders at a time, where nothing is killed")
    parser.add_argument("--out", type=Path, default=Path("qit-results.jsonl"), help="results are added to it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
