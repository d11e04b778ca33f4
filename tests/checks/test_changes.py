"""A note in ``changes/`` has a name that towncrier knows, and a text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.check_changes import complaints

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "changes").mkdir()
    for name in ("pyproject.toml", "CHANGELOG.md", "changes/README.md"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_notes_here_are_well_formed() -> None:
    assert list(complaints(ROOT)) == []


def test_every_kind_of_note_is_known_with_an_issue_and_without(tree: Path) -> None:
    for kind in ("added", "changed", "deprecated", "removed", "fixed", "security"):
        (tree / "changes" / f"+short-slug.{kind}.md").write_text("A thing that users see.")
        (tree / "changes" / f"12.{kind}.md").write_text("A thing that users see.")
    assert list(complaints(tree)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["window.md", "+window.improved.md", "12.md", "fixed.md"])
def test_a_name_without_a_known_kind_is_refused(tree: Path, name: str) -> None:
    (tree / "changes" / name).write_text("A thing that users see.")
    (line,) = complaints(tree)
    assert name in line
    assert "+SLUG.KIND.md" in line


@pytest.mark.parametrize("text", ["", " \n", "# Window\n\nA thing."])
def test_a_note_without_a_text_or_with_a_heading_is_refused(tree: Path, text: str) -> None:
    (tree / "changes" / "+window.fixed.md").write_text(text)
    (line,) = complaints(tree)
    assert line.startswith("changes/+window.fixed.md: ")


def test_an_issue_at_the_start_of_a_line_is_no_heading(tree: Path) -> None:
    (tree / "changes" / "12.fixed.md").write_text("#12 is fixed.")
    assert list(complaints(tree)) == []


@pytest.mark.parametrize("name", ["archive", "+window.fixed.md", "picture.png", "binary.md"])
def test_a_folder_and_a_file_that_is_no_text_are_refused_by_name(tree: Path, name: str) -> None:
    stray = tree / "changes" / name
    if "." in name.removesuffix(".fixed.md"):
        stray.write_bytes(b"\x89PNG\xff")
    else:
        stray.mkdir()
        (stray / "7.fixed.md").write_text("A thing that users see.")
    (line,) = complaints(tree)
    assert line.startswith(f"changes/{name}: not a Markdown file")
