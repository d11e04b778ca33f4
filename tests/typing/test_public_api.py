from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import haclient
from haclient import aio, errors, events

pytestmark = pytest.mark.slow  # a run of mypy

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = [HERE / "public_api.py", HERE / "public_messages.py"]


def test_the_public_api_has_the_types_that_applications_rely_on() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", *PROGRAMS]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_pyright_finds_no_fault_in_it_and_nothing_unknown() -> None:
    """The strict mode makes an incompletely known type an error."""
    pyright = Path(sys.executable).with_name("basedpyright")
    command = [pyright, "--project", str(HERE), "--pythonpath", sys.executable]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("", haclient.__all__),
        ("aio.", aio.__all__),
        ("errors.", errors.__all__),
        ("events.", [kind.__name__ for kind in (events.Stamp, *events.Event.__args__)]),
    ],
    ids=["haclient", "aio", "errors", "events"],
)
def test_no_public_name_is_left_out(prefix: str, names: list[str]) -> None:
    used = "".join(program.read_text() for program in PROGRAMS)
    assert [name for name in names if f"{prefix}{name}" not in used] == []
