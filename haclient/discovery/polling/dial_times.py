"""The times of the last dials of each endpoint, by any search of a factory: they keep dials apart.

Rules
-----
1. An endpoint that does not serve gets at most two SYNs a second from one factory, and never two within
   ``gap`` seconds: whether the list, a redirect, a known primary or another connection leads there.
2. A dial that hangs is repeated by the kernel (``tcp_syn_retries``), so the time of its last SYN is not
   known: from ``REPEATS`` seconds on it counts as sent when the client closes the socket.
3. An endpoint that serves, or that asks the client to come back, is open to everybody until it fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from haclient.cluster_url.endpoint import Endpoint

REPEATS = 0.9
"""Seconds; Linux repeats a SYN after one second (RFC 6298, section 2)."""

_WINDOW = 2.5
"""Gaps in which two dials are allowed: one second at the default gap of 0.4 s."""
_MOST = 256
"""Endpoints; as many as the topology keeps failures of."""


class DialTimes:
    """The last two dials of each endpoint, in monotonic seconds.

    :param opened: called when an endpoint may be dialled before the time that ``free_at`` returned.
    """

    __slots__ = ("_open", "_opened", "_times")

    def __init__(self, opened: Callable[[], None] = lambda: None) -> None:
        self._opened = opened
        self._times: dict[Endpoint, tuple[float, float]] = {}
        self._open: dict[Endpoint, None] = {}

    def note(self, endpoint: Endpoint, now: float) -> None:
        """A SYN is sent, or may have been."""
        before = self._times.pop(endpoint, (-math.inf, -math.inf))[1]
        self._times[endpoint] = (before, now)
        if len(self._times) > _MOST:
            del self._times[next(iter(self._times))]

    def move(self, endpoint: Endpoint, now: float) -> None:
        """Set the time of the last dial: its SYN is sent only now, after credentials or an address arrived.

        Does nothing if the time is infinite (the SYN will be sent later), or if no dial was noted.
        """
        if endpoint in self._times and now < math.inf:
            self._times[endpoint] = (self._times[endpoint][0], now)

    def prolong(self, endpoint: Endpoint, now: float) -> None:
        """Note that the last dial closed its socket; its last SYN counts as sent now.

        The SYN before it counts as sent a second earlier at most.  Only for a dial that hung for ``REPEATS``
        seconds or longer: the caller checks that.
        """
        last = self._times.get(endpoint, (-math.inf, -math.inf))[1]
        self._times[endpoint] = (max(last, now - 1.0), now)

    def open(self, endpoint: Endpoint) -> None:
        """It serves, or asks the client to come back."""
        if endpoint in self._open:
            return
        self._open[endpoint] = None
        if len(self._open) > _MOST:
            del self._open[next(iter(self._open))]
        if endpoint in self._times:
            self._opened()

    def close(self, endpoint: Endpoint) -> None:
        """It does not serve."""
        self._open.pop(endpoint, None)

    def last(self, endpoint: Endpoint) -> float:
        """When it was dialled last; minus infinity if it was not."""
        return self._times.get(endpoint, (-math.inf, -math.inf))[1]

    def free_at(self, endpoint: Endpoint, gap: float) -> float:
        """Return the time in monotonic seconds, perhaps past, from which an endpoint may be dialled again.

        It is minus infinity if the endpoint is open, or was not dialled.
        """
        times = self._times.get(endpoint)
        if times is None or endpoint in self._open:
            return -math.inf
        before, last = times
        return max(last + gap, before + _WINDOW * gap)
