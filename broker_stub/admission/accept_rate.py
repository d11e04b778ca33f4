"""Adapts the accept rate to the duration of connection setups (``--accept-rate auto``). No I/O.

Theory of operation
-------------------
The rate follows additive increase, multiplicative decrease, adjusted every ``INTERVAL``. Two measurements
indicate overload. First, the event loop runs late, which delays connected clients. Second, admitted
connections need much longer from the accepted socket to the Begin than the fastest one so far. In either case
the rate is multiplied by ``DECREASE``. Otherwise, if a client had to wait for a slot, the rate grows by
``INCREASE`` of the start rate.

Rules
-----
* The rate stays between an eighth and four times the start rate. A member busy with other work still admits
  clients, and the start measurement is not off by more.
* The rate does not change while no client waits: an unused limit yields no information.

Sources: Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance" (1989);
the fastest as the base as in TCP Vegas (Brakmo and Peterson, 1995).
"""

from __future__ import annotations

# Seconds between two adjustments: some dozens of setups, and several intervals even in a short storm.
INTERVAL = 0.25
# Linear growth doubles the rate in five seconds.
INCREASE = 0.05
DECREASE = 0.7
_SPAN_BELOW, _SPAN_ABOVE = 8, 4
# Seconds; a loop that is later than this delays every answer equally.
_MAX_LAG = 0.02
# Seconds; a setup within this time counts as fast, whatever the fastest was.
_FAST = 0.1
_SLOWER = 4


class AutoRate:
    """The adaptive accept rate.

    :param start: measured setups per second.
    """

    __slots__ = ("_ceiling", "_count", "_fastest", "_floor", "_seconds", "_step", "_waited", "rate")

    def __init__(self, start: float) -> None:
        self.rate = start
        self._floor = start / _SPAN_BELOW
        self._ceiling = start * _SPAN_ABOVE
        self._step = start * INCREASE
        self._fastest = float("inf")
        self._waited = False
        self._count = 0
        self._seconds = 0.0

    def completed(self, seconds: float) -> None:
        """Record the duration of an admitted client's setup."""
        self._count += 1
        self._seconds += seconds
        self._fastest = min(self._fastest, seconds)

    def note_waiting(self) -> None:
        """Record that a client had to wait for a slot."""
        self._waited = True

    def tick(self, lag: float) -> float:
        """Adjust the rate and return it; called every ``INTERVAL``.

        :param lag: seconds that the event loop ran late.
        """
        if lag > _MAX_LAG or self._slow():
            self.rate = max(self._floor, self.rate * DECREASE)
        elif self._waited:
            self.rate = min(self._ceiling, self.rate + self._step)
        self._waited = False
        self._count = 0
        self._seconds = 0.0
        return self.rate

    def _slow(self) -> bool:
        if not self._count:
            return False
        return self._seconds / self._count > max(_FAST, self._fastest * _SLOWER)
