"""The guard completes a transfer when every store and replica that must have the message has it.

A message counts those it waits for (``Message.pending_acks``): the store until it has committed, and
each replica that must have it until that replica has acknowledged it.  At zero the
producer's transfer is settled, unless the guard is suspended.

Rules
-----
* The guard is suspended for as long as there is a reason: the member recovers, it shrinks the in-sync set
  (rule 2 of ``generation``).  Once the member has stepped down, nothing is ever settled.
* What becomes complete while the guard is suspended is settled, in order, when it resumes.
* A completion that raises is logged: the others are not its producer's, and none of them is dropped.
* A completion may suspend, resume or finish the guard, and complete others: what is left obeys that.

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
        """Call ``done(token)`` once the message is safe."""
        if message.pending_acks:
            callbacks = message.on_complete
            if callbacks is None:
                message.on_complete = [(done, token)]
            else:
                callbacks.append((done, token))
        else:
            self._complete(done, token)

    def acknowledged(self, message: Message) -> None:
        """A store or replica that the message waits for has it."""
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
        """A reason is gone; with the last one, settle what is complete and go on."""
        self._reasons.discard(reason)
        if self._resuming:
            return  # a completion resumes it: the loop below goes on
        self._resuming = True
        try:
            while self._suspended and not self._reasons:
                _call(*self._suspended.popleft())
        finally:
            self._resuming = False
        self.open = not self._finished and not self._reasons

    def begin(self) -> None:
        """This member leads (again): nothing is held from before."""
        self._finished = False
        self._reasons.clear()
        self._suspended.clear()
        self.open = True

    def finish(self) -> None:
        """Settle nothing more, ever: this member has stepped down."""
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
