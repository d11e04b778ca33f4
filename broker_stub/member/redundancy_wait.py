"""A new primary's wait for the other replicas, before it settles anything.

Rules
-----
* It waits for the other replicas that were ready under the old primary, but not for the old primary.  So in a
  pair it serves at once.
* A member that was the last primary has no replicas in its store, and waits for none.
* The wait is only for redundancy, so it is limited.  The limit is counted in ticks: after a pause of this
  process, replicas that arrived meanwhile are seen first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from broker_stub.replication.commit_watch import TICKS
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.member.member")


class RedundancyWait:
    """A wait that calls ``on_end`` once at its end, in a later iteration of the loop or in ``ready``.

    :param expected: the names of the other replicas.
    :param timeout: seconds.
    """

    def __init__(self, expected: AbstractSet[str], timeout: float, on_end: Callable[[], None]) -> None:
        self._expected = expected
        self._on_end = on_end
        self._ended = False
        self._pause = timeout / TICKS
        self._ticks = 0
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._tick)
        if expected:
            logger.info("recovering: waiting for the replicas %s", ", ".join(sorted(expected)))

    def ready(self, names: AbstractSet[str]) -> None:
        """End the wait if all expected replicas are among these."""
        if self._expected <= names and not self._ended:
            self._end()

    def cancel(self) -> None:
        """Cancel the wait: this member no longer serves."""
        self._ended = True
        self._timer.cancel()

    def _tick(self) -> None:
        self._ticks += 1
        if self._ticks >= TICKS:
            self._end()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._tick)

    def _end(self) -> None:
        self.cancel()
        self._on_end()
