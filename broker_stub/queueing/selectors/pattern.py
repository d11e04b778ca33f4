"""The patterns of ``LIKE``: ``%`` matches any characters, ``_`` exactly one.

A part between two ``%`` that contains ``_`` is compared at each place of the text, one step per character.
Peers choose both, so both are limited: the patterns of the longest selector take some 25 ms per text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from broker_stub.queueing.selectors.words import SelectorError

_ANY = "."
MAX_COMPARED = 4096
"""The most characters of a text that is compared with a pattern: the same limit as for a selector."""
MAX_WILDCARDS = 100
"""The most ``%`` and ``_`` in a pattern: far more than a person writes."""


def wildcards(pattern: str, escape: str | None) -> int:
    """Return the number of wildcards in a pattern.

    :raises SelectorError: when the pattern ends in its escape.
    """
    pieces = _pieces(pattern, escape)
    return len(pieces) - 1 + sum(each == _ANY for piece in pieces for each in piece)


def pattern_matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Return a function that returns True if a text matches the pattern.

    Between two ``%`` the leftmost match is as good as any, so no place is tried twice.  A pattern with many
    ``%`` takes as long as a pattern with one.

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
    """Return the parts between the ``%``, with a regular expression for each character."""
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
