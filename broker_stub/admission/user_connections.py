"""Counts the connections of each user. No I/O.

Rule: the cluster-admin is not counted, so that a health probe is always admitted.
"""

from __future__ import annotations

from collections import Counter


class UserConnections:
    """The number of connections of each user.

    :param limit: connections of one user, and of all anonymous clients together; ``None`` for no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._counts: Counter[str | None] = Counter()

    def refusal_reason(self, user: str | None) -> str:
        """Return the reason why a user may have no further connection; empty if it may."""
        if self._limit is None or self._counts[user] < self._limit:
            return ""
        who = "anonymous clients have" if user is None else f"user {user!r} has"
        return f"{who} {self._limit} connections, which is the limit"

    def rename(self, user: str | None, other: str) -> str:
        """Count a connection as another user's; return the reason if that user may have no further one."""
        reason = self.refusal_reason(other)
        if not reason:
            self.remove(user)
            self.add(other)
        return reason

    @property
    def total(self) -> int:
        """Connections of all users."""
        return self._counts.total()

    def add(self, user: str | None) -> None:
        """Count an admitted connection of the user."""
        self._counts[user] += 1

    def remove(self, user: str | None) -> None:
        """Stop counting a connection that has ended."""
        self._counts[user] -= 1
        if not self._counts[user]:
            del self._counts[user]
