"""Limits the connection setups of a member per second, and reserves slots for waiting clients. No I/O.

Theory of operation
-------------------
Time is divided into slots, ``1/rate`` apart. Each client gets the next free slot. If the slot is not in the
future, the client is admitted. Otherwise the slot is reserved under the client's name, and the client learns
how long to wait. The k-th refused client has a slot k slots later, so all of them together connect at
``rate``. Up to ``burst`` slots of an idle time can be used later. This is a token bucket, expressed like the
Generic Cell Rate Algorithm by the time of the next slot alone.

Rules
-----
* A client that connects within ``grace`` seconds after its slot, or less than one slot before it, is admitted
  and uses up its slot.
* A client that connects too early learns the remaining time of the same slot: asking often gains nothing.
* A slot that its client did not use is a credit for the next new client. There are at most ``burst`` credits,
  since unused slots cannot be saved up.
* A new rate applies to later reservations; earlier reservations stay.
* Every call takes amortised constant time: slots are assigned in the order of their times, so unused slots
  are at one end.

Each client needs its own name: two connections under one name share one slot.

Sources: ITU-T I.371, annex A (the algorithm as virtual scheduling); docs/storms.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

# Connections of one application may arrive together; the primary's work in one burst stays short.
DEFAULT_BURST = 8.0
# Clients add jitter to ``retry-after``, a dial takes time, and a busy client is late.
DEFAULT_GRACE = 2.0


class RateLimiter:
    """Assigns slots to clients.

    :param rate: setups per second; ``math.inf`` admits every client.
    :param burst: number of clients that may connect at once after an idle time.
    :param grace: seconds that a slot stays reserved.
    :param reuse: true if an unused slot goes to another client. False if clients are redirected: only the
        other member sees whether they connect.
    """

    __slots__ = ("_credits", "_free", "_grace", "_interval", "_rate", "_reuse", "_slots", "_waiting", "burst")

    def __init__(
        self, rate: float, *, burst: float = DEFAULT_BURST, grace: float = DEFAULT_GRACE, reuse: bool = True
    ) -> None:
        if not (burst >= 1 and grace >= 0):
            raise ValueError(
                f"a burst of at least 1 and a grace of at least 0 are expected: {burst}, {grace}"
            )
        self.rate = rate
        self.burst = burst
        self._grace = grace
        self._reuse = reuse
        self._free = float("-inf")
        self._credits = 0.0
        self._slots: deque[tuple[float, Hashable]] = deque()
        """The reserved slots, in the order of their times."""
        self._waiting: dict[Hashable, float] = {}
        """The slot of each client."""

    @property
    def rate(self) -> float:
        """Setups per second."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        if not rate > 0:
            raise ValueError(f"a rate above 0 is expected, not {rate}")
        self._rate = rate
        self._interval = 1 / rate

    @property
    def waiting(self) -> int:
        """The number of reserved slots."""
        return len(self._waiting)

    def reserve(self, client: Hashable, now: float) -> float:
        """Return the seconds until the client's slot; 0.0 admits it now."""
        self._expire(now)
        slot = self._waiting.get(client)
        if slot is None:
            return self._reserve_new(client, now)
        if slot - self._interval > now:
            return slot - now
        del self._waiting[client]
        return 0.0

    def _reserve_new(self, client: Hashable, now: float) -> float:
        if self._credits >= 1:
            self._credits -= 1
            return 0.0
        slot = max(self._free, now - (self.burst - 1) * self._interval)
        self._free = slot + self._interval
        if slot <= now:
            return 0.0
        self._slots.append((slot, client))
        self._waiting[client] = slot
        return slot - now

    def _expire(self, now: float) -> None:
        """Turn unused slots into credits."""
        slots = self._slots
        while slots and slots[0][0] + self._grace < now:
            slot, client = slots.popleft()
            if self._waiting.get(client) == slot:
                del self._waiting[client]
                if self._reuse:
                    self._credits = min(self._credits + 1, self.burst)
