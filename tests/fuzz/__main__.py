"""Fuzz: ``python -m tests.fuzz [TARGET ...]``; all of them without a name, each with its planted bug first.

    --part F      a part of the executions that each target has, such as 0.01
    --runs N      so many instead
    --seconds N   at most so long for each target
    --seed N      another row of inputs
    --keep DIR    where new inputs of interest go, and what broke a rule (default: a temporary folder)
    --merge       afterwards add to the corpus what reaches code that nothing in it reaches

Ends with 0 when every planted bug was found and nothing else.  An input may take a second of processor
time and the process 512 MB.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import CORPUS
from tests.fuzz.targets import NAMES

_RUNS = {"codec": 2_000_000, "cluster_url": 2_000_000, "store": 2_000_000}
_RUNS_OF_LINKS = 200_000
_RUNS_UNTIL_PLANTED = 200_000
_FOUND = "crash-", "timeout-", "oom-", "slow-unit-"
_LARGEST = 4096
_STATISTICS = re.compile(r"stat::(\w+): +(\d+)")
_COVERAGE = re.compile(r"cov: (\d+)")


@dataclass(frozen=True, slots=True)
class Session:
    """How one session ended.

    :param statistics: libFuzzer's, by name.
    :param coverage: edges of the code, at the beginning and at the end.
    :param broken: the inputs that broke a rule.
    """

    code: int
    statistics: dict[str, int]
    coverage: tuple[int, int]
    broken: list[Path]
    output: str


def session(target: str, keep: Path, *flags: str, planted: bool = False, corpus: bool = True) -> Session:
    """Run one session in a process of its own."""
    found = keep / f"{target}-{'planted' if planted else 'found'}"
    fresh = keep / (f"{target}-planted-corpus" if planted else target)
    for folder in (fresh, found):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "tests.fuzz.session", target, "planted" if planted else "as-is"),
        *(f"-max_len={_LARGEST}", "-rss_limit_mb=512", "-print_final_stats=1", f"-artifact_prefix={found}/"),
        # Of wall time, on a machine that may be busy: the session itself measures processor time.
        "-timeout=60",
        *flags,
        str(fresh),
        *([str(CORPUS / target)] if corpus else []),
    ]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    seen = [int(number) for number in _COVERAGE.findall(ended.stderr)] or [0]
    return Session(
        code=ended.returncode,
        statistics={name: int(number) for name, number in _STATISTICS.findall(ended.stderr)},
        coverage=(seen[0], seen[-1]),
        broken=[path for path in sorted(found.iterdir()) if path.name.startswith(_FOUND)],
        output=ended.stderr,
    )


def fuzz(target: str, keep: Path, runs: int, seed: int, seconds: int) -> bool:
    """Fuzz one target; whether all is as it should be."""
    flags = (f"-seed={seed}", "-len_control=0")
    planted = session(target, keep, f"-runs={_RUNS_UNTIL_PLANTED}", *flags, planted=True)
    tried = planted.statistics.get("number_of_executed_units", 0)
    _say(f"{target}: the planted bug was {f'found after {tried:,}' if planted.broken else 'NOT found'}")
    if not planted.broken:
        _say(planted.output[-2000:])
    ended = session(target, keep, f"-runs={runs}", f"-max_total_time={seconds}", *flags)
    figures = ended.statistics
    _say(
        f"{target}: {figures.get('number_of_executed_units', 0):,} executions,"
        f" {figures.get('average_exec_per_sec', 0):,} a second,"
        f" edges {ended.coverage[0]:,} to {ended.coverage[1]:,}, {figures.get('peak_rss_mb', 0)} MB"
    )
    for path in ended.broken:
        _say(f"{target}: broken by {path}")
    if ended.code:
        _say(ended.output[-4000:])
    return bool(planted.broken) and not ended.broken and not ended.code


def merge(target: str, keep: Path) -> None:
    """Add to the corpus what reaches more."""
    folder = CORPUS / target
    before = len(list(folder.iterdir()))
    command = [sys.executable, "-m", "tests.fuzz.session", target, "as-is", "-merge=1"]
    subprocess.run([*command, str(folder), str(keep / target)], check=True, capture_output=True)
    _say(f"{target}: {len(list(folder.iterdir())) - before} inputs added to {before}")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    """Fuzz what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", choices=[*NAMES, []])
    parser.add_argument("--part", type=float, default=1.0)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--merge", action="store_true")
    options = parser.parse_args()
    keep = options.keep or Path(tempfile.mkdtemp(prefix="fuzz-"))
    good = True
    for target in options.targets or NAMES:
        runs = options.runs or max(1, int(_RUNS.get(target, _RUNS_OF_LINKS) * options.part))
        good &= fuzz(target, keep, runs, options.seed, options.seconds)
        if options.merge:
            merge(target, keep)
    if options.keep is None and good:
        shutil.rmtree(keep)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
