"""Every file and every dotted name exists that docs, docstrings and comments mention."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("haclient", "broker_stub", "tests", "examples", "benchmarks", "scripts", "docs")


def files(pattern: str) -> list[Path]:
    """Return the matching files of the repository, without installed packages."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob(pattern))
    return [path for path in found if "node_modules" not in path.parts]


PAGES = [ROOT / "README.md", *files("*.md")]
CODE = files("*.py")

_PATH = re.compile(rf"(?<![\w/.{{}}-])(?:{'|'.join(FOLDERS)})/[\w./-]*[\w/]")
_DOTTED = re.compile(r"(?<![\w/.:@-])(?:haclient|broker_stub|tests)(?:\.[A-Za-z_]\w*)+")


@functools.cache
def literals() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return dotted names that are sent, stored or logged: literals, and beginnings of f-strings."""
    whole: set[str] = set()
    beginnings: set[str] = set()
    for path in CODE:
        if path.is_relative_to(ROOT / "tests"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if _DOTTED.match(text):
                    beginnings.add(text)
                case ast.Constant(value=str(text)) if _DOTTED.fullmatch(text):
                    whole.add(text)
    return frozenset(whole), tuple(beginnings)


def is_literal(name: str) -> bool:
    whole, beginnings = literals()
    return name in whole or name.startswith(beginnings) or any(one.startswith(f"{name}.") for one in whole)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and comments of a module, with their first lines."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@functools.cache
def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, a module's attribute, or an attribute of a class in it."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            if part in getattr(found, "__annotations__", {}):
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def missing_in(text: str) -> list[str]:
    paths = [match for match in _PATH.findall(text) if not (ROOT / match).exists()]
    names = [match for match in _DOTTED.findall(text) if not (is_literal(match) or resolves(match))]
    return paths + names


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_what_is_there(page: Path) -> None:
    assert missing_in(page.read_text()) == []


@pytest.mark.slow  # it compiles every module
def test_docstrings_and_comments_name_what_is_there() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in CODE
        if "programs" not in path.parts
        for line, text in prose(path)
        for name in missing_in(text)
    ]
    assert found == []
