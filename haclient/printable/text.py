"""Escape unprintable characters, as the source of a Python program does."""

from __future__ import annotations

import json
from typing import Any


def printable(text: str) -> str:
    r"""Return a text as one line, with escapes such as ``\n`` and ``\x1b`` for unprintable characters."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def printable_lines(text: str) -> str:
    """Escape each line of a text whose newlines are our own."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(value: Any) -> str:
    """Return JSON that keeps printable characters and escapes all others."""
    text = json.dumps(value, ensure_ascii=False)
    # Outside of its strings, JSON on one line has printable characters only.
    return text if text.isprintable() else "".join(map(_json_character, text))


def _json_character(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]
