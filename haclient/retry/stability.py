"""Decide whether a lost connection restarts its backoff or continues it.

Rules
-----
1. If the connection was usable for ``stable_after``, it was stable, and its loss restarts the backoff.
2. The backoff also restarts if the search ended at another member than before, or at a newer generation.
   Then the cluster failed over, and each failover is a new incident, however soon it follows.
3. A member that accepts connections and drops them is no failover.  So rule 2 does not apply to the same
   member (one address with one generation) twice within ``stable_after``.  Nor may a peer that announces a
   newer generation each time restart the backoff: rule 2 applies at most once in ``_AGAIN`` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

_AGAIN = 1.0
_MOST = 16
"""Maximum number of members to remember; as many as the topology's clusters."""


class Stability:
    """The sessions of one connection.

    :param stable_after: the option ``stable_after``, in seconds.
    """

    __slots__ = ("_is_new", "_last", "_reset_at", "_seen", "_stable_after", "_usable_at")

    def __init__(self, stable_after: float) -> None:
        self._stable_after = stable_after
        self._seen: dict[Hashable, float] = {}
        self._last: Hashable = None
        self._usable_at = 0.0
        self._reset_at = -math.inf
        self._is_new = False

    def usable(self, member: Hashable, now: float) -> None:
        """Record that a session is usable.

        :param member: endpoint and generation; a newer generation at the same address is another primary.
        :param now: monotonic seconds.
        """
        seen = self._seen.pop(member, -math.inf)
        moved = self._last is not None and self._last != member
        self._is_new = moved and now - seen >= self._stable_after
        self._seen[member] = self._usable_at = now
        self._last = member
        if len(self._seen) > _MOST:
            del self._seen[next(iter(self._seen))]

    def was_stable(self, now: float) -> bool:
        """Return whether the lost session was usable for ``stable_after`` (rule 1)."""
        return now - self._usable_at >= self._stable_after

    def begins_anew(self, now: float) -> bool:
        """Return whether this loss restarts the backoff."""
        anew = self.was_stable(now) or (self._is_new and now - self._reset_at >= _AGAIN)
        if anew:
            self._reset_at = now
        return anew
