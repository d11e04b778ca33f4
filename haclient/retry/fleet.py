"""The fleet size that a primary announces, and the times at which its clients dial after a loss.

A primary that admits every client at once, and so sends no ``retry-after``, may announce two properties in
its Open:

    haclient:connections    ulong     N, the largest recent number of simultaneous clients
    haclient:setup-rate     double    mu, the connections a second that the primary can set up

If each client dials once in N/mu seconds, at a random time of its own, all clients together arrive at the
rate mu.

Rules
-----
1. At a loss, each client draws one offset within the period, and dials at this offset of every period.  A
   delay drawn anew for each dial would be worse: in some periods a client would dial twice, in others never.
   The last client would be back after twice the time.
2. The period is (N - k)/mu.  Random arrivals run ahead of mu, or behind it, by about the root of N.
   If they are behind, the primary is idle at times; so k is the root of N, if that is small compared with a
   backlog.  If they are ahead, they wait in the backlog (128 connections at many brokers).  Clients that do
   not fit are back a period later.  A Brownian bridge rises above the backlog B with the probability
   exp(-2 B (B - k) / N), which is kept at or below ``_OVERFLOWS``.  So a fleet of 300 arrives in 0.94 of its
   time, one of 20,000 in 1.02 of it.
3. The client bounds the period, as a faulty peer may announce anything.  Values that are no numbers above 0
   count as not announced.
4. A client reads both values when it connects, so they are old at the next loss.  The number of a newly
   promoted primary is too small, since few clients are back.  So a primary announces its maximum of a day.
   And a client keeps half of the number known before the loss, if that is more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

CONNECTIONS = "haclient:connections"
SETUP_RATE = "haclient:setup-rate"

_BACKLOG = 128
_OVERFLOWS = 0.001
_PART = -math.log(_OVERFLOWS) / 2 / _BACKLOG
_MOST_CONNECTIONS = 2**63


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The fleet size and setup rate that a primary announced.

    :param connections: number of its clients.
    :param setup_rate: connections a second that it can set up.
    """

    connections: int
    setup_rate: float

    def period(self, longest: float) -> float:
        """Return the period in which each client dials once, in seconds; at most ``longest``."""
        ahead = min(math.sqrt(self.connections), _BACKLOG - self.connections * _PART)
        return min((self.connections - ahead) / self.setup_rate, longest)


NO_FLEET = FleetSize(0, math.inf)
"""No announcement: the period is 0."""


def announced_fleet(properties: Mapping[str, Any]) -> FleetSize:
    """Return the fleet announced by the properties of an Open; ``NO_FLEET`` unless both values are valid."""
    connections, rate = properties.get(CONNECTIONS), properties.get(SETUP_RATE)
    if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
        return NO_FLEET
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
        return NO_FLEET
    return FleetSize(min(int(connections), _MOST_CONNECTIONS), float(rate))


def updated(known: FleetSize, announced: FleetSize, *, same_primary: bool) -> FleetSize:
    """Return the client's knowledge of the fleet after another Open (rule 4).

    :param same_primary: whether ``known`` was announced by the same primary since the last loss.
    """
    if announced == NO_FLEET:
        return NO_FLEET
    before = known.connections if same_primary else known.connections // 2
    return replace(announced, connections=max(announced.connections, before))


class Slots:
    """The times at which one client dials (rule 1).

    :param began: time of the loss, in monotonic seconds.
    :param period: seconds; above 0.
    :ivar first: the first moment.
    """

    __slots__ = ("_next", "_period", "first")

    def __init__(self, began: float, period: float, rng: random.Random) -> None:
        self._period = period
        self._next = self.first = began + rng.uniform(0, period)

    def after(self, now: float) -> float:
        """Return the next of these times after ``now``."""
        if self._next <= now:
            self._next += self._period * (math.floor((now - self._next) / self._period) + 1)
        if self._next <= now:  # the sum was rounded
            self._next += self._period
        return self._next
