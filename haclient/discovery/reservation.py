"""The member that a server told this client to come to, at a time.

    amqp:resource-limit-exceeded, retry-after     "I am the primary, your slot is then": here
    amqp:connection:redirect, retry-after         "dial the target after that long": there

Rules
-----
1. After the wait this member is dialled first and alone: the slot is this client's, and the others
   have nothing to say about it.  The rest of the list comes when the attempt has missed.
2. Alone ends early where nobody is there: without TCP for ``stagger`` the list goes on beside it.
3. A new appointment takes the place of the old one: the server knows better by now.
4. Any other hint names no member.  It delays the next round, see ``rounds``.
"""

from __future__ import annotations

from collections.abc import Callable

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.pending_attempts import PendingAttempts
from haclient.discovery.redirects import Target


class Reservation:
    """At most one; empty at first.

    :ivar hint: what the server asked for, in seconds, until a wait was made of it.
    :ivar attempt: the last one that kept an appointment; 0 when none did.
    """

    __slots__ = ("_targets", "attempt", "hint")

    def __init__(self) -> None:
        self.hint: float | None = None
        self.attempt = 0
        self._targets: tuple[Target, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._targets)

    def __contains__(self, endpoint: object) -> bool:
        return any(target.endpoint == endpoint for target in self._targets)

    def make(self, targets: tuple[Target, ...], hint: float) -> None:
        """Come there, after that many seconds."""
        self._targets, self.hint = targets, hint

    def take_hint(self) -> float | None:
        """The wait that begins now obeys it."""
        hint, self.hint = self.hint, None
        return hint

    def due(self, is_open: Callable[[Endpoint], bool]) -> Target | None:
        """What to dial; a target that must not be dialled any more is dropped."""
        while self._targets and not is_open(self._targets[0].endpoint):
            self._targets = self._targets[1:]
        return self._targets[0] if self._targets else None

    def kept(self, attempt: int) -> None:
        """The first target is being dialled."""
        self._targets = self._targets[1:]
        self.attempt = attempt

    def is_alone(self, flights: PendingAttempts, stagger: float, now: float) -> bool:
        """Whether its attempt is under way and nothing else may be dialled (rules 1 and 2)."""
        flight = flights.get(self.attempt)
        if flight is None or flight.parked_at is not None:
            return False
        return flight.connected_at is not None or now < flight.dialled_at + stagger
