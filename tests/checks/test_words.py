"""``make check`` refuses replaced words, in names and in texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.check_words import complaints, parts

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("take_back", ["take", "back"]),
        ("PendingFlight", ["pending", "flight"]),
        ("SSLWay2", ["ssl", "way", "2"]),
        ("_MISSES", ["misses"]),
        ("__slots__", ["slots"]),
        ("ZooKeeperArbiter", ["zookeeper", "arbiter"]),
    ],
)
def test_names_are_split_at_underscores_and_capitals(name: str, words: list[str]) -> None:
    assert parts(name) == words


@pytest.mark.parametrize(
    "code",
    [
        "class MissKind: ...",
        "def f(flight): ...",
        "def take_back(): ...",
        "x.farewell = 1",
        "for veil in y: ...",
        "logger.info('%s told us', x)",
        "raise ValueError(f'{x} is away')",
        "option('--x', help='Another way')",
        "@click.command()\ndef f():\n    'Tells what happens.'",
    ],
)
def test_a_planted_word_is_found(tmp_path: Path, code: str) -> None:
    folder = tmp_path / "haclient" / "core"
    folder.mkdir(parents=True)
    (folder / "planted.py").write_text(code)
    (line,) = complaints(tmp_path)
    assert line.startswith("haclient/core/planted.py:")


@pytest.mark.parametrize("code", ["x = link.slot", "'a miss'", "# the way", "def missing(): ..."])
def test_words_of_others_and_comments_are_not_looked_at(tmp_path: Path, code: str) -> None:
    folder = tmp_path / "haclient" / "core"
    folder.mkdir(parents=True)
    (folder / "planted.py").write_text(code)
    assert list(complaints(tmp_path)) == []


@pytest.mark.slow
def test_the_packages_use_none() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check_words.py"], capture_output=True, text=True, check=False
    )
    assert checked.stdout == ""
