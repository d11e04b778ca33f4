"""An accept rate that follows how fast set-ups are really completing (``--accept-rate auto``).  No I/O.

Theory of operation
-------------------
Additive increase, multiplicative decrease, looked at every ``INTERVAL``.  Two things say that there
is too much to do: the event loop came late, which is what those already in feel, and the set-ups
that were admitted took much longer, from the accepted socket to the Begin, than the fastest
ever did.  Then the rate falls by ``DECREASE``.  When neither is so, and somebody had to wait for a slot,
it grows by ``INCREASE`` of what it began with.

Rules
-----
* The rate stays between an eighth and four times what it began with: a member that is
  busy with other things still lets clients in, and a measurement is not off by more.
* When nobody waits the rate stays: nothing is learnt from a limit that nobody feels.

Sources: Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance"
(1989); the fastest as the base as in TCP Vegas (Brakmo and Peterson, 1995).
"""

from __future__ import annotations

# Seconds between two looks: some dozens of set-ups, and a storm of seconds still has several.
INTERVAL = 0.25
# Linear growth doubles the rate in five seconds.
INCREASE = 0.05
DECREASE = 0.7
_SPAN_BELOW, _SPAN_ABOVE = 8, 4
# A loop that is later than this delays every answer by as much, in seconds.
_MOST_LAG = 0.02
# A set-up that is not slower than this is fast, whatever the fastest was, in seconds.
_FAST = 0.1
_SLOWER = 4


class AutoRate:
    """Adapts a rate.

    :param start: set-ups a second, as they were measured.
    """

    __slots__ = ("_ceiling", "_count", "_fastest", "_floor", "_seconds", "_step", "_wanted", "rate")

    def __init__(self, start: float) -> None:
        self.rate = start
        self._floor = start / _SPAN_BELOW
        self._ceiling = start * _SPAN_ABOVE
        self._step = start * INCREASE
        self._fastest = float("inf")
        self._wanted = False
        self._count = 0
        self._seconds = 0.0

    def completed(self, seconds: float) -> None:
        """A client that was admitted is set up; it took so long."""
        self._count += 1
        self._seconds += seconds
        self._fastest = min(self._fastest, seconds)

    def wanted(self) -> None:
        """Somebody had to wait for a slot."""
        self._wanted = True

    def look(self, lag: float) -> float:
        """The rate from now on; called every ``INTERVAL``.

        :param lag: seconds that the loop was late.
        """
        if lag > _MOST_LAG or self._slow():
            self.rate = max(self._floor, self.rate * DECREASE)
        elif self._wanted:
            self.rate = min(self._ceiling, self.rate + self._step)
        self._wanted = False
        self._count = 0
        self._seconds = 0.0
        return self.rate

    def _slow(self) -> bool:
        if not self._count:
            return False
        return self._seconds / self._count > max(_FAST, self._fastest * _SLOWER)
