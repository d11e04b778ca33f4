"""The member that a server asked this client to connect to, and when.

    amqp:resource-limit-exceeded, retry-after     the primary is full: reconnect to it after the delay
    amqp:connection:redirect, retry-after         connect to the redirect's target after the delay

Rules
-----
1. After the wait the search dials this member first and alone: it has reserved the time for this client.
   If the attempt fails, the search continues with the list.
2. If the member has no TCP connection after ``stagger``, the search also dials the list meanwhile.
3. A new reservation replaces the old one, since the server's newer answer is better.
4. Any other ``retry-after`` names no member.  It delays the next round, see ``rounds``.
"""

from __future__ import annotations

from collections.abc import Callable

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.pending_attempts import PendingAttempts, Target


class Reservation:
    """The current reservation of a search, if any; false while there is none.

    :ivar retry_after: the delay in seconds that the server asked for; ``None`` once the wait has begun.
    :ivar attempt: number of the last attempt at a reserved member; 0 if there was none.
    """

    __slots__ = ("_targets", "attempt", "retry_after")

    def __init__(self) -> None:
        self.retry_after: float | None = None
        self.attempt = 0
        self._targets: tuple[Target, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._targets)

    def __contains__(self, endpoint: object) -> bool:
        return any(target.endpoint == endpoint for target in self._targets)

    def make(self, targets: tuple[Target, ...], retry_after: float) -> None:
        """Reserve these targets, to be dialled in ``retry_after`` seconds."""
        self._targets, self.retry_after = targets, retry_after

    def take_retry_after(self) -> float | None:
        """Return and clear the delay, for the wait that begins now."""
        retry_after, self.retry_after = self.retry_after, None
        return retry_after

    def due(self, is_open: Callable[[Endpoint], bool]) -> Target | None:
        """Return the target to dial, after dropping targets that may not be dialled any more."""
        while self._targets and not is_open(self._targets[0].endpoint):
            self._targets = self._targets[1:]
        return self._targets[0] if self._targets else None

    def dialled(self, attempt: int) -> None:
        """Remove the first target, which this attempt dials."""
        self._targets = self._targets[1:]
        self.attempt = attempt

    def is_alone(self, pending: PendingAttempts, stagger: float, now: float) -> bool:
        """Return whether the reservation's attempt is pending and bars all other dials (rules 1 and 2)."""
        own = pending.get(self.attempt)
        if own is None or own.parked_at is not None:
            return False
        return own.connected_at is not None or now < own.dialled_at + stagger
