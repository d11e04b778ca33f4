"""The credit of a client on one link: the number of messages it may send. No I/O.

Rules
-----
* The credit is at most ``messages``. If messages are large, it is the number that ``size`` bytes hold, but at
  least one.
* A message larger than the earlier ones counts at once. Smaller ones count gradually, so that a link of mixed
  sizes has the credit for its large ones.
* Credit may be reduced. The engine checks that the client stays within the most credit that it had.

Source: AMQP 1.0 part 2, section 2.6.7 (flow control): link-credit is a value, and may fall.
"""

from __future__ import annotations

from collections.abc import Hashable

# A smaller message moves the typical size by a sixteenth of the difference.
_DECAY = 16


class CreditWindow:
    """The credit of one link.

    :param messages: the largest credit.
    :param size: bytes that may be in transit.
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
        self._typical = 0.0  # 0 while it does not affect the credit
        self._received = self._granted = 0
        self._held = 0
        self._held_by: dict[Hashable, int] = {}

    def received(self, size: int) -> int:
        """Count an arrived message of ``size`` bytes; return the change of credit that is due."""
        self._received = received = self._received + 1
        typical = self._typical
        if size <= self._small and not typical and not self._held:  # true for most messages
            return 0 if self._granted - received > self._half else self.due()
        typical = size if size > typical else typical - (typical - size) / _DECAY
        self._typical = typical if typical > self._small else 0.0
        return self.due()

    def hold(self, target: Hashable) -> None:
        """Reduce the credit by one until ``unhold``: a message went to a full target."""
        self._held += 1
        self._held_by[target] = self._held_by.get(target, 0) + 1

    def unhold(self, target: Hashable) -> None:
        """Restore the credit of every ``hold`` for a target that is no longer full."""
        self._held -= self._held_by.pop(target)

    def due(self) -> int:
        """Return the change of credit that is due.

        0 while at least half of the credit is left; negative to reduce it.
        """
        wanted, credit = self._messages, self._granted - self._received
        if self._held or self._typical * wanted > self._size:
            wanted = max(0, self._window() - self._held)
        return 0 if wanted // 2 < credit <= wanted + wanted // 2 else wanted - credit

    def change(self, change: int) -> None:
        """Count a change of credit that was sent to the client."""
        self._granted += change

    def _window(self) -> int:
        if self._typical * self._messages <= self._size:
            return self._messages
        return max(1, int(self._size / self._typical))
