"""Count the mutants that the tests kill: ``python -m tests.mutants [FOLDER ...]``.

    --count N       mutants of each folder (30)
    --seed N        another sample
    --jobs N        copies of the checkout that work at the same time (2)
    --json FILE     one line for each mutant

A mutant is one small change of the code, made by Cosmic Ray: another operator, constant or condition.
``FOLDERS`` names the tests that look at a folder.  Each mutant meets the tests of ``make test`` first, and a
survivor then meets the tests marked ``slow``: "by test-all" counts both.  A mutant also counts as killed
when its tests take a minute more than three times as long as usual with all jobs at work.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent

# The tests that look at a folder, the nearest first: most mutants die there.
FOLDERS = {
    "haclient/discovery": (
        "tests/discovery",
        "tests/core",
        "tests/simulation",
        "tests/benchmarks/grid",
        "tests/api",
        "tests/failover",
    ),
    "haclient/core": ("tests/core", "tests/api", "tests/failover", "tests/dropin"),
    "broker_stub/queueing": (
        "tests/broker_stub/queueing",
        "tests/broker_stub/connections",
        "tests/broker_stub/durability",
        "tests/broker_stub/management",
        "tests/broker_stub/replication",
    ),
    "broker_stub/replication": (
        "tests/broker_stub/replication",
        "tests/broker_stub/durability",
        "tests/broker_stub/member",
        "tests/faults",
    ),
    "haclient/analysis": ("tests/analysis",),
}
_COPIED = ("haclient", "broker_stub", "tests", "examples", "docs", "scripts", "benchmarks")
_ELSEWHERE = "not soak and not pacemaker and not brokers and not spark"
KEPT, SLOW = f"{_ELSEWHERE} and not slow", f"{_ELSEWHERE} and slow"
# pytest's exit codes: all passed, and no tests.
_PASSED = (0, 5)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    :param operator: Cosmic Ray's name of it.
    :param occurrence: the number of the place, among those in the file that the operator can change.
    """

    path: str
    line: int
    operator: str
    occurrence: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of a mutant.

    :param killed_by: ``kept`` (a test of ``make test``), ``slow`` or ``none``.
    """

    mutant: Mutant
    killed_by: str
    seconds: float


def mutants(folder: str, count: int, seed: int) -> list[Mutant]:
    """Draw places of the folder's code at random, and for each place one operator."""
    places: dict[tuple[str, tuple[int, int]], list[Mutant]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for place, mutant in _mutants_of_file(path):
            places.setdefault((mutant.path, place), []).append(mutant)
    rng = random.Random(f"{folder} {seed}")
    drawn = rng.sample(sorted(places), min(count, len(places)))
    return [rng.choice(places[place]) for place in drawn]


def _mutants_of_file(path: Path) -> Iterator[tuple[tuple[int, int], Mutant]]:
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast_from_path(path)))
    inert = _annotation_lines(path)
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        found = (place for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(found):
            if not (start[0] in inert and "BitOr" in name):
                yield start, Mutant(path.relative_to(ROOT).as_posix(), start[0], name, occurrence)


def _annotation_lines(path: Path) -> set[int]:
    """Lines with an annotation: another operator in ``int | None`` changes nothing."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parts = [each.annotation for each in given] + [node.returns]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        else:
            continue
        for part in parts:
            if part is not None:
                lines |= set(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return lines


class Copy:
    """A copy of the checkout in which one mutant at a time lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ROOT.iterdir():
            if file.is_file():
                shutil.copy(file, folder)

    def passes(self, tests: tuple[str, ...], marks: str, limit: float | None) -> bool:
        """Run tests until one fails. Tests that exceed ``limit`` seconds count as failed."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marks, *tests]
        with subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # pytest ends its fixtures, and with them the members
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                return False
        return code in _PASSED

    def judge(self, mutant: Mutant, tests: tuple[str, ...], limits: dict[str, float]) -> Verdict:
        """Apply a mutant, run the tests, and take the mutant back."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        path, began = self.folder / mutant.path, time.monotonic()
        code = path.read_text()
        path.write_text(mutate_code(code, get_operator(mutant.operator)(), mutant.occurrence))
        try:
            killed_by = next(
                (name for name, marks in _STAGES if not self.passes(tests, marks, limits[name])), "none"
            )
        finally:
            path.write_text(code)
        return Verdict(mutant, killed_by, round(time.monotonic() - began, 1))


_STAGES = (("kept", KEPT), ("slow", SLOW))


def _judge_folder(folder: str, copies: SimpleQueue[Copy], options: argparse.Namespace) -> list[Verdict]:
    tests = FOLDERS[folder]

    def judge(mutant: Mutant) -> Verdict:
        copy = copies.get()
        try:
            verdict = copy.judge(mutant, tests, limits)
        finally:
            copies.put(copy)
        _say(
            f"{verdict.killed_by:>5} {verdict.seconds:6.1f} s  {mutant.path}:{mutant.line} {mutant.operator}"
        )
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
        return verdict

    copy, limits = copies.get(), {}
    for name, marks in _STAGES:
        began = time.monotonic()
        if not copy.passes(tests, marks, None):
            raise SystemExit(f"the tests of {folder} ({name}) fail without a mutant")
        limits[name] = 60 + 3 * options.jobs * (time.monotonic() - began)
    copies.put(copy)
    with ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(judge, mutants(folder, options.count, options.seed)))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Judge the folders that are named, or all."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folders = options.folders or list(FOLDERS)
    if unknown := set(folders) - set(FOLDERS):
        parser.error(f"no tests are known for {', '.join(sorted(unknown))}; there are {', '.join(FOLDERS)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(Copy(Path(folder) / str(number)))
        for each in folders:
            counts = Counter(verdict.killed_by for verdict in _judge_folder(each, copies, options))
            rows.append((each, counts))
    _say(f"{'folder':26} {'mutants':>8} {'by test':>8} {'by test-all':>12} {'survived':>9}")
    for each, counts in rows:
        kept, every = counts["kept"], counts["kept"] + counts["slow"]
        _say(f"{each:26} {counts.total():8} {kept:8} {every:12} {counts['none']:9}")


if __name__ == "__main__":
    main()
