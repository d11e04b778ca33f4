"""Pages have correct spelling and are easy to read, as measured by ``scripts/check_prose.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import check_prose
from tests.docs.pages import ROOT

CHECKED = [
    page for page in check_prose.pages() if page.relative_to(ROOT).as_posix() not in check_prose.NOT_YET
]


@pytest.mark.parametrize("page", CHECKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_it_is_easy_to_read(page: Path) -> None:
    assert list(check_prose.complaints(page)) == []


def test_pages_that_need_not_pass_yet_are_there() -> None:
    assert {page.relative_to(ROOT).as_posix() for page in check_prose.pages()} >= check_prose.NOT_YET


@pytest.mark.slow
def test_every_word_is_spelled_right() -> None:
    where = [*map(str, ROOT.glob("*.md")), "changes", "docs", "examples", "haclient", "broker_stub"]
    result = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *where], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def test_what_counts_as_a_sentence() -> None:
    page = """# A heading

Two sentences here. `code.with(points). And` counts as [one word](link.md), e.g. so!

    code that nobody counts

| name | what it is |
|---|---|
| `x` | the first of them. |

* An item
  of two lines.

      code in an item
"""
    found = list(check_prose.sentences(page))
    assert found == [
        "Two sentences here.",
        "CODE counts as one word, e.g so!",
        "what it is",
        "the first of them.",
        "An item of two lines.",
    ]


def test_a_long_sentence_and_a_high_median_are_refused() -> None:
    short, long = "One two three four.", " ".join(["word"] * 36) + "."
    assert check_prose.read(short).passes
    assert check_prose.read(long).long == (long,)
    assert check_prose.read(" ".join(["word"] * 19) + ".").median == 19


def test_wide_code_is_refused_in_each_kind_of_block() -> None:
    fits = "x" * check_prose.WIDEST_CODE
    page = f"{fits} and prose\n\n* item\n\n  ```\n  {fits}\n  ```\n\nText\n\n    {fits}\n"
    assert check_prose.wide_code(page) == []
    assert check_prose.wide_code(page.replace("x\n", "xy\n")) == [f"{fits}y", f"{fits}y"]
