"""One address of the seed list, with the credentials written for it; and credentials as programs give them.

Rules: credentials belong to one seed and never move to the next; a password shows itself only
to ``Secret.reveal()``, never in ``repr``, ``str``, a format string or ``dataclasses.asdict``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint

MASK = "***"


class Secret:
    """A text that must not be shown: ``str``, ``repr`` and formatting give ``***``.

    Not a dataclass, for ``dataclasses.asdict`` would take it apart.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for SASL and nobody else."""
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

    :param endpoint: where it is; for an SRV name its port means nothing.
    :param user: the user written for this seed, if one was.
    :param password: ``None`` when there was none; an empty one is a ``Secret("")``.
    """

    endpoint: Endpoint
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)
