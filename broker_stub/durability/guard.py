"""The guard: holds a transfer until everyone who must have the message, has it.

A message counts those it waits for (``Message.waits``): the store until it has committed, and
each replica that must have it until that replica has acknowledged it.  When nobody is left, the
producer is told, provided the gate is open.

Rules
-----
* The gate is closed for as long as there is a reason: the member recovers, it goes on alone
  (rule 2 of ``generation``).  Once it has stepped down, nothing is ever settled.
* What becomes complete behind a closed gate is told, in order, when the gate opens.

Source: the completion rule of the replicating browser (Apache Qpid, "An active-passive,
hot-standby design"): "a completed message is guaranteed to be on the backups".
"""

from __future__ import annotations

from typing import Any

from broker_stub.queueing.message import Done, Message


class Guard:
    """The guard of all queues of one member."""

    def __init__(self) -> None:
        self.open = True
        self._reasons: set[str] = set()
        self._behind: list[tuple[Done, Any]] = []
        self._finished = False

    @property
    def held(self) -> int:
        """Completions that wait for the gate only."""
        return len(self._behind)

    def hold(self, message: Message, done: Done, token: Any) -> None:
        """Call ``done(token)`` once the message is safe."""
        if message.waits:
            calls = message.calls
            if calls is None:
                message.calls = [(done, token)]
            else:
                calls.append((done, token))
        else:
            self._tell(done, token)

    def has(self, message: Message) -> None:
        """One of those the message waits for has it."""
        message.waits -= 1
        if not message.waits and message.calls is not None:
            calls, message.calls = message.calls, None
            for done, token in calls:
                self._tell(done, token)

    def shut(self, reason: str) -> None:
        """Settle nothing until ``reopen`` with the same reason."""
        self._reasons.add(reason)
        self.open = False

    def reopen(self, reason: str) -> None:
        """A reason is gone; with the last one, settle what is complete and go on."""
        self._reasons.discard(reason)
        if self._finished or self._reasons:
            return
        self.open = True
        behind, self._behind = self._behind, []
        for done, token in behind:
            done(token)

    def begin(self) -> None:
        """This member leads (again): nothing is held from before."""
        self._finished = False
        self._reasons.clear()
        self._behind.clear()
        self.open = True

    def finish(self) -> None:
        """Settle nothing more, ever: this member has stepped down."""
        self.open = False
        self._finished = True
        self._behind.clear()

    def _tell(self, done: Done, token: Any) -> None:
        if self.open:
            done(token)
        elif not self._finished:
            self._behind.append((done, token))
