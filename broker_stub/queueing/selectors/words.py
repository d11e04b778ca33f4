"""Splits the text of a selector into words."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn


class SelectorError(ValueError):
    """A text is not a selector."""


class Word(NamedTuple):
    """A word of a selector.

    :param kind: a group of ``_WORDS``, ``keyword`` or ``end``.
    :param text: without its quotes; a keyword in capitals.
    :param position: in characters from the start.
    """

    kind: str
    text: str
    position: int


_WORDS = re.compile(
    r"""(?P<number>0[xX][0-9a-fA-F]+[lL]?
                 |(?:\d+\.\d*|\.\d+|\d+(?=[eEfFdD]))(?:[eE][+-]?\d+)?[fFdD]?
                 |\d+[lL]?)
      |(?P<name>[^\W\d][\w$.]*|\$[\w$.]*)
      |"(?P<quoted>(?:[^"]|"")+)"
      |'(?P<string>(?:[^']|'')*)'
      |(?P<symbol><>|<=|>=|[=<>+\-*/(),])""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_RESERVED = frozenset(("AND", "OR", "NOT", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "NULL", "TRUE", "FALSE"))


def words_of(text: str) -> list[Word]:
    """Return the words of a text, and a last one for its end.

    :raises SelectorError: when the text contains something else.
    """
    words = []
    position = _SPACE.match(text).end()  # type: ignore[union-attr]  # it also matches no characters
    while position < len(text):
        found = _WORDS.match(text, position)
        if found is None:
            quote = text[position] in "'\""
            fail("a quote is not closed" if quote else f"{text[position]!r} begins no word", position)
        kind = str(found.lastgroup)
        word = found[kind]
        if kind == "name" and word.upper() in _RESERVED:
            kind, word = "keyword", word.upper()
        words.append(Word(kind, word, position))
        position = _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]
    words.append(Word("end", "the end", len(text)))
    return words


def fail(why: str, position: int) -> NoReturn:
    """Raise a ``SelectorError`` with reason and position."""
    raise SelectorError(f"no selector: {why}, at character {position + 1}")
