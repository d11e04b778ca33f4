"""Ends a session whose peer answers no Attach after a reconnect: calls would wait for ever.

Rules
-----
* Only links that were open before count: the caller's timeout limits the first Attach of a link.
* The time runs from the last answer to any link, so many links may take as long as they need.  For a peer
  that answers many Attaches at once, each thousand of them adds the same time again.
* A link that ends its sessions this way again and again fails alone (``suspects``).

Broker-J 10.1.0 once answered neither of two links for 180 s, over a connection that was open.
Artemis 2.56.0, on a busy machine, answered the first of 10,000 links after more than 30 s, and lost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import proton

UNANSWERED: Final = "haclient:attach-unanswered"
"""Condition with which the client ends such a session."""
_LINKS_PER_PATIENCE = 1000
"""Every so many links add the same time again: a peer gets eleven times as long for 10,000 as for a few."""


class AnswerWatch:
    """Watches for missing answers, one session after another.

    :param patience: seconds without an answer, for a few links.
    :param waits: returns how many counted Attaches have no answer.
    :param end: ends the session, with this condition.
    """

    __slots__ = ("_answered", "_end", "_loop", "_patience", "_timer", "_waits")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        patience: float,
        waits: Callable[[], int],
        end: Callable[[proton.Condition], None],
    ) -> None:
        self._loop = loop
        self._patience = patience
        self._waits = waits
        self._end = end
        self._answered = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start watching, if attached links wait for answers."""
        if self._timer is None and self._waits():
            self._answered = self._loop.time()
            self._timer = self._loop.call_later(self._patience, self._check)

    def answered(self) -> None:
        """Record that the peer answered an Attach."""
        self._answered = self._loop.time()

    def stop(self) -> None:
        """Stop watching: the session has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if not (waiting := self._waits()):
            return
        patience = self._patience * (1 + waiting // _LINKS_PER_PATIENCE)
        left = self._answered + patience - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._end(proton.Condition(UNANSWERED, f"it answered no Attach for {patience:g} s"))
