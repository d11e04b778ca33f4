"""``docs/testing.md`` is true: its programs run, and its lists are complete."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from haclient import pytest_plugin, testing
from haclient.testing import BEHAVIOURS

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text()
LOOP_SCOPE = "asyncio_default_fixture_loop_scope=function"  # pytest-asyncio warns of its own default
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_program_passes(pytester: pytest.Pytester) -> None:
    tests = 0
    for number, program in enumerate(PROGRAMS):
        pytester.makepyfile(**{f"test_{number}": program})
        tests += program.count("def test_")
    pytester.runpytest_subprocess("-W", "error", "-o", LOOP_SCOPE, "-n", "2").assert_outcomes(passed=tests)


def test_the_script_without_pytest_loses_nothing(tmp_path: Path) -> None:
    (program,) = (each for each in PROGRAMS if "__main__" in each)
    script = tmp_path / "faults.py"
    script.write_text(program)
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    _, *lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "kill",
        "switch_over",
        "hang",
        "300 of 300 arrived once",
    ]


def test_every_context_manager_is_in_the_table() -> None:
    rows = PAGE.split("| context manager | ")[1].split("\n\n")[0].splitlines()[2:]
    listed = {found[1]: found[2] for row in rows if (found := re.match(r"\| `(\w+)\(.*`(\w+)` \|$", row))}
    assert len(listed) == len(rows)
    functions = {name for name in testing.__all__ if inspect.isgeneratorfunction(_unwrapped(name))}
    assert set(listed) == functions
    assert all(hasattr(pytest_plugin, fixture) for fixture in listed.values())


def _unwrapped(name: str) -> object:
    return inspect.unwrap(getattr(testing, name))


def test_the_first_program_has_ten_lines() -> None:
    body = PROGRAMS[0].split("def test_")[1]
    assert len(body.strip().splitlines()) <= 10


def test_every_fixture_is_in_the_table() -> None:
    assert pytest_plugin.__file__ is not None
    plugin = Path(pytest_plugin.__file__).read_text()
    fixtures = re.findall(r"^@pytest\.fixture.*\ndef (\w+)", plugin, re.MULTILINE)
    rows = PAGE.split("| fixture | gives |")[1].split("\n\n")[0].splitlines()
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    assert sorted(listed) == sorted(fixtures)


def test_every_behaviour_is_named() -> None:
    named = PAGE.split("The names: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", named)) == set(BEHAVIOURS)
