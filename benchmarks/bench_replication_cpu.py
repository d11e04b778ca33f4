"""Processor seconds of both members for 10,000 replicated durable sends, before and after a change.

    python benchmarks/bench_replication_cpu.py --before REVISION

The revision is checked out into a temporary worktree.  Both sides take turns, each with fresh processes and
fresh stores: a pair with stores, warmed up, then the sends of one pipelined client.  The side that begins
alternates.  Only the members' seconds are compared, so the client of each side does not count, and other
work on the machine has little effect.  The geometric mean of the ratios has its 95 % interval, by Student's
t.  With ``--deliver early`` the queue of the changed side delivers early.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import measure
import proton

import haclient
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions, MemberState
from haclient import aio

_BAR = 1.05
_UNIT = 10_000
_WARM_UP = 2000
_TREE = Path(__file__).resolve().parent.parent
# Seconds for one side of one pair.
_PATIENCE = 300.0
# Student's t for a two-sided interval of 95 %, by degrees of freedom; above them the normal distribution's.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
_NORMAL95 = 1.96


# -- one side, in its own process -----------------------------------------------------------------------


async def _send(sender: aio.Sender, body: bytes, count: int) -> None:
    futures = [await sender.submit(haclient.Message(body=body, durable=True)) for _ in range(count)]
    await sender.flush()
    assert all(future.result().accepted for future in futures)


def _deliver_early(link: proton.Sender) -> None:
    link.target.properties.put_dict({proton.symbol("x-deliver"): "early"})


async def measure_side(messages: int, size: int, *, early: bool) -> dict[str, float]:
    """Return the members' processor seconds and the wall-clock seconds for ``_UNIT`` sends."""
    body = b"x" * size
    async with LocalCluster(LocalClusterOptions()) as pair, aio.connect(pair.url) as connection:
        await pair.wait_until(lambda _: any(each.state is MemberState.READY for each in pair.members), 60)
        sender = await connection.create_sender("bench", configure=_deliver_early if early else None)
        await _send(sender, body, _WARM_UP)
        pids = [each.process.pid for each in pair.members]
        assert all(pids), "both members run"
        before, began = sum(_cpu_seconds(pid) for pid in pids), time.perf_counter()
        await _send(sender, body, messages)
        wall = time.perf_counter() - began
        cpu = sum(_cpu_seconds(pid) for pid in pids) - before
    return {"cpu": cpu * _UNIT / messages, "wall": wall * _UNIT / messages}


def _cpu_seconds(pid: int | None) -> float:
    """Return the processor seconds of a process; not from ``measure``, which may differ in the other tree."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- both sides -------------------------------------------------------------------------------------


def run_side(tree: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure the code of a tree."""
    command = [sys.executable, str(Path(__file__).resolve()), "--side"]
    command += ["--messages", str(arguments.messages), "--size", str(arguments.size)]
    if tree == _TREE:
        command += ["--deliver", arguments.deliver]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, timeout=_PATIENCE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios, and its 95 % confidence interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return ratios[0], 0.0, math.inf
    freedom = len(logs) - 1
    t = _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def compare(before: Path, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Let both sides take turns; return the ratios after to before."""
    ratios: dict[str, list[float]] = {"cpu": [], "wall": []}
    print(f"\n  {'pair':>4}{'cpu before':>12}{'cpu after':>12}{'wall before':>13}{'wall after':>12}")
    for number in range(1, arguments.rounds + 1):
        trees = [before, _TREE] if number % 2 else [_TREE, before]
        sides = {tree: run_side(tree, arguments) for tree in trees}
        old, new = sides[before], sides[_TREE]
        for what, found in ratios.items():
            found.append(new[what] / old[what])
        print(
            f"  {number:>4}{old['cpu']:>12.2f}{new['cpu']:>12.2f}{old['wall']:>13.2f}{new['wall']:>12.2f}",
            flush=True,
        )
    return ratios


def main() -> None:
    parser = measure.argument_parser(__doc__, messages=20_000, rounds=10, size=100)
    parser.add_argument("--before", metavar="REVISION", help="what to compare with; nothing runs without")
    parser.add_argument("--deliver", choices=("committed", "early"), default="committed")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    arguments = measure.parse_arguments(parser)
    if arguments.side:
        logging.getLogger("haclient").setLevel(logging.ERROR)
        logging.getLogger("broker_stub").setLevel(logging.ERROR)
        early = arguments.deliver == "early"
        print(json.dumps(asyncio.run(measure_side(arguments.messages, arguments.size, early=early))))
        return
    measure.print_header("Both members' processors for 10,000 replicated durable sends", arguments)
    if arguments.before is None:
        print("\n  --before REVISION says what this is compared with")
        return
    with measure.worktree(arguments.before) as before:
        ratios = compare(before, arguments)
    print()
    for what, name in (("cpu", "processors"), ("wall", "wall")):
        mean, low, high = interval(ratios[what])
        print(f"  {name}: after/before {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    _, _, high = interval(ratios["cpu"])
    measure.print_bar("processors, the upper bound", high, _BAR, at_least=False)


if __name__ == "__main__":
    main()
