"""When a client dials whose primary announced its fleet before it was lost (``retry.fleet``).

Rules
-----
1. One broken connection does not wait for the fleet: the first round after a loss dials the lost primary, and
   no other member.  With one address a client whose own moment comes before it could dial twice dials then
   instead.
2. From then on it dials at its own moment of each period, with nothing drawn: this keeps the
   arrivals of a fleet even, and most clients at one attempt.
3. A suspect has a full backlog, which few clients meet and for a short time: it is dialled sooner
   than a period, but ever more rarely.
4. A SYN that nothing answers is closed before its kernel repeats it: repeats come at times that all
   clients share.  Now and then it is kept for longer, for a network that takes more time than that.
5. A period that is no longer than a poll is none.  It is at most ``max_spread``, and a third of
   ``deadline``: a client that gives up after that has dialled before.
"""

from __future__ import annotations

import random

from haclient.cluster_url.endpoint import Endpoint
from haclient.retry.fleet import FleetSize, Slots
from haclient.retry.policy import Policy

_KEPT_LONG = 1 / 16
"""The part of SYNs that is kept; so small that they do not fill the backlog when the primary serves again."""
_DIALS_UNTIL_DEADLINE = 3
_SUSPECT = (1.15, 1 / 50, 1.6)
"""s at least; part of the period; growth."""


class Spread:
    """The moments of one client in one episode; false where there are none.

    :param began: when the connection was lost, in monotonic seconds.
    :ivar period: seconds; 0 where there are no moments.
    """

    __slots__ = ("_began", "_policy", "_rng", "_slots", "_suspected", "period")

    def __init__(self, policy: Policy, rng: random.Random, began: float) -> None:
        self._policy = policy
        self._rng = rng
        self._began = began
        self._slots: Slots | None = None
        self._suspected = 0
        self.period = 0.0

    def __bool__(self) -> bool:
        return self.period > 0

    def use(self, fleet: FleetSize, poll: float) -> None:
        """Use a fleet.

        :param poll: seconds from one dial to the next without it.
        """
        longest = self._policy.max_spread
        if self._policy.deadline is not None:
            longest = min(longest, self._policy.deadline / _DIALS_UNTIL_DEADLINE)
        period = fleet.period(longest)
        if period <= poll:
            self.stop()
        elif self._slots is None or period != self.period:
            self.period = period
            self._slots = Slots(self._began, period, self._rng)

    def stop(self) -> None:
        """Dial as without a fleet."""
        self.period, self._slots = 0.0, None

    def first_round(
        self, candidates: tuple[Endpoint, ...], lost: Endpoint | None, gap: float
    ) -> tuple[Endpoint, ...]:
        """Return the endpoints that the first round after a loss dials: one, or none (rule 1).

        Dials the lost primary, or the first candidate if the lost primary is not among them.  Returns none if
        there is one candidate, and the client's own moment comes before it could dial twice.

        :param gap: seconds that two dials of one endpoint are apart at least.
        """
        assert self._slots is not None
        if len(candidates) == 1 and self._slots.first <= self._began + self._policy.backoff_base + gap:
            return ()
        return tuple(each for each in candidates if each == lost) or candidates[:1]

    def after(self, now: float, *, first: bool, suspects: bool) -> float:
        """Return the monotonic time of the next dial, at or after ``now``.

        :param first: whether no moment has been used yet.  If the first moment has passed, dial now.
        :param suspects: whether a member seems to have a full backlog: dial sooner than a period (rule 3).
        """
        assert self._slots is not None
        moment = max(now, self._slots.first) if first else self._slots.after(now)
        if not suspects:
            self._suspected = 0
            return moment
        least, part, growth = _SUSPECT
        sooner = min(max(least, part * self.period) * growth**self._suspected, self.period)
        self._suspected = min(self._suspected + 1, 64)
        return min(moment, now + sooner * self._rng.uniform(0.8, 1))

    def keeps_long(self) -> bool:
        """Draw whether a SYN is kept for a far network (rule 4)."""
        return self._rng.random() < _KEPT_LONG
