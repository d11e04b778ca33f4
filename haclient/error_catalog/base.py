"""The base of all errors.  It is below everything else, for every folder raises errors."""

from __future__ import annotations

from haclient.printable.text import printable


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

    def __str__(self) -> str:
        """One printable line: parts of it are a peer's."""
        return printable(super().__str__())
