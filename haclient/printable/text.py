"""Escapes what is not printable, as the source of a Python program does."""

from __future__ import annotations

import json
from typing import Any


def printable(text: str) -> str:
    r"""A text on one line, with ``\n``, ``\x1b`` and the like in place of what is not printable."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def printable_lines(text: str) -> str:
    """The same for a text whose newlines are ours: each line of it."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(value: Any) -> str:
    """JSON with every printable character as it is, and the others escaped."""
    text = json.dumps(value, ensure_ascii=False)
    # Outside of its strings JSON on one line has printable characters only.
    return text if text.isprintable() else "".join(map(_json_character, text))


def _json_character(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]
