"""The patterns of ``LIKE``: ``%`` is for any characters, ``_`` for one.

A part between two ``%`` that has a ``_`` takes as many steps as it has characters, at each place of the text.
Both are a peer's, so both are bounded: the patterns of the longest selector take some 25 ms with a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from broker_stub.queueing.selectors.words import SelectorError

_ANY = "."
MAX_COMPARED = 4096
"""Characters of a text that a pattern is compared with: as many as a selector has."""
MAX_WILDCARDS = 100
"""``%`` and ``_`` in a pattern: many times what anybody writes."""


def wildcards(pattern: str, escape: str | None) -> int:
    """Return how many a pattern has.

    :raises SelectorError: when the pattern ends in its escape.
    """
    pieces = _pieces(pattern, escape)
    return len(pieces) - 1 + sum(each == _ANY for piece in pieces for each in piece)


def pattern_matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Whether a text has the pattern, as a function of it.

    Between two ``%`` the leftmost place is as good as any, so no place is tried twice: a pattern with many of
    them takes as long as one.

    :raises SelectorError: when the pattern ends in its escape.
    """
    found = _pieces(pattern, escape)
    pieces = [re.compile("".join(piece), re.DOTALL) for piece in found]
    lengths = [len(piece) for piece in found]
    if len(pieces) == 1:
        return lambda text: pieces[0].fullmatch(text) is not None
    least = sum(lengths)

    def matches(text: str) -> bool:
        position, end = lengths[0], len(text) - lengths[-1]
        if least > len(text) or not pieces[0].match(text) or not pieces[-1].match(text, end):
            return False
        for piece in pieces[1:-1]:
            found = piece.search(text, position, end)
            if found is None:
                return False
            position = found.end()
        return position <= end

    return matches


def _pieces(pattern: str, escape: str | None) -> list[list[str]]:
    """What stands between the ``%``: a regular expression for each character."""
    pieces: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise SelectorError("no selector: a pattern ends in its escape")
            pieces[-1].append(re.escape(escaped))
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(_ANY if character == "_" else re.escape(character))
    return pieces
