"""How large the fleet of a primary is, and how its clients spread their dials after they lose it.

A primary that admits every client at once, and so sends no ``retry-after``, may announce two properties in
its Open:

    haclient:connections    ulong     the most clients that it had at once lately, N
    haclient:setup-rate     double    the connections a second that it can set up, mu

All clients together then arrive at the rate mu if each dials once in N/mu seconds, at a time of its own.

Rules
-----
1. Each client draws one moment of the period at its loss, and dials at this moment of every period.  Nothing
   else is drawn: a delay that is drawn anew for each dial would leave periods in which a client dials twice
   and others in which it does not, and the last client would be back after twice the time.
2. The period is (N - k)/mu.  Arrivals at random moments run ahead of mu, or behind it, by the root of N or
   so: behind, the primary is idle at times, and so k is the root of N where that is few connections beside a
   backlog.  Ahead, they wait in the backlog (128 connections at many brokers); those that it does not
   hold are back a period later.  The probability that a Brownian bridge rises above the backlog B is
   exp(-2 B (B - k) / N), and it is at most ``_OVERFLOWS``.  So a fleet of 300 arrives in 0.94 of its
   time, one of 20,000 in 1.02 of it.
3. The period is at most what the client allows: a faulty peer may announce anything.  Values that are no
   numbers, or none above 0, are as if nothing had been announced.
4. A client reads both when it connects, so they are old when the loss comes, and those of a primary that has
   just been promoted are too small: few clients are back.  A primary announces the most connections
   of a day, not those of the moment; and a client keeps half of what it knew before the loss if that is more.
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
    """What a primary announced.

    :param connections: its clients.
    :param setup_rate: connections a second that it can set up.
    """

    connections: int
    setup_rate: float

    def period(self, longest: float) -> float:
        """Seconds in which each client dials once; at most ``longest``."""
        ahead = min(math.sqrt(self.connections), _BACKLOG - self.connections * _PART)
        return min((self.connections - ahead) / self.setup_rate, longest)


NO_FLEET = FleetSize(0, math.inf)
"""Nothing was announced: the period is 0."""


def announced_fleet(properties: Mapping[str, Any]) -> FleetSize:
    """What the properties of an Open announce; ``NO_FLEET`` unless both values are possible ones."""
    connections, rate = properties.get(CONNECTIONS), properties.get(SETUP_RATE)
    if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
        return NO_FLEET
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
        return NO_FLEET
    return FleetSize(min(int(connections), _MOST_CONNECTIONS), float(rate))


def updated(known: FleetSize, announced: FleetSize, *, same_primary: bool) -> FleetSize:
    """What a client knows after one more Open (rule 4).

    :param same_primary: whether ``known`` is of the same primary, since the last loss.
    """
    if announced == NO_FLEET:
        return NO_FLEET
    before = known.connections if same_primary else known.connections // 2
    return replace(announced, connections=max(announced.connections, before))


class Slots:
    """The moments at which one client dials (rule 1).

    :param began: when it lost its connection, in monotonic seconds.
    :param period: seconds, above 0.
    :ivar first: the first one.
    """

    __slots__ = ("_next", "_period", "first")

    def __init__(self, began: float, period: float, rng: random.Random) -> None:
        self._period = period
        self._next = self.first = began + rng.uniform(0, period)

    def after(self, now: float) -> float:
        """The first one that is later than ``now``."""
        if self._next <= now:
            self._next += self._period * (math.floor((now - self._next) / self._period) + 1)
        if self._next <= now:  # the sum was rounded
            self._next += self._period
        return self._next
