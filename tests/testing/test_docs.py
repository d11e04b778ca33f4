"""``docs/testing.md`` is true: its programs run, and its lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from haclient import pytest_plugin
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


def test_the_first_program_has_ten_lines() -> None:
    body = PROGRAMS[0].split("def test_")[1]
    assert len(body.strip().splitlines()) <= 10


def test_every_fixture_is_in_the_table() -> None:
    assert pytest_plugin.__file__ is not None
    plugin = Path(pytest_plugin.__file__).read_text()
    fixtures = re.findall(r"^@pytest\.fixture.*\ndef (\w+)", plugin, re.MULTILINE)
    rows = PAGE.split("| fixture | what it is |")[1].split("\n\n")[0].splitlines()
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    assert sorted(listed) == sorted(fixtures)


def test_every_behaviour_is_named() -> None:
    named = PAGE.split("The names: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", named)) == set(BEHAVIOURS)
