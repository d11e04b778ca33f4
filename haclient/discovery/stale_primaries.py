"""How long only stale primaries have served, and when the client forgets the generations that it knows.

A number that is too high makes every member of its cluster stale, and nobody can take it back: an impostor
announced it, or the arbiter began to count anew with the same cluster id.

Rules
-----
1. A stale primary that serves for a while is an old one that was paused, or replaced by force: the primary
   of the newer generation may be away for a round or many.
2. A connection that is up at a primary of a known generation shows that the number is right, whatever others
   reach: then the count begins anew.
3. After ``ROUNDS`` answers of stale primaries over ``refusal_timeout``, without one claim that was accepted,
   the number is wrong, or its primary is lost.  The client forgets all numbers, and an old primary serves it.
   ``refusal_timeout=none`` does not make it wait for ever: then it is ``_SECONDS``.
4. Searches come and go, also those that give up: the connections of a factory share one count.  A session
   without a generation says nothing, neither way: that of a parked one comes later, with its first link.
5. Time counts as for refusals (rule 4 there): a process that stood still has not waited.
"""

from __future__ import annotations

import math

from haclient.discovery.evidence import Claimed
from haclient.discovery.refusals import Streak
from haclient.retry.policy import Policy

# The default of ``refusal_timeout``.
_SECONDS = 60.0


class StalePrimaries:
    """The stale primaries that have served the searches of one factory."""

    __slots__ = ("_policy", "_seconds", "_streak", "_up")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seconds = _SECONDS if policy.refusal_timeout is None else policy.refusal_timeout
        self._streak = Streak()
        self._up: set[int] = set()

    def connected(self, connection: int) -> None:
        """A connection is up, at a primary that is not stale and has a generation."""
        self._up.add(connection)

    def disconnected(self, connection: int) -> None:
        """Forget that a connection was up, if it was."""
        self._up.discard(connection)

    def accepted(self, claim: Claimed) -> None:
        """A primary serves that is not stale."""
        if claim.generation is not None:
            self._streak.restart()

    def served(self, now: float) -> bool:
        """A stale primary has served.

        :returns: whether none but such have for so long that the generations are to be forgotten.
        """
        if self._up:
            self._streak.restart()
            return False
        self._streak.extend(self._policy, now)
        return self._streak.is_final(self._seconds, math.inf)
