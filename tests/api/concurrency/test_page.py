"""Each promise of ``docs/concurrency.md`` names tests that exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "concurrency.md").read_text()


def rows() -> list[str]:
    """Return the rows of all its tables, without their heads."""
    tables = re.findall(r"^\|[^\n]+\|\n\|[-|]+\|\n((?:\|[^\n]+\|\n)+)", PAGE, re.MULTILINE)
    return [row for table in tables for row in table.splitlines()]


def test_every_row_names_a_test() -> None:
    assert len(rows()) > 30
    assert [row for row in rows() if not re.search(r"`test_\w+`[^|]*\|$", row)] == []


def test_every_test_that_is_named_exists_once() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    defined = Counter(
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    )
    assert {name: defined[name] for name in named if defined[name] != 1} == {}
