"""How many connections a member sets up in a second, and when the others shall come.  No I/O, no proton.

Theory of operation
-------------------
Time is cut into slots, ``1/rate`` apart.  Who asks gets the next free one.  A slot that is not in the
future means: admitted.  Otherwise it is kept under the client's name, and the client is told how long
to wait: the k-th one that is refused comes k slots later, so all of them together come at ``rate``.
Up to ``burst`` slots of an idle time can be used later (a token bucket, told as the Generic Cell Rate
Algorithm does, by the time of the next slot alone).

Rules
-----
* A client that comes within ``grace`` seconds after its slot, or less than one slot before it, is
  admitted, and its slot is used up.
* A client that comes too early is told what remains of the same slot: asking often gains nothing.
* A slot whose client has not come is a credit for the next newcomer; there are at most ``burst``
  of them, for what was not used cannot be saved up.
* A new rate holds for slots that are given out from then on: what was promised, stays.
* Every call takes constant time, spread over the calls: slots are given out in the order of
  their times, so those that nobody came for are at one end.

Who asks must be known by a name of its own: two connections under one name have one slot together.

Sources: ITU-T I.371, annex A (the algorithm as virtual scheduling); DESIGN section 6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

# The connections of one application may come together; what the primary does at once stays short.
DEFAULT_BURST = 8.0
# A hint is obeyed with jitter, a dial takes time, and a busy client is late.
DEFAULT_GRACE = 2.0


class Admission:
    """Gives out slots.

    :param rate: set-ups a second; ``math.inf`` admits everybody.
    :param burst: how many may come at once after an idle time.
    :param grace: seconds that a slot is kept.
    :param reuse: whether a slot that nobody came for goes to another: not where clients are sent on
        to somebody else, who sees whether they came.
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
        """The slots that were given out, in the order of their times."""
        self._waiting: dict[Hashable, float] = {}
        """Which slot a client has."""

    @property
    def rate(self) -> float:
        """Set-ups a second."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        if not rate > 0:
            raise ValueError(f"a rate above 0 is expected, not {rate}")
        self._rate = rate
        self._interval = 1 / rate

    @property
    def waiting(self) -> int:
        """How many slots are kept for somebody."""
        return len(self._waiting)

    def ask(self, client: Hashable, now: float) -> float:
        """Whether a client is admitted now (0.0), or how many seconds it is until its slot."""
        self._expire(now)
        slot = self._waiting.get(client)
        if slot is None:
            return self._newcomer(client, now)
        if slot - self._interval > now:
            return slot - now
        del self._waiting[client]
        return 0.0

    def _newcomer(self, client: Hashable, now: float) -> float:
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
        """Turn the slots that nobody came for into credits."""
        slots = self._slots
        while slots and slots[0][0] + self._grace < now:
            slot, client = slots.popleft()
            if self._waiting.get(client) == slot:
                del self._waiting[client]
                if self._reuse:
                    self._credits = min(self._credits + 1, self.burst)
