"""The member that a server asked this client to connect to, and when.

    amqp:resource-limit-exceeded, retry-after     the primary is full: connect to it again then
    amqp:connection:redirect, retry-after         connect to the target of the redirect then

Rules
-----
1. After the wait the search dials this member first and alone: it has reserved the time for this client.
   The search continues with the list when the attempt has failed.
2. "Alone" ends early if the member does not answer: without TCP for ``stagger`` the search continues with
   the list meanwhile.
3. A new reservation replaces the old one: the server's newer answer is the better one.
4. Any other ``retry-after`` names no member.  It delays the next round, see ``rounds``.
"""

from __future__ import annotations

from collections.abc import Callable

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.pending_attempts import PendingAttempts, Target


class Reservation:
    """At most one; empty at first.

    :ivar retry_after: the delay that the server asked for, in seconds, until a wait begins with it.
    :ivar attempt: the last one that dialled a reservation; 0 when none did.
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
        """Dial these targets in that many seconds."""
        self._targets, self.retry_after = targets, retry_after

    def take_retry_after(self) -> float | None:
        """Return the delay, for the wait that begins now, and forget it."""
        retry_after, self.retry_after = self.retry_after, None
        return retry_after

    def due(self, is_open: Callable[[Endpoint], bool]) -> Target | None:
        """What to dial; targets that must not be dialled any more are dropped."""
        while self._targets and not is_open(self._targets[0].endpoint):
            self._targets = self._targets[1:]
        return self._targets[0] if self._targets else None

    def dialled(self, attempt: int) -> None:
        """The first target is being dialled."""
        self._targets = self._targets[1:]
        self.attempt = attempt

    def is_alone(self, pending: PendingAttempts, stagger: float, now: float) -> bool:
        """Whether its attempt is under way and nothing else may be dialled (rules 1 and 2)."""
        own = pending.get(self.attempt)
        if own is None or own.parked_at is not None:
            return False
        return own.connected_at is not None or now < own.dialled_at + stagger
