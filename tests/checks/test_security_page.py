"""Each line of the table in docs/security.md names an existing test, or says *Not met*."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz import targets

ROOT = Path(__file__).resolve().parents[2]
_, _, _SECTION = (ROOT / "docs" / "security.md").read_text().partition("\n## Who may do what\n")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in _SECTION.partition("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith(("| **", "| attack |"))
]
FUZZ_TARGETS = {path.stem for path in Path(targets.__file__).parent.glob("*.py")}


def test_the_table_is_read() -> None:
    assert len(ROWS) > 40
    assert {len(row) for row in ROWS} == {3}


@pytest.mark.parametrize(("threat", "bound", "shown"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_a_line_names_what_shows_it(threat: str, bound: str, shown: str) -> None:
    named = re.findall(r"`([^`]+)`", shown)
    assert named or "**Not met**" in bound, threat
    for name in named:
        if not name.startswith("tests/"):
            assert name in FUZZ_TARGETS or name.startswith("make "), name
            continue
        path, _, test = name.partition("::")
        text = (ROOT / path).read_text()
        tests = re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE)
        assert test in tests if test else tests, name
