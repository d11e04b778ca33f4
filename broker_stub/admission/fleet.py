"""Announces the size of the fleet, so that clients spread their dials. No I/O.

A primary that sends no ``retry-after`` announces two numbers in its Open (``haclient.retry.fleet``): its
recent maximum of concurrent connections, and the setups per second that it can handle. A client reads them
when it connects, and uses them when the primary is lost.

Rule: "recent" means the current and the previous day, counted from the member's start. At night many clients
are disconnected, and a client that connects then must know of the others as well.
"""

from __future__ import annotations

from typing import Any

import proton

from haclient.retry.fleet import CONNECTIONS, SETUP_RATE

_DAY = 86_400.0


class Peak:
    """The most concurrent connections within the last one to two days."""

    __slots__ = ("_before", "_ends", "_most")

    def __init__(self, now: float) -> None:
        self._before = self._most = 0
        self._ends = now + _DAY

    def note(self, connections: int, now: float) -> int:
        """Record the current number; return the maximum.

        :param now: monotonic seconds.
        """
        if now >= self._ends:
            self._before = self._most if now < self._ends + _DAY else connections
            self._most = connections
            self._ends = now + _DAY
        self._most = max(self._most, connections)
        return max(self._most, self._before)


def announcement(connections: int, setup_rate: float) -> dict[str, Any]:
    """Return the properties for an Open."""
    return {CONNECTIONS: proton.ulong(connections), SETUP_RATE: setup_rate}
