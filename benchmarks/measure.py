"""Shared parts of the benchmarks: a broker process, interleaved rounds, medians, ratios.

Rules
-----
* The contestants of a benchmark take turns (A B A B ...) against the same broker process in the same run. So
  other work of the machine affects all of them equally.
* A number is the median over the rounds; a ratio is made of medians of the same run.
* ``cpu`` is the processor time of this process, all threads, user and system. It excludes the broker's work
  and all waiting.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_SOURCES = Path(__file__).resolve().parent.parent
_STOP_TIMEOUT = 5.0


# -- one measurement ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """The duration of ``count`` operations, in seconds."""

    count: int
    wall: float
    cpu: float

    @property
    def wall_rate(self) -> float:
        """Operations per second of wall-clock time."""
        return self.count / self.wall

    @property
    def cpu_rate(self) -> float:
        """Operations per second of this process's processor time."""
        return self.count / self.cpu


class Stopwatch:
    """Wall and processor time since its construction."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self, count: int) -> Sample:
        """Return the sample so far."""
        return Sample(count, time.perf_counter() - self._wall, time.process_time() - self._cpu)


Contestants = Mapping[str, Callable[[], Mapping[str, Sample]]]
Samples = dict[str, dict[str, list[Sample]]]
"""By measurement, then by contestant."""


def interleave(contestants: Contestants, rounds: int) -> Samples:
    """Let the contestants take turns, after one uncounted round for warming up."""
    samples: Samples = {}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            gc.collect()
            for what, sample in contestant().items():
                if number > 0:
                    samples.setdefault(what, {}).setdefault(name, []).append(sample)
    return samples


def median_rates(samples: Sequence[Sample]) -> tuple[float, float]:
    """Return the median rates by wall and by processor time."""
    return (
        statistics.median(sample.wall_rate for sample in samples),
        statistics.median(sample.cpu_rate for sample in samples),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is not below ``percent`` per cent of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


# -- output ---------------------------------------------------------------------------------------


def print_header(title: str, arguments: argparse.Namespace) -> None:
    """Print the title, the machine and the versions."""
    versions = " ".join(
        f"{name} {_version(name)}" for name in ("python-qpid-proton", "uvloop") if _version(name)
    )
    settings = " ".join(f"{name}={value}" for name, value in vars(arguments).items() if value is not None)
    print(f"# {title}")
    print(f"# {_processor()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, {versions}")
    print(f"# {settings}", flush=True)


def print_rates(title: str, samples: Mapping[str, Sequence[Sample]], peer: str, unit: str = "msg") -> None:
    """Print a table of rates with the ratio to ``peer``, which is one of the contestants."""
    peer_wall, peer_cpu = median_rates(samples[peer])
    print(f"\n{title}")
    print(f"  {'':<24}{f'{unit}/s wall':>12}{f'{unit}/s cpu':>12}{'wall ratio':>12}{'cpu ratio':>12}")
    for name, measured in samples.items():
        wall, cpu = median_rates(measured)
        ratios = f"{wall / peer_wall:>11.2f}x{cpu / peer_cpu:>11.2f}x"
        print(f"  {name:<24}{wall:>12,.0f}{cpu:>12,.0f}{ratios}")


def print_milliseconds(rows: Mapping[str, Sequence[float]]) -> None:
    """Print median and 90th percentile of each row of seconds, and an empty line."""
    width = max(map(len, rows)) + 4
    print(f"\n  {'milliseconds':<{width}}{'median':>8}{'p90':>8}")
    for name, seconds in rows.items():
        milliseconds = [1e3 * value for value in seconds]
        print(f"  {name:<{width}}{statistics.median(milliseconds):>8.2f}{percentile(milliseconds, 90):>8.2f}")
    print()


def print_bar(what: str, value: float, bar: float, *, at_least: bool, unit: str = "x") -> None:
    """Print the value, the bar, and whether it holds; a missed bar does not fail the run."""
    holds = value >= bar if at_least else value <= bar
    sign = ">=" if at_least else "<="
    print(f"{'holds' if holds else 'MISSED'}: {what}: {value:.2f}{unit} (bar {sign} {bar:g}{unit})")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


# -- arguments ------------------------------------------------------------------------------------


def argument_parser(description: str | None, **defaults: int) -> argparse.ArgumentParser:
    """Return a parser with ``--quick`` and one integer option for each default."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--quick", action="store_true", help="a fifth of it: to see that it works")
    return parser


def parse_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the arguments; ``--quick`` reduces them."""
    # BENCH_ARGS of the Makefile go to every benchmark, but not every benchmark has every option.
    arguments, _others = parser.parse_known_args()
    if arguments.quick:
        for name in {"messages", "rounds", "connections"}.intersection(vars(arguments)):
            setattr(arguments, name, max(1, getattr(arguments, name) // 5))
    return arguments


def has_uvloop() -> bool:
    """Return whether uvloop is installed (extra ``fast``)."""
    return importlib.util.find_spec("uvloop") is not None


def loop_factory(name: str) -> Callable[[], Any] | None:
    """Return the ``loop_factory`` of ``asyncio.Runner`` for the loop of that name."""
    if name == "uvloop":
        import uvloop  # noqa: PLC0415 - an optional dependency

        factory: Callable[[], Any] = uvloop.new_event_loop
        return factory
    return None


# -- processes ------------------------------------------------------------------------------------


class BrokerProcess:
    """A member that runs in its own process, from construction to ``stop``."""

    def __init__(self, *arguments: str, role: str = "primary", listen: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "broker_stub", "serve", "--json", "--log-level", "error"]
        command += ["--listen", listen, "--role", role, "--exit-with-parent", str(os.getpid()), *arguments]
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(_SOURCES), os.environ.get("PYTHONPATH")))
        )
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        self._address: str | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def address(self) -> str:
        """The member's ``host:port``; waits until it listens."""
        while self._address is None:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"the broker did not start: exit code {self._process.wait()}")
            self._address = json.loads(line).get("address")
        return self._address

    @property
    def url(self) -> str:
        """The member's AMQP URL."""
        return f"amqp://{self.address}"

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is dead."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end."""
        self._process.terminate()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process, from Linux's ``/proc``."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid} has no resident memory")


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, all threads, from Linux's ``/proc``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Check out a revision into a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="bench-before-") as scratch:
        tree = Path(scratch) / "tree"
        git = ("git", "-C", str(_SOURCES), "worktree")
        subprocess.run((*git, "add", "--quiet", "--detach", str(tree), revision), check=True)
        try:
            yield tree
        finally:
            subprocess.run((*git, "remove", "--force", str(tree)), check=True)


@contextlib.contextmanager
def many_sockets() -> Iterator[None]:
    """Raise the limit of open files to the maximum; child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
