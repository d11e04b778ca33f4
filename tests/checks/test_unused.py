"""``make check`` refuses a public function, method or class that only tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_unused import unused

DEFINED = "def planted(): ...\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    "code",
    [
        DEFINED,
        "class Planted: ...",
        "class _A:\n    @property\n    def planted(self): ...",
        "__all__ = ['planted']\ndef planted(): ...",
        "def planted(n):\n    return n and planted(n - 1)",
        "class _A:\n    def planted(self):\n        self.planted = 1",
    ],
)
def test_a_planted_definition_without_a_use_is_found(tmp_path: Path, code: str) -> None:
    files = {
        "haclient/core/mine.py": code,
        "haclient/core/__init__.py": "from haclient.core.mine import planted, Planted",
        "tests/test_mine.py": "planted(Planted())",
    }
    (line,) = unused(tree(tmp_path, files), {})
    assert line.startswith("haclient/core/mine.py:")


@pytest.mark.parametrize(
    "use",
    [
        {"haclient/user.py": "from haclient.mine import planted\nplanted()"},
        {"broker_stub/user.py": "x.planted"},
        {"benchmarks/user.py": "from haclient.mine import planted as other"},
        {"examples/user.py": "getattr(x, 'planted')"},
        {"docs/page.md": "Call `planted()`."},
        {"README.md": "```python\nx.planted\n```"},
    ],
)
def test_a_use_outside_tests_is_one(tmp_path: Path, use: dict[str, str]) -> None:
    assert list(unused(tree(tmp_path, {"haclient/mine.py": DEFINED, **use}), {})) == []


@pytest.mark.parametrize(
    "code",
    [
        "@group.command('list')\ndef planted(): ...",
        "@pytest.fixture\ndef planted(): ...",
        "class _A:\n    def connection_made(self): ...",
        "class _A:\n    def on_connection_bound(self): ...",
        "def _planted(): ...",
    ],
)
def test_what_a_framework_calls_is_used(tmp_path: Path, code: str) -> None:
    assert list(unused(tree(tmp_path, {"haclient/mine.py": code}), {})) == []


def test_an_exception_is_for_a_definition_without_a_use(tmp_path: Path) -> None:
    tree(tmp_path, {"haclient/mine.py": DEFINED})
    assert list(unused(tmp_path, {"planted": "reason"})) == []
    tree(tmp_path, {"haclient/user.py": "x.planted"})
    (line,) = unused(tmp_path, {"planted": "reason"})
    assert line.endswith("planted needs no exception")
