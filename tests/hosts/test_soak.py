"""The soak of hosts names its requirements, and leaves no process when it is ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from tests.hosts import soak
from tests.hosts.faults import Ground
from tests.hosts.lab import missing

pytestmark = pytest.mark.slow

_SOURCES = Path(__file__).resolve().parents[2]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(soak.main, ["--faults", "1"])
    assert result.exit_code == 2
    assert "run this as root" in result.output


@pytest.mark.parametrize("tool", ["ip", "nsenter", "setpriv"])
def test_a_tool_that_is_missing_is_named(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == tool else which(name))
    assert f"{tool} not found" in missing()


async def test_when_the_time_is_over_no_fault_begins_and_that_is_said(tmp_path: Path) -> None:
    ground = cast("Ground", None)  # no fault uses it
    run = soak.Soak(5, 1, tmp_path, pytest.fail, seconds=-1)
    await run._all_faults(ground)
    assert run.result.wrong == ["only 0 of 5 faults after -1 s"]


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_soak_that_is_ended_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hosts.soak", "--faults", "5", "--seed", "1"]
    with subprocess.Popen(
        [*command, "--folder", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_SOURCES), "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("seed 1, 5 faults")
        assert process.stdout.readline().split()[0] == "1"
        assert len(_of(tmp_path)) > 6
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode
    assert _of(tmp_path) == []


def _of(folder: Path) -> list[str]:
    """Return the command lines of all processes whose environment names this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TMPDIR={folder}".encode() in path.read_bytes().split(b"\0"):
                found.append((path.parent / "cmdline").read_text())
        except OSError:  # it has just ended
            continue
    return found
