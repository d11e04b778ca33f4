"""Sessions of libFuzzer, each a separate process, and their output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.target import CORPUS, is_merged

_FOUND = "crash-", "timeout-", "oom-", "slow-unit-"
_LARGEST = 4096
_MOST_MEGABYTES = 512
# Seconds of wall time, for a busy machine. The session itself measures processor time.
_TIMEOUT = 60
_STATISTICS = re.compile(r"stat::(\w+): +(\d+)")
_COVERAGE = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+)")
_SLOWEST = re.compile(r"slowest: ([\d.]+) s")
_QUIET = re.compile(r"quiet: (\d+) executions")
_TAIL = 60


@dataclass(slots=True)
class Session:
    """The result of one session.

    :ivar coverage: edges of the code, at the beginning and at the end.
    :ivar last_new: the execution and the second of processor time of the last new input.
    :ivar slowest: the longest processor time of an input, in seconds.
    :ivar broken: the inputs that broke a rule.
    """

    code: int = 0
    executions: int = 0
    cpu: float = 0.0
    coverage: tuple[int, int] = (0, 0)
    last_new: tuple[int, float] = (0, 0.0)
    slowest: float = 0.0
    megabytes: int = 0
    quiet: bool = False
    broken: list[Path] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    def read(self, line: str, process: int) -> None:
        """Evaluate one line that the session prints."""
        self.tail = [*self.tail[-_TAIL:], line]
        if (found := _COVERAGE.search(line)) is not None:
            self.executions, edges = int(found[1]), int(found[2])
            first, last = self.coverage
            if edges > last:
                self.last_new = self.executions, _cpu(process)
            self.coverage = first or edges, max(last, edges)
        elif (found := _SLOWEST.match(line)) is not None:
            self.slowest = float(found[1])
        elif (found := _QUIET.match(line)) is not None:
            self.executions, self.quiet = int(found[1]), True
        elif (found := _STATISTICS.match(line)) is not None:
            if found[1] == "number_of_executed_units":
                self.executions = int(found[2])
            elif found[1] == "peak_rss_mb":
                self.megabytes = int(found[2])

    def __str__(self) -> str:
        at, after = self.last_new
        rate = self.executions / max(self.cpu, 0.01)
        return (
            f"{self.executions:,} executions{', then quiet' if self.quiet else ''},"
            f" {self.cpu:,.0f} s of processor time, {rate:,.0f} a second;"
            f" edges {self.coverage[0]:,} to {self.coverage[1]:,}, the last at {at:,} ({after:,.0f} s);"
            f" slowest {1000 * self.slowest:.0f} ms, {self.megabytes} MB"
        )


def run(
    target: str, keep: Path, *flags: str, planted: bool = False, quiet: float = 0.0, name: str = ""
) -> Session:
    """Run one session.

    :param keep: the parent of the folders for new inputs and for inputs that break a rule, and of the
        log.
    :param quiet: end after this many seconds of processor time without a new input; 0 for never.
    :param name: the name of the folders; the target's by default.
    """
    fresh = keep / (name or target)
    found = (keep / f"{fresh.name}-found").absolute()
    for folder in (fresh, found):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "tests.fuzz.session", target, "planted" if planted else "as-is"),
        *(str(quiet), str(fresh), str(found)),
        *(f"-max_len={_LARGEST}", f"-rss_limit_mb={_MOST_MEGABYTES}", f"-timeout={_TIMEOUT}"),
        *("-len_control=0", "-print_final_stats=1", f"-artifact_prefix={found}/"),
        *(*flags, str(fresh), str(CORPUS / target)),
    ]
    if planted:
        # Inputs added by a merge may already trigger the bug, which would prove nothing.
        command[-1] = str(_copied_seeds(target, keep / f"{fresh.name}-seeds"))
    session = Session()
    with (
        (keep / f"{fresh.name}.log").open("w") as log,
        subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=log, text=True, errors="replace", env=_environment()
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            log.write(line)
            log.flush()
            session.read(line, process.pid)
        _, status, used = os.wait4(process.pid, 0)
        session.code = process.returncode = os.waitstatus_to_exitcode(status)
    session.cpu = used.ru_utime + used.ru_stime
    session.megabytes = session.megabytes or used.ru_maxrss // 1024
    session.broken = [path for path in sorted(found.iterdir()) if path.name.startswith(_FOUND)]
    return session


def merge(target: str, keep: Path) -> int:
    """Add to the corpus the inputs of ``keep`` that reach new code; return their number.

    The number of hits is ignored, to keep the corpus small.
    """
    folder = CORPUS / target
    before = len(list(folder.iterdir()))
    command = [sys.executable, "-m", "tests.fuzz.session", target, "as-is", "0", "", ""]
    flags = "-set_cover_merge=1", "-use_counters=0", str(folder), str(keep / target)
    subprocess.run([*command, *flags], check=True, capture_output=True, env=_environment())
    return len(list(folder.iterdir())) - before


def _copied_seeds(target: str, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in (CORPUS / target).iterdir():
        if not is_merged(path):
            shutil.copy(path, folder)
    return folder


def _environment() -> dict[str, str]:
    """Return the environment with fixed text hashes, so that an input behaves the same in each run."""
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _cpu(process: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
