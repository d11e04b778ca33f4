"""``make check`` counts riddles in docstrings, comments and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_docstrings import Count, Rates, Text, texts


def reasons(text: str, *, is_docstring: bool = True) -> list[str]:
    return list(Count().add(Text(Path("module.py"), 1, text, is_docstring)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Return the queue.", []),
        ("What the queue has.", ["what", "begins with What"]),
        ("Those of one receiver; nobody waits.", ["Those of", "nobody", "begins with Those"]),
        ("Itself a noun.", []),
        ("Somewhat later, whatever comes.", []),
        (" ".join(["word"] * 26), [f"26 words: {' '.join(['word'] * 26)}"]),
        (" ".join(["word"] * 25), []),
        (f"{' '.join(['word'] * 20)}: {' '.join(['word'] * 20)}", []),
        (f"First.\n\n:param x: {' '.join(['word'] * 25)}", []),
    ],
)
def test_a_docstring_has_its_reasons(text: str, found: list[str]) -> None:
    assert reasons(text) == found


def test_only_a_docstring_has_an_opener() -> None:
    assert reasons("It waits.", is_docstring=False) == []


def test_strings_that_stand_alone_and_comments_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.check_docstrings.ROOT", tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "module.py").write_text(
        '"""One."""\n\nLIMIT = 3  # two\n"""Three."""\n\n\ndef f() -> str:\n'
        '    """Four."""\n    # five\n    # six\n    return "not this"  # noqa: E501 - nor this\n'
    )
    found = [each.text.strip() for each in texts("folder")]
    assert sorted(each for each in found if each) == ["Four.", "One.", "Three.", "five\nsix", "two"]


def test_rates_are_shares() -> None:
    count = Count()
    for text in ("What is it?", "Return it."):
        list(count.add(Text(Path("module.py"), 1, text, is_docstring=True)))
    assert count.rates() == Rates(what=200.0, openers=50.0, words=0, long=0.0)
