"""Time of a connect and memory of an idle connection by SASL mechanism, before and after a change.

    python benchmarks/bench_connect.py [--before REVISION]

The revision is checked out into a temporary worktree.  Both sides take turns, each with a member and a client
of its own code in fresh processes; the side that begins alternates.  The numbers are medians of the rounds:

*  ms: from ``aio.connect`` to the Open of the member, one connect after the other, without TLS;
*  cpu: processor milliseconds of client and member for it, less affected by other work of the machine;
*  KiB: resident memory of client and member for each of the connections, while all are open.

Bar: cpu and memory after the change are at most 1.03 times those before.

Members that keep salted keys, and no passwords, compute the key of each password that PLAIN sends: some 5 ms
more than members that compare passwords.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import measure

_TREE = Path(__file__).resolve().parent.parent
_MECHANISMS = ("ANONYMOUS", "PLAIN", "SCRAM-SHA-256")
_UNITS = ("ms", "cpu", "KiB")
_BAR = 1.03
# Seconds for one side of one round.
_PATIENCE = 300.0

# Runs in a process of its own, with the code of a tree.
_SIDE = """
import asyncio, json, os, subprocess, sys, tempfile, time
from haclient import aio

mechanism, count = sys.argv[1], int(sys.argv[2])

def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def kib(pid):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

async def run(url, member):
    async def connects(number):
        return [await aio.connect(url) for _ in range(number)]

    kept = await connects(20)  # loads what is loaded once
    memory, used = kib(os.getpid()) + kib(member), cpu(os.getpid()) + cpu(member)
    began = time.perf_counter()
    kept += await connects(count)
    seconds = time.perf_counter() - began
    used = cpu(os.getpid()) + cpu(member) - used
    memory = kib(os.getpid()) + kib(member) - memory
    for connection in kept:
        await connection.close()
    return {"ms": seconds / count * 1e3, "cpu": used / count * 1e3, "KiB": memory / count}

with tempfile.NamedTemporaryFile("w", suffix=".users") as users:
    users.write("app:word\\n")
    users.flush()
    command = [sys.executable, "-m", "broker_stub", "serve", "--json", "--log-level", "error"]
    command += ["--role", "primary", "--listen", "127.0.0.1:0", "--exit-with-parent", str(os.getpid())]
    command += ["--accept-rate", "unlimited"]
    if mechanism != "ANONYMOUS":
        command += ["--users", users.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as member:
        address = json.loads(member.stdout.readline())["address"]
        who = "" if mechanism == "ANONYMOUS" else "app:word@"
        url = f"amqp://{who}{address}?sasl_mechanisms={mechanism}"
        try:
            print(json.dumps(asyncio.run(run(url, member.pid))))
        finally:
            member.terminate()
"""

Figures = dict[str, dict[str, list[float]]]


def measure_side(tree: Path, mechanism: str, count: int) -> dict[str, float]:
    """Run one round of the code of a tree."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SIDE, mechanism, str(count)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        timeout=_PATIENCE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _rounds(trees: dict[str, Path], arguments: argparse.Namespace) -> dict[str, Figures]:
    found: dict[str, Figures] = {
        name: {side: {unit: [] for unit in _UNITS} for side in trees} for name in _MECHANISMS
    }
    for number in range(arguments.rounds + 1):
        for mechanism in _MECHANISMS:
            for side in list(trees) if number % 2 else list(reversed(trees)):
                values = measure_side(trees[side], mechanism, arguments.connections)
                for unit in _UNITS if number else ():  # the first round compiles the code
                    found[mechanism][side][unit].append(values[unit])
    return found


def _print(found: dict[str, Figures]) -> None:
    print(f"\n  {'median':<24}" + "".join(f"{side:>10}" for side in found[_MECHANISMS[0]]))
    for mechanism, sides in found.items():
        for unit in _UNITS:
            cells = (f"{statistics.median(values[unit]):>10.2f}" for values in sides.values())
            print(f"  {f'{mechanism}, {unit}':<24}" + "".join(cells))


def main() -> None:
    parser = measure.argument_parser(__doc__, rounds=7)
    parser.add_argument("--before", metavar="REVISION", help="what to compare with")
    parser.add_argument("--connections", type=int, default=300, help="of each round, default 300")
    arguments = measure.parse_arguments(parser)
    measure.print_header("Connecting", arguments)
    if arguments.before is None:
        _print(_rounds({"today": _TREE}, arguments))
        return
    with measure.worktree(arguments.before) as before:
        found = _rounds({"before": before, "after": _TREE}, arguments)
    _print(found)
    print()
    for mechanism, sides in found.items():
        for unit in ("cpu", "KiB"):
            pairs = zip(sides["after"][unit], sides["before"][unit], strict=True)
            ratio = statistics.median(after / former for after, former in pairs)
            measure.print_bar(f"{mechanism}, {unit}", ratio, _BAR, at_least=False)


if __name__ == "__main__":
    main()
