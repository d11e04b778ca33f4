"""When a member delivers what its queues have: while it leads, and only what is complete.

Rules
-----
* What a queue has when the member begins to lead is handed out when the guard would settle it: the store has
  all of it, and the guard is not suspended (a new primary recovers first).
* A new message is held by its queue until it is complete (``Queue.enqueue``).
* While the guard is suspended for another reason, what was complete before is handed out, and nothing else.
* Temporary queues always deliver: among them are those for the answers of management.
* A member that leads no more hands out nothing, from the moment when its guard is finished.
"""

from __future__ import annotations

from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.queueing.nodes import Addresses

_RECOVERING = "recovering"


class CommittedDelivery:
    """The queues of one member, as far as they deliver."""

    def __init__(self, addresses: Addresses, guard: Guard, persister: Persister) -> None:
        self._addresses = addresses
        self._guard = guard
        self._persister = persister
        self._term = 0

    def begin(self) -> None:
        """This member leads (again); it delivers what it has after ``recover``."""
        self._suspend()
        self._guard.begin()

    def recover(self) -> None:
        """Settle and deliver nothing before ``recovered``, nor what the store has not committed."""
        self._guard.suspend(_RECOVERING)
        self._guard.when_complete(self._persister.completion(), self._resume, self._term)

    def recovered(self) -> None:
        """The replicas that this member waited for are there, or it waits for them no longer."""
        self._guard.resume(_RECOVERING)

    def finish(self) -> None:
        """Settle and deliver nothing more: this member has stepped down."""
        self._guard.finish()
        self._suspend()

    def _suspend(self) -> None:
        self._term += 1
        for queue in self._addresses:
            if not queue.temporary:
                queue.suspend_delivery()

    def _resume(self, term: int) -> None:
        if term == self._term:
            for queue in self._addresses:
                queue.resume_delivery()
