"""When a lost connection leaves its backoff as it was, and when the series begins anew.

Rules
-----
1. A connection that was usable for ``stable_after`` was stable: the next loss is a new incident.
2. So it is when the search ended at another member than the one before, or at a newer generation: this
   cluster fails over, and each failover is an incident of its own, however soon it follows.
3. But a member that accepts connections and drops them is no cluster that fails over.  The same one twice
   within ``stable_after`` (one address with one generation) is not what rule 2 means, nor is a peer that
   announces a newer generation each time: rule 2 holds once in ``_AGAIN`` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

_AGAIN = 1.0
_MOST = 16
"""Members; as many as the topology knows clusters."""


class Stability:
    """The sessions of one connection.

    :param stable_after: the option of that name, in seconds.
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
        """A session is usable.

        :param member: its endpoint and generation: behind one address a newer one is another primary.
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
        """Whether the session that is lost was usable for long enough (rule 1)."""
        return now - self._usable_at >= self._stable_after

    def begins_anew(self, now: float) -> bool:
        """Whether the backoff begins anew with this loss."""
        anew = self.was_stable(now) or (self._is_new and now - self._reset_at >= _AGAIN)
        if anew:
            self._reset_at = now
        return anew
