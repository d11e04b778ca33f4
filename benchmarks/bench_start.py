"""Start times of a pair and a single member, and a member's memory, before and after a change.

    python benchmarks/bench_start.py [--before REVISION]

The revision is checked out into a temporary worktree; both sides take turns, and the side that begins
alternates.  The numbers are medians of the rounds:

*  pair: seconds from the command ``broker-stub pair`` to the line with the cluster URL;
*  pair_cpu: processor seconds of all its processes until then, less affected by other work of the machine;
*  member: resident memory of each member (VmRSS) when the URL is printed;
*  process: seconds that ``haclient.testing.broker()`` takes, and in_process: ``in_process_broker()``; each
   from the second one of a process on, as in a test suite.

Aims: 0.8 s and 40 MB on an idle machine; 0.1 s for the member in the test's process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import measure

_TREE = Path(__file__).resolve().parent.parent
_PAIR_AIM, _MEMBER_AIM, _IN_PROCESS_AIM = 0.8, 40.0, 0.1
# Seconds for one side of one round.
_PATIENCE = 120.0
_UNITS = {"pair": "s", "pair_cpu": "s", "member": "MB", "process": "s", "in_process": "s"}

_MEMBERS = """
import json, time
from haclient import testing

def seconds(start):
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        with start():
            taken.append(time.perf_counter() - began)
    return min(taken[1:])

starts = {"process": testing.broker, "in_process": getattr(testing, "in_process_broker", None)}
print(json.dumps({name: seconds(start) for name, start in starts.items() if start}))
"""


def measure_side(tree: Path) -> dict[str, float]:
    """Run one round of the code of a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _MEMBERS],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        timeout=_PATIENCE,
        check=True,
    )
    return {**_start_pair(tree, environment), **json.loads(done.stdout)}


def _start_pair(tree: Path, environment: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "broker_stub", "pair", "--log-level", "error"]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not any(line.startswith("cluster URL:") for line in process.stdout):
                raise RuntimeError(f"the pair did not start: exit code {process.wait(_PATIENCE)}")
            seconds = time.perf_counter() - began
            members = _children(process.pid)
            return {
                "pair": seconds,
                "pair_cpu": sum(map(measure.cpu_seconds, [process.pid, *members])),
                "member": statistics.fmean(measure.resident_kib(pid) * 1024 / 1e6 for pid in members),
            }
        finally:
            process.terminate()
            process.communicate()  # reads the remaining output


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for listing in Path(f"/proc/{pid}/task").glob("*/children")
        for child in listing.read_text().split()
    ]


def main() -> None:
    parser = measure.argument_parser(__doc__, rounds=10)
    parser.add_argument("--before", metavar="REVISION", help="what to compare with")
    arguments = measure.parse_arguments(parser)
    measure.print_header("Starting a pair and a member", arguments)
    if arguments.before is None:
        found = {"today": _rounds({"today": _TREE}, arguments)["today"]}
    else:
        with measure.worktree(arguments.before) as before:
            found = _rounds({"before": before, "after": _TREE}, arguments)
    _print_medians(found)
    print()
    today = list(found.values())[-1]
    measure.print_bar("pair", statistics.median(today["pair"]), _PAIR_AIM, at_least=False, unit=" s")
    measure.print_bar("member", statistics.median(today["member"]), _MEMBER_AIM, at_least=False, unit=" MB")
    if in_process := today.get("in_process"):
        seconds = statistics.median(in_process)
        measure.print_bar("member in process", seconds, _IN_PROCESS_AIM, at_least=False, unit=" s")


def _rounds(trees: dict[str, Path], arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {side: {} for side in trees}
    for tree in trees.values():
        measure_side(tree)  # compiles it
    for number in range(arguments.rounds):
        sides = list(trees) if number % 2 else list(reversed(trees))
        for side in sides:
            for what, value in measure_side(trees[side]).items():
                found[side].setdefault(what, []).append(value)
    return found


def _print_medians(found: dict[str, dict[str, list[float]]]) -> None:
    print(f"\n  {'median':<16}" + "".join(f"{side:>10}{'lowest':>10}" for side in found))
    for what, unit in _UNITS.items():
        cells = [
            f"{statistics.median(v):>10.3f}{min(v):>10.3f}" if (v := side.get(what)) else f"{'-':>20}"
            for side in found.values()
        ]
        print(f"  {f'{what}, {unit}':<16}" + "".join(cells))


if __name__ == "__main__":
    main()
