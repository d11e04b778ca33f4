"""The names of the links of one connection, unique per direction as peers require.

Source: AMQP 1.0 part 2, section 2.6.1.
"""

from __future__ import annotations

from haclient.error_catalog.arguments import check_text
from haclient.error_catalog.base import quoted

Key = tuple[type, str]
"""The direction of a link, as its class, and its name."""


class LinkNames:
    """The names in use.

    :param prefix: prefix of names that the application does not choose.
    """

    __slots__ = ("_made", "_prefix", "_used")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._used: dict[Key, None] = {}
        self._made = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._used

    def choose(self, kind: type, name: str | None) -> str:
        """Return the name of a new link.

        :param name: the application's choice; ``None`` or empty for none.
        :raises ValueError: if it is in use.
        :raises TypeError: if it is no text.
        """
        check_text("name", name, optional=True)
        if name:
            if (kind, name) in self._used:
                raise ValueError(f"the link name {quoted(name)} is in use")
            return name
        while True:
            self._made += 1
            made = f"{self._prefix}-{self._made}"
            if (kind, made) not in self._used:
                return made

    def add(self, key: Key) -> None:
        """Record that a link uses the name."""
        self._used[key] = None

    def remove(self, key: Key) -> None:
        """Record that the link has ended."""
        self._used.pop(key, None)
