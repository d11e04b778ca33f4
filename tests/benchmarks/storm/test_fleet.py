"""The workers of a storm leave the processors to the members."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.program import ROOT

START_ONE = """
import asyncio, json, os, sys
from pathlib import Path
from benchmarks.storm.fleet import Fleet, FleetPlan

async def main() -> list[int]:
    plan = FleetPlan(kind="haclient", clients=1, url="amqp://127.0.0.1:1")
    fleet = Fleet(plan, lambda line: None, Path(sys.argv[1]))
    await fleet.start()
    found = [os.getpriority(os.PRIO_PROCESS, each) for each in (0, *fleet.processes)]
    await fleet.stop()
    return found

print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.slow
def test_workers_are_nicer_than_the_program_that_starts_them(tmp_path: Path) -> None:
    """Workers add to the niceness of the program, since only root may set a lower one."""
    command = ["nice", "-n", "2", sys.executable, "-c", START_ONE, str(tmp_path / "log")]
    program = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert program.returncode == 0, program.stderr
    own, worker = json.loads(program.stdout)
    assert worker == min(own + 5, 19)
