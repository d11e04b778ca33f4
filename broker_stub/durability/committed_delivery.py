"""Restricts delivery to primaries, and to complete messages.

Rules
-----
* A new primary first recovers.  It delivers the existing messages of its queues when the guard would settle
  them: the store has all of them, and the guard is not suspended.
* A queue holds a new message until it is complete (``Queue.enqueue``).
* While the guard is suspended for another reason, only messages that were complete before are delivered.
* Temporary queues always deliver: some of them are for the answers of management.
* A member that is no longer primary delivers nothing from the moment when its guard is finished.
"""

from __future__ import annotations

from broker_stub.durability.guard import Guard
from broker_stub.durability.persister import Persister
from broker_stub.queueing.nodes import Addresses

_RECOVERING = "recovering"


class CommittedDelivery:
    """The delivery of all queues of one member."""

    def __init__(self, addresses: Addresses, guard: Guard, persister: Persister) -> None:
        self._addresses = addresses
        self._guard = guard
        self._persister = persister
        self._term = 0

    def begin(self) -> None:
        """Begin a term as primary; existing messages are delivered after ``recover``."""
        self._suspend()
        self._guard.begin()

    def recover(self) -> None:
        """Settle and deliver nothing before ``recovered``, and nothing that the store has not committed."""
        self._guard.suspend(_RECOVERING)
        self._guard.when_complete(self._persister.completion(), self._resume, self._term)

    def recovered(self) -> None:
        """End the recovery: the replicas that this member waited for are ready, or the wait has ended."""
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
