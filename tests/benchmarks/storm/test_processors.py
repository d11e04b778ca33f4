"""Processor time and placement of real processes, as Linux reports them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.storm import processors
from benchmarks.storm.flood import Layout
from benchmarks.storm.processors import Turns

pytestmark = pytest.mark.skipif(not processors.LINUX, reason="Linux tells of its threads")


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    """Return processes that do nothing, each with a second thread."""
    program = "import sys, threading; threading.Thread(target=input).start(); print(flush=True); input()"
    made = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    for each in made:
        assert each.stdout is not None
        each.stdout.readline()
    yield [each.pid for each in made]
    for each in made:
        each.communicate(b"\n\n", timeout=60)


def allowed(pid: int) -> list[set[int]]:
    """Return the processors of each thread of a process."""
    return [os.sched_getaffinity(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()]


def test_a_process_that_runs_has_had_turns() -> None:
    before = processors.turns([os.getpid()])
    sum(range(1_000_000))
    had = processors.turns([os.getpid()]) - before
    assert had.ran > 0
    assert had.waited >= 0


def test_a_process_that_is_gone_had_no_turns() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert processors.turns([gone.pid]) == Turns()
    processors.keep(gone.pid, [0])


@pytest.mark.skipif(len(processors.available()) < 2, reason="needs two processors")
def test_in_a_layout_the_primary_has_processors_without_the_backup_and_the_newcomers(
    sleepers: list[int],
) -> None:
    primary, backup, sender, newcomer = sleepers
    everywhere = processors.available()
    half = len(everywhere) // 2
    Layout(primary, (backup,), tuple(everywhere)).apply([sender], [newcomer])
    for pid in (primary, sender):
        assert allowed(pid) == [set(everywhere[:half])] * 2
    for pid in (backup, newcomer):
        assert allowed(pid) == [set(everywhere[half:])] * 2
