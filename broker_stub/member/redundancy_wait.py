"""What a new primary waits for before it settles anything: the other replicas of the old one.

Rules
-----
* It waits for those that were ready under the old primary beside it, never for that one itself:
  in a pair it serves at once.
* A member that was primary last knows of no others, and waits for none.
* The wait is for redundancy only, so it ends after a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet

logger = logging.getLogger("broker_stub.member.member")


class Recovery:
    """One wait; ``over`` is called once at its end, in a later turn of the loop or by ``ready``.

    :param expected: the names of the other replicas.
    :param timeout: seconds.
    """

    def __init__(self, expected: AbstractSet[str], timeout: float, over: Callable[[], None]) -> None:
        self._expected = expected
        self._over = over
        self._ended = False
        self._timer = asyncio.get_running_loop().call_later(timeout, self._end)
        if expected:
            logger.info("recovering: waits for %s", ", ".join(sorted(expected)))

    def ready(self, names: AbstractSet[str]) -> None:
        """These replicas are ready now."""
        if self._expected <= names and not self._ended:
            self._end()

    def cancel(self) -> None:
        """The member serves no longer."""
        self._ended = True
        self._timer.cancel()

    def _end(self) -> None:
        self.cancel()
        self._over()
