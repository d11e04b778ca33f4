"""CONTRIBUTING.md is correct: its paths and targets exist, and its example is a passing test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.check_changes import complaints

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def test_named_files_and_folders_exist() -> None:
    named = re.findall(r"`((?:haclient|broker_stub|scripts|docs)/[\w./]*)`", PAGE)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", ".github/pull_request_template.md", "changes/README.md"])
def test_named_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"(?:`|^ +)make ([\w-]+)", (ROOT / page).read_text(), re.MULTILINE)
    assert targets
    assert [each for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)] == []


def test_the_targets_of_the_workflows_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    texts = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    (matrix,) = re.findall(r"target: \[(.+)\]", texts)
    targets = [*re.findall(r"run: make ([\w-]+)$", texts, re.MULTILINE), *matrix.split(", ")]
    assert len(targets) > 5
    assert [each for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)] == []


def test_the_test_that_it_shows_passes() -> None:
    (program,) = re.findall(r"^ *```python\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec(compile(re.sub(r"^   ", "", program, flags=re.MULTILINE), "CONTRIBUTING.md", "exec"), names)  # noqa: S102
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    assert callable(test)
    test()


def test_the_names_of_notes_that_it_shows_are_well_formed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "CHANGELOG.md").touch()
    (tmp_path / "changes").mkdir()
    named = re.findall(r"`changes/([^`/]+)`", PAGE)
    assert len(named) == 2
    for name in named:
        (tmp_path / "changes" / name).write_text("A sentence.")
    assert list(complaints(tmp_path)) == []
