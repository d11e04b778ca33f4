"""The model of the new primary: its answer to each attempt, and the time of the answer.

Rules
-----
1. One server: a setup takes ``1/setup_rate`` seconds of work, in order of arrival.  So the end of a setup is
   known when it begins to wait, and needs no event of its own.
2. At most ``backlog`` setups wait; above that the kernel drops the SYN, or a reset answers it.
3. With ``retry_after`` the broker's own ``RateLimiter`` decides, at once: an event loop accepts between the
   setups in progress, so these do not fill the backlog.  A refusal takes ``refusal_cost`` of a setup's work,
   ahead of waiting setups; at most ``backlog`` refusals wait.
4. ``retry-after`` is in whole milliseconds, rounded up, as on the wire.
5. Parked clients have reservations from the same rate limiter, in the order in which they were parked.
   A reservation costs a whole setup, although the handshake is complete by then: it is paced like one.
"""

from __future__ import annotations

import enum
import math

from broker_stub.admission.rate_limiter import RateLimiter
from haclient.simulation.scenario import Scenario

_ROUNDING = 1e-6  # part of a setup; sums of times are not exact


class Verdict(enum.IntEnum):
    """The result of an attempt at the primary."""

    USABLE = 0
    RESET = 1
    LOST = 2
    DEFERRED = 3
    PARKED = 4


Answer = tuple[Verdict, float, float]
"""The verdict, the virtual time in seconds when it is known, and the seconds until the reservation of a
deferred or parked client."""


class Primary:
    """A primary, from the start of its service.

    :ivar handshakes: work of the primary: connections set up, and refusals with ``retry-after``.
    :ivar refused: attempts that a full backlog refused.
    :ivar deferred: refusals with ``retry-after``.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._service = 1 / scenario.setup_rate
        self._refusal = scenario.refusal_cost * self._service
        self._patience = (scenario.backlog + _ROUNDING) * self._service
        self._refusal_patience = (scenario.backlog + _ROUNDING) * self._refusal
        self._full = Verdict.RESET if scenario.when_full == "reset" else Verdict.LOST
        self._admission = RateLimiter(scenario.accepted) if scenario.retry_after else None
        self._busy_until = 0.0
        self._refusing_until = 0.0
        self.handshakes = 0
        self.refused = 0
        self.deferred = 0

    def attempt(self, client: int, now: float, *, may_park: bool = False) -> Answer:
        """Answer a client's attempt to connect."""
        if self._admission is None:
            full = self._busy_until - now > self._patience
            return self._reject_full(now) if full else (Verdict.USABLE, self.serve(now), 0.0)
        if self._refusing_until - now > self._refusal_patience:
            return self._reject_full(now)
        delay = self._admission.reserve(client, now)
        if delay == 0:
            return Verdict.USABLE, self.serve(now), 0.0
        return (Verdict.PARKED, now, delay) if may_park else self._refuse(now, delay)

    def reservation(self, client: int, now: float) -> float:
        """Return the seconds until the reserved time of a parked client."""
        return 0.0 if self._admission is None else self._admission.reserve(client, now)

    def use_reservation(self, client: int, now: float) -> float:
        """Connect a parked client at its reserved time; return the end of its setup."""
        if self._admission is not None:
            self._admission.reserve(client, now)
        return self.serve(now)

    def serve(self, now: float) -> float:
        """Begin a setup; return its end."""
        self.handshakes += 1
        self._busy_until = max(self._busy_until, now) + self._service
        return self._busy_until

    def _refuse(self, now: float, delay: float) -> Answer:
        self.handshakes += 1
        self.deferred += 1
        self._refusing_until = max(self._refusing_until, now) + self._refusal
        self._busy_until = max(self._busy_until, now) + self._refusal
        return Verdict.DEFERRED, self._refusing_until, math.ceil(delay * 1000) / 1000

    def _reject_full(self, now: float) -> Answer:
        self.refused += 1
        return self._full, now, 0.0
