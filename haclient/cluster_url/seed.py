"""An address of the seed list with its credentials, and credentials given by programs.

Rules: credentials belong to one seed and never move to the next.  Only ``Secret.reveal()`` shows a password,
never ``repr``, ``str``, a format string or ``dataclasses.asdict``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint

MASK = "***"


class Secret:
    """A text that must not be shown: ``str``, ``repr`` and formatting give ``***``.

    Not a dataclass, because ``dataclasses.asdict`` would extract the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, only for SASL."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user and a password or token.  ``None`` for both means ANONYMOUS (or EXTERNAL)."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Seed:
    """One entry of the seed list.

    :param endpoint: host and port; the port of an SRV name has no meaning.
    :param user: the user written for this seed, if any.
    :param password: ``None`` if there was none; an empty one is a ``Secret("")``.
    """

    endpoint: Endpoint
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)
