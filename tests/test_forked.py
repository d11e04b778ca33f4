"""Forked members end as started ones do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.forked import ForkedProcess

ROOT = Path(__file__).resolve().parents[1]
ARGUMENTS = ["--role", "primary", "--listen", "127.0.0.1:0", "--anonymous"]
PROGRAM = """
import os, signal, sys
from pathlib import Path
from tests.forked import ForkedProcess
from tests.test_forked import ARGUMENTS
members = [ForkedProcess(ARGUMENTS, Path(sys.argv[1])) for _ in range(3)]
for member in members:
    member.stdout.readline()
members[1].pause()
print(*(member.pid for member in members), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
PATIENCE = 30.0


def test_no_member_outlives_the_process_of_the_tests_not_even_a_stopped_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log")]
    ended = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    members = [Path("/proc", pid) for pid in ended.stdout.split()]
    assert len(members) == 3
    end = time.monotonic() + PATIENCE
    while any(each.exists() for each in members):
        assert time.monotonic() < end, "a member is left"
        time.sleep(0.01)


def test_the_exit_code_is_that_of_the_program_or_of_the_signal(tmp_path: Path) -> None:
    codes = []
    for number in (signal.SIGTERM, signal.SIGKILL):
        member = ForkedProcess(ARGUMENTS, tmp_path / "log")
        member.stdout.readline()
        member.send_signal(number)
        codes.append(member.wait())
        member.send_signal(number)  # does nothing
        member.stdout.close()
    assert codes == [0, -signal.SIGKILL]
    wrong = ForkedProcess(["--role", "king"], tmp_path / "log")
    assert (wrong.wait(), wrong.stdout.read()) == (2, "")
    wrong.stdout.close()
    assert "Invalid value for '--role'" in (tmp_path / "log").read_text()
