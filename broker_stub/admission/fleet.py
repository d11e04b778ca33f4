"""What a primary that sends no ``retry-after`` announces, so that its clients spread their dials.  No I/O.

Its Open has the connections that it has had at once lately, and those that it can set up in a second
(``haclient.retry.fleet``).  A client reads them when it connects, and uses them when the primary is lost.

Rule: "lately" is the current day and the one before, from the start of the member on: at night many clients
are away, and those that connect then must know the others as well.
"""

from __future__ import annotations

from typing import Any

import proton

from haclient.retry.fleet import CONNECTIONS, SETUP_RATE

_DAY = 86_400.0


class Peak:
    """The most connections at once, of one to two days."""

    __slots__ = ("_before", "_ends", "_most")

    def __init__(self, now: float) -> None:
        self._before = self._most = 0
        self._ends = now + _DAY

    def note(self, connections: int, now: float) -> int:
        """Take the number of the moment; return the most.

        :param now: monotonic seconds.
        """
        if now >= self._ends:
            self._before = self._most if now < self._ends + _DAY else connections
            self._most = connections
            self._ends = now + _DAY
        self._most = max(self._most, connections)
        return max(self._most, self._before)


def announcement(connections: int, setup_rate: float) -> dict[str, Any]:
    """The properties for an Open."""
    return {CONNECTIONS: proton.ulong(connections), SETUP_RATE: setup_rate}
