"""A signal while Spark starts or works: an exit code of its own, and no word of py4j or the JVM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.analysis import small_fleet
from tests.analysis.commands import environment

PATIENCE = 240.0


@pytest.mark.slow
def test_ctrl_c_while_a_job_writes_ends_analyze_with_130_and_no_traceback(tmp_path: Path) -> None:
    """The whole process group gets it, as from a terminal."""
    telemetry, out = tmp_path / "telemetry", tmp_path / "out"
    telemetry.mkdir()
    for place, file in enumerate(small_fleet.files(20, 2, seed=4, count=2)):
        (telemetry / f"{place}.jsonl").write_text("\n".join(file) + "\n")
    command = [sys.executable, "-m", "haclient", "analyze", str(telemetry), "--out", str(out)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment() | {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path / "local")},
    ) as analyzing:
        try:
            while not (out / "events").exists():
                assert analyzing.poll() is None, analyzing.communicate()
            os.killpg(analyzing.pid, signal.SIGINT)
            printed, errors = analyzing.communicate(timeout=PATIENCE)
        finally:
            if analyzing.poll() is None:
                os.killpg(analyzing.pid, signal.SIGKILL)
    assert analyzing.returncode == 128 + signal.SIGINT
    assert printed == ""
    assert [line for line in errors.splitlines() if "incubator modules" not in line] == []
    assert not (out / "summary.json").exists()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("spark-")] == []
    assert list((tmp_path / "local").glob("*")) == []


@pytest.mark.slow
def test_a_group_that_is_terminated_while_spark_starts_ends_with_143_and_no_traceback(tmp_path: Path) -> None:
    """As a service manager ends a service: the JVM gets the signal too, and Spark cannot start without it."""
    command = [sys.executable, "-m", "haclient", "telemetry", "generate", "--clients", "10"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment() | {"TMPDIR": str(tmp_path)},
    ) as generating:
        try:
            while not starts_spark(generating.pid):
                assert generating.poll() is None, generating.communicate()
            os.killpg(generating.pid, signal.SIGTERM)
            printed, errors = generating.communicate(timeout=PATIENCE)
        finally:
            if generating.poll() is None:
                os.killpg(generating.pid, signal.SIGKILL)
    assert (generating.returncode, printed) == (128 + signal.SIGTERM, "")
    assert [line for line in errors.splitlines() if "incubator modules" not in line] == []


def starts_spark(pid: int) -> bool:
    """Return True if a process has a JVM for Spark; the first JVM only answers with its version."""
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("org.apache.spark" in word for word in child.cmdline()):
                return True
    return False
