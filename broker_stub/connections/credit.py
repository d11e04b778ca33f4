"""How many messages a client may send on one link.  No I/O.

Rules
-----
* The credit is ``messages`` at most, and fewer when the link's messages are large: as many as ``size`` bytes
  hold, and one in any case.
* A message that is larger than those before it counts at once; smaller ones count little by little, so that
  a link of mixed sizes has the credit of its large ones.
* Credit may be taken back.  The engine watches that the client keeps to the most that it had.

Source: AMQP 1.0 part 2, section 2.6.7 (flow control): link-credit is a value, and may fall.
"""

from __future__ import annotations

from collections.abc import Hashable

# A smaller message moves the typical size by a sixteenth of the difference.
_DECAY = 16


class CreditWindow:
    """The credit of one link.

    :param messages: the most credit.
    :param size: bytes that may be on their way.
    """

    __slots__ = (
        "_granted",
        "_half",
        "_held",
        "_held_by",
        "_messages",
        "_received",
        "_size",
        "_small",
        "_typical",
    )

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._size = size
        self._half = messages // 2
        self._small = size / messages
        self._typical = 0.0  # while the credit does not depend on it
        self._received = self._granted = 0
        self._held = 0
        self._held_by: dict[Hashable, int] = {}

    def received(self, size: int) -> int:
        """A message of that many bytes has arrived; the change of credit that is due."""
        self._received = received = self._received + 1
        typical = self._typical
        if size <= self._small and not typical and not self._held:  # as most are
            return 0 if self._granted - received > self._half else self.due()
        typical = size if size > typical else typical - (typical - size) / _DECAY
        self._typical = typical if typical > self._small else 0.0
        return self.due()

    def hold(self, target: Hashable) -> None:
        """Give one less until ``unhold``: a message went to a target that is full."""
        self._held += 1
        self._held_by[target] = self._held_by.get(target, 0) + 1

    def unhold(self, target: Hashable) -> None:
        """The target is no longer full: the end of each ``hold`` for it."""
        self._held -= self._held_by.pop(target)

    def due(self) -> int:
        """The change that is due: 0 while at least half of the credit is left, negative to take some back."""
        wanted, credit = self._messages, self._granted - self._received
        if self._held or self._typical * wanted > self._size:
            wanted = max(0, self._window() - self._held)
        return 0 if wanted // 2 < credit <= wanted + wanted // 2 else wanted - credit

    def change(self, change: int) -> None:
        """The client is told of a change of credit."""
        self._granted += change

    def _window(self) -> int:
        if self._typical * self._messages <= self._size:
            return self._messages
        return max(1, int(self._size / self._typical))
