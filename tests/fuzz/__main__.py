"""Fuzz: ``python -m tests.fuzz [TARGET ...]``. Without a name all targets run, each with its planted bug
first.

    --part F        the share of each target's usual executions, such as 0.01
    --runs N        a number of executions instead
    --seconds N     at most this long for each target
    --quiet N       end a target after N seconds of processor time without anything new (1,800)
    --seed N        another sequence of inputs
    --planted N     search for the planted bug N times, each with another seed (3)
    --jobs N        the number of targets at a time (1)
    --keep DIR      the folder for new inputs, logs and broken rules (default: a temporary folder)
    --merge         afterwards add to the corpus the inputs that reach new code

Exits with 0 if every search found its planted bug and no other defect appeared. An input may take a
second of processor time, and the process 512 MB.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import runs
from tests.fuzz.targets import NAMES

_OF_BYTES = "codec", "cluster_url", "configuration", "selector", "send_json", "store_headers"
_RUNS_OF_BYTES = 2_000_000
_RUNS_OF_LINKS = 200_000
# An input of bytes takes a tenth of a millisecond, an input for links ten.
_BYTES_UNTIL_PLANTED = 200_000
_UNTIL_PLANTED = 40_000
_QUIET = 1800.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    seed: int
    seconds: int
    quiet: float
    planted: int
    keep: Path

    merge: bool


def fuzz(target: str, most: int, options: Options) -> bool:
    """Fuzz one target; return whether all is well."""
    good = _finds_what_is_planted(target, options)
    flags = (f"-seed={options.seed}", f"-runs={most}", f"-max_total_time={options.seconds}")
    ended = runs.run(target, options.keep, *flags, quiet=options.quiet)
    _say(f"{target}: {ended}")
    if options.merge:
        _say(f"{target}: {runs.merge(target, options.keep)} inputs added to the corpus")
    for path in ended.broken:
        _say(f"{target}: broken by {path}")
    if ended.code:
        _say("".join(ended.tail))
    return good and not ended.broken and not ended.code


def _finds_what_is_planted(target: str, options: Options) -> bool:
    found = []
    most = _BYTES_UNTIL_PLANTED if target in _OF_BYTES else _UNTIL_PLANTED
    for seed in range(options.seed, options.seed + options.planted):
        flags = (f"-seed={seed}", f"-runs={most}")
        name = f"{target}-planted-{seed}"
        shutil.rmtree(options.keep / f"{name}-found", ignore_errors=True)
        shutil.rmtree(options.keep / name, ignore_errors=True)
        session = runs.run(target, options.keep, *flags, planted=True, name=name)
        if not session.broken:
            _say(f"{target}: the planted bug was NOT found with seed {seed}: {session}, code {session.code}")
            _say("".join(session.tail[-20:]))
            return False
        found.append(f"{session.executions:,} ({session.cpu:.1f} s)")
    if found:
        _say(f"{target}: the planted bug was found after {', '.join(found)}")
    return True


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    """Fuzz the targets on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", choices=[*NAMES, []])
    parser.add_argument("--part", type=float, default=1.0)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--quiet", type=float, default=_QUIET)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--planted", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--merge", action="store_true")
    given = parser.parse_args()
    keep = given.keep or Path(tempfile.mkdtemp(prefix="fuzz-"))
    options = Options(given.seed, given.seconds, given.quiet, given.planted, keep, given.merge)

    def one(target: str) -> bool:
        whole = _RUNS_OF_BYTES if target in _OF_BYTES else _RUNS_OF_LINKS
        return fuzz(target, given.runs or max(1, int(whole * given.part)), options)

    with ThreadPoolExecutor(given.jobs) as threads:
        good = all(list(threads.map(one, given.targets or NAMES)))
    if given.keep is None and good:
        shutil.rmtree(keep)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
