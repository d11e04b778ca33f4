"""Completes a transfer when every required store and replica has the message.

``Message.pending_acks`` counts the confirmations that a message waits for: the store's commit, and the
acknowledgement of each required replica.  At zero the producer's transfer is settled, unless the guard is
suspended.

Rules
-----
* The guard is suspended while there is a reason: the member recovers, or shrinks the in-sync set (rule 2 of
  ``generation``).  Once the member has stepped down, nothing is settled.
* Messages that become complete while the guard is suspended are settled, in order, when it resumes.
* If a completion raises, the error is logged, because the other completions must still run.
* A completion may suspend, resume or finish the guard, and complete other messages; the remaining completions
  obey this.

Source: the completion rule of the replicating browser (Apache Qpid, "An active-passive,
hot-standby design"): "a completed message is guaranteed to be on the backups".
"""

from __future__ import annotations

from collections import deque
from typing import Any

from broker_stub.queueing.message import Done, Message
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.durability.guard")


class Guard:
    """The guard of all queues of one member."""

    def __init__(self) -> None:
        self.open = True
        self._reasons: set[str] = set()
        self._suspended: deque[tuple[Done, Any]] = deque()
        self._resuming = False
        self._finished = False

    def when_complete(self, message: Message, done: Done, token: Any) -> None:
        """Call ``done(token)`` once the message is complete."""
        if message.pending_acks:
            callbacks = message.on_complete
            if callbacks is None:
                message.on_complete = [(done, token)]
            else:
                callbacks.append((done, token))
        else:
            self._complete(done, token)

    def acknowledged(self, message: Message) -> None:
        """Count one of the stores and replicas that the message waits for."""
        message.pending_acks -= 1
        if not message.pending_acks and message.on_complete is not None:
            callbacks, message.on_complete = message.on_complete, None
            for done, token in callbacks:
                self._complete(done, token)

    def suspend(self, reason: str) -> None:
        """Settle nothing until ``resume`` with the same reason."""
        self._reasons.add(reason)
        self.open = False

    def resume(self, reason: str) -> None:
        """Remove a reason; if it was the last, settle complete messages."""
        self._reasons.discard(reason)
        if self._resuming:
            return  # called by a completion: the loop of the outer call goes on
        self._resuming = True
        try:
            while self._suspended and not self._reasons:
                _call(*self._suspended.popleft())
        finally:
            self._resuming = False
        self.open = not self._finished and not self._reasons

    def begin(self) -> None:
        """Begin a term as primary, without completions from before."""
        self._finished = False
        self._reasons.clear()
        self._suspended.clear()
        self.open = True

    def finish(self) -> None:
        """Settle nothing more: this member has stepped down."""
        self.open = False
        self._finished = True
        self._suspended.clear()

    def _complete(self, done: Done, token: Any) -> None:
        if self.open:
            _call(done, token)
        elif not self._finished:
            self._suspended.append((done, token))


def _call(done: Done, token: Any) -> None:
    try:
        done(token)
    except Exception:
        logger.exception("a completion raised; its sender may wait until its connection ends")
