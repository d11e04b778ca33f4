"""The base of all errors.  It imports almost nothing, because every folder raises errors."""

from __future__ import annotations

from haclient.printable.text import printable


class HaclientError(Exception):
    """Base of all errors of this package.

    :ivar code: a short, stable name: the class's, or a more exact one if the client knows more.
        ``haclient help CODE`` and docs/errors.md explain its meaning and the remedy.
    :ivar connection_usable: whether the connection may be used further.
    :ivar delivered: whether the message was delivered; ``None`` if that is unknown.
    :ivar safe_to_retry: whether the same call may be repeated unchanged: without making a duplicate, and
        with a chance to succeed.
    """

    code: str = "error"
    connection_usable: bool = True
    delivered: bool | None = False
    safe_to_retry: bool = True

    def __str__(self) -> str:
        """Return one printable line: parts of it are from a peer."""
        return printable(super().__str__())


_MOST_CHARACTERS = 200
"""Longest quotation in an error: two lines of a terminal identify a text, but a peer may send a megabyte."""


def brief(text: str) -> str:
    """Shorten a text of a peer or the application for an error."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"


def quoted(text: object) -> str:
    """Quote and shorten such a text; ``None`` has no quotation marks."""
    if not isinstance(text, str) or len(text) <= _MOST_CHARACTERS:
        return brief(repr(text))
    return f"{text[:_MOST_CHARACTERS]!r}… ({len(text)} characters)"
