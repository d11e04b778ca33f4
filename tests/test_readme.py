"""README and docs are true: their tables equal the code's, programs compile, paths exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from haclient import errors
from scripts.generate.option_reference import options_table

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_every_option_is_in_the_table_with_its_default() -> None:
    """``python -m scripts.generate`` writes it."""
    assert options_table().strip() in (ROOT / "docs" / "options.md").read_text()


def documented_errors() -> dict[str, tuple[str, str, str]]:
    """Return by name of the error: usable?, delivered?, again?"""
    page = (ROOT / "docs" / "errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    return {name: (usable, delivered, again) for name, usable, delivered, again in rows}


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"HaclientError"}))
def test_every_error_has_a_row(name: str) -> None:
    assert name in documented_errors()


@pytest.mark.parametrize("name", sorted(documented_errors()))
def test_a_row_agrees_with_the_attributes_of_the_error(name: str) -> None:
    usable, delivered, _ = documented_errors()[name]
    kind = getattr(errors, name)
    assert usable.startswith("yes") == kind.connection_usable
    if delivered.startswith("unknown"):
        assert kind.delivered is None


def test_what_one_except_clause_catches() -> None:
    page = (ROOT / "docs" / "errors.md").read_text().split("One `except` clause")[1].split("\n\n")[1]
    rows = dict(re.findall(r"^\| `(\w+)`.*? \| (.+?) \|$", page, re.MULTILINE))
    kinds = {name: getattr(errors, name) for name in errors.__all__}
    for base in (errors.ConnectionGaveUp, TimeoutError, errors.ClusterURLError):
        caught = {name for name, kind in kinds.items() if issubclass(kind, base)}
        assert set(re.findall(r"`(\w+)`", rows[base.__name__])) | {base.__name__} == caught | {base.__name__}


def test_python_programs_compile() -> None:
    programs = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert programs
    for program in programs:
        compile(program, "README.md", "exec")


def test_named_files_exist() -> None:
    named = re.findall(r"[`(]((?:haclient|broker_stub|tests|examples|benchmarks|docs)/[\w./-]*)", README)
    missing = [name for name in named if not (ROOT / name).exists()]
    assert named
    assert not missing


def test_every_guarantee_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", page.split("<!-- guarantees -->")[1], re.MULTILINE)[
        2:
    ]
    assert rows
    for happens, _, shown_by in rows:
        named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", shown_by)
        assert named, happens
        for path, test in named:
            assert f"def {test}" in (ROOT / path).read_text(), f"{path}::{test}"


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^    )make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
