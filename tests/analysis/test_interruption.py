"""A signal while Spark starts or works: a separate exit code, and no text of py4j or the JVM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.analysis import small_fleet
from tests.analysis.commands import environment

PATIENCE = 240.0
POLL = 0.01  # s


class Ended(NamedTuple):
    code: int
    printed: str
    errors: list[str]


def end_by(number: int, arguments: list[str], when: Callable[[int], bool], **variables: str) -> Ended:
    """Run a command of ``haclient``, and send a signal to its whole process group.

    :param when: called with the process's number until it is true.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "haclient", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment() | variables,
    ) as process:
        try:
            while not when(process.pid):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL)
                    pytest.fail(f"it ended first: {process.communicate()}")
            os.killpg(process.pid, number)
            printed, errors = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return Ended(
        process.returncode,
        printed,
        [line for line in errors.splitlines() if "incubator modules" not in line],  # Java's own
    )


@pytest.mark.slow
def test_ctrl_c_while_a_job_writes_ends_analyze_with_130_and_no_traceback(tmp_path: Path) -> None:
    telemetry, out = tmp_path / "telemetry", tmp_path / "out"
    telemetry.mkdir()
    for place, file in enumerate(small_fleet.files(20, 2, seed=4, count=2)):
        (telemetry / f"{place}.jsonl").write_text("\n".join(file) + "\n")
    ended = end_by(
        signal.SIGINT,
        ["analyze", str(telemetry), "--out", str(out)],
        lambda _: (out / "events").exists(),
        TMPDIR=str(tmp_path),
        SPARK_LOCAL_DIRS=str(tmp_path / "local"),
    )
    assert ended == (128 + signal.SIGINT, "", [])
    assert not (out / "summary.json").exists()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("spark-")] == []
    assert list((tmp_path / "local").glob("*")) == []


@pytest.mark.slow
def test_a_group_that_is_terminated_while_spark_starts_ends_with_143_and_no_traceback(tmp_path: Path) -> None:
    """A service manager ends services so: the JVM gets the signal too, and Spark cannot start without it."""
    arguments = ["telemetry", "generate", "--clients", "10", "--out", str(tmp_path / "out")]
    ended = end_by(signal.SIGTERM, arguments, starts_spark, TMPDIR=str(tmp_path))
    assert ended == (128 + signal.SIGTERM, "", [])


def starts_spark(pid: int) -> bool:
    """Return True if a process has a JVM for Spark; the first JVM only answers with its version."""
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("org.apache.spark" in word for word in child.cmdline()):
                return True
    return False
