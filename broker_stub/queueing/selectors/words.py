"""A selector's text as words."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn


class SelectorError(ValueError):
    """A text is no selector."""


class Word(NamedTuple):
    """One word.

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
    """The words of a text; the last one is its end.

    :raises SelectorError: where something is no word.
    """
    words = []
    position = _SPACE.match(text).end()  # type: ignore[union-attr]  # it matches nothing, too
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
    """Say what is wrong, and where.

    :raises SelectorError: always.
    """
    raise SelectorError(f"no selector: {why}, at character {position + 1}")
