"""The base of all errors.  It is below everything else, for every folder raises errors."""

from __future__ import annotations


class HaclientError(Exception):
    """Base of all errors of this package.

    :ivar code: a short, stable name: that of the class, or a more exact one where the client knows more.
        ``haclient help CODE`` and docs/errors.md say what it means and what to do.
    :ivar connection_usable: whether the connection may be used further.
    :ivar delivered: whether the message was delivered; ``None`` when nobody can know.
    :ivar safe_to_retry: whether the same call may be made again as it is: without making a duplicate, and
        with a chance to succeed.
    """

    code: str = "error"
    connection_usable: bool = True
    delivered: bool | None = False
    safe_to_retry: bool = True


_MOST_CHARACTERS = 200
"""Of a text of others in an error: two lines of a terminal show what it is, a peer may send a megabyte."""


def brief(text: str) -> str:
    """A text of a peer or the application as part of an error: its beginning, if it is long."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"


def quoted(text: object) -> str:
    """The same in quotation marks; ``None`` has none."""
    if not isinstance(text, str) or len(text) <= _MOST_CHARACTERS:
        return brief(repr(text))
    return f"{text[:_MOST_CHARACTERS]!r}… ({len(text)} characters)"
