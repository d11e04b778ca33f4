"""No command runs a module from the working directory, in any process that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROKER_STUB = str(Path(sys.executable).with_name("broker-stub"))
PATIENCE = 60
# Modules imported by members, workers and every starting process; some are Python's own.
PLANTED = ("click", "proton", "dns", "rich", "backoff", "json", "pickle", "multiprocessing", "sitecustomize")
TRAP = "open(__file__ + '.ran', 'w').close(); raise SystemExit('planted')"

FLEET = """
import asyncio, sys
from pathlib import Path
from benchmarks.storm.fleet import Fleet, FleetPlan

async def main():
    fleet = Fleet(FleetPlan(kind=sys.argv[1], clients=1, url="amqp://127.0.0.1:1"), print, Path(sys.argv[2]))
    await fleet.start()
    await fleet.stop()

asyncio.run(main())
"""
GRID = """
from haclient.retry.policy import Policy
from benchmarks.grid.cache import Cache
from benchmarks.grid.cells import cells
from benchmarks.grid.run import grid

if __name__ == "__main__":
    few = {"clients": [5], "outage": [0.3], "members": [1], "kind": ["reset"]}
    with Cache(None) as cache:
        assert grid(cells("whole", few), {"haclient": Policy()}, cache=cache, jobs=2)
"""
SPARK = """
import sys
from haclient.analysis.io.session import spark_session
session = spark_session("local[1]")
assert session.sparkContext.parallelize([1, 2]).map(lambda each: each + 1).collect() == [2, 3]
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(TRAP)
    return folder


def ran(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.ran"))


def environment(path: str) -> dict[str, str]:
    """Return this environment as a user has it: an installed package, and additions to the path.

    :param path: an additional entry after this source tree.
    """
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return {**ours, "PYTHONPATH": f"{ROOT}{path}"}


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", os.pathsep], ids=["path", "empty-entry"])
def test_the_members_of_a_pair(planted: Path, path: str, tmp_path: Path) -> None:
    """An empty entry means the working directory, also in the command's own process, which starts
    elsewhere.
    """
    program = tmp_path / "start.py"
    program.write_text(
        f"import os, sys; from broker_stub.__main__ import main; os.chdir({str(planted)!r});"
        "sys.argv[1:] = ['pair', '--json', '--memory']; main()"
    )
    with subprocess.Popen(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment(path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        events = []
        for line in process.stdout:
            events.append(json.loads(line)["event"])
            if events[-1] == "ready":
                process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read()
    assert "ready" in events, said
    assert ran(planted) == []


def test_the_command_itself(planted: Path) -> None:
    done = subprocess.run(
        [BROKER_STUB, "--version"],
        cwd=planted,
        env=environment(""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("broker-stub "), done.stderr
    assert ran(planted) == []


def run(planted: Path, program: str, *arguments: str) -> None:
    """Run a program from another folder, as a command does."""
    path = planted.parent / "program.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=planted,
        env=environment(""),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ran(planted) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["haclient", "proton"])
def test_the_workers_of_a_storm(planted: Path, kind: str) -> None:
    run(planted, FLEET, kind, str(planted.parent / "log"))


def test_the_processes_of_a_grid(planted: Path) -> None:
    run(planted, GRID)


@pytest.mark.slow
def test_the_workers_of_spark(planted: Path) -> None:
    run(planted, SPARK)
