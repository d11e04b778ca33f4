"""Forget the known generations after only stale primaries have served for long.

A known generation that is too high makes every member of its cluster stale, and no member can correct it.
Causes: an impostor announced it, or the arbiter restarted its count under the same cluster id.

Rules
-----
1. For a while, a stale primary may really be an old one that was paused or replaced by force.  The primary of
   the newer generation may be unreachable for several rounds.
2. An open connection to a primary that has a generation and is not stale proves the known generation right.
   The count restarts.
3. The known generation counts as wrong, or its primary as lost, after ``ROUNDS`` answers of stale primaries
   over ``refusal_timeout`` without an accepted claim.  Then the client forgets all generations and accepts an
   old primary.  With ``refusal_timeout=none`` the time is ``_SECONDS``.
4. All connections of a factory share one count, which outlives each search.  A session without a generation
   does not count: a parked session gets its generation later, with its first link.
5. Time counts as for refusals (rule 4 there): the time while the process stood still does not count.
"""

from __future__ import annotations

import math

from haclient.discovery.evidence import Claimed
from haclient.discovery.refusals import Streak
from haclient.retry.policy import Policy

# The default of ``refusal_timeout``.
_SECONDS = 60.0


class StalePrimaries:
    """Counts the stale primaries that the searches of one factory met."""

    __slots__ = ("_policy", "_seconds", "_streak", "_up")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seconds = _SECONDS if policy.refusal_timeout is None else policy.refusal_timeout
        self._streak = Streak()
        self._up: set[int] = set()

    def connected(self, connection: int) -> None:
        """Record an open connection to a primary that has a generation and is not stale.

        While one is open, ``served`` returns False and restarts the count.
        """
        self._up.add(connection)

    def disconnected(self, connection: int) -> None:
        """Record the end of a connection."""
        self._up.discard(connection)

    def accepted(self, claim: Claimed) -> None:
        """Restart the count if the claim has a generation: a primary that is not stale serves."""
        if claim.generation is not None:
            self._streak.restart()

    def served(self, now: float) -> bool:
        """Count a stale primary that serves.

        :returns: whether to forget the generations, as only stale primaries have served for long (rule 3).
            It stays true until the count restarts.
        """
        if self._up:
            self._streak.restart()
            return False
        self._streak.extend(self._policy, now)
        return self._streak.is_final(self._seconds, math.inf)
