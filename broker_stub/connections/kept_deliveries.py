"""What arrives on a link while nothing may be stored: kept in order, unsettled, and taken later.

There is never more of it than the credit that the link was given before.

It refers to its link only while something is kept: a link that ends is freed at once then, and proton's
objects in the order in which proton expects it, which a collection of cycles does not keep to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from broker_stub.queueing.intake import Intake
from haclient.engine.links import DeliveryPointer

Take = Callable[[DeliveryPointer | None, bytes], None]


class KeptDeliveries:
    """Those of one link."""

    __slots__ = ("_entries", "_intake", "_restart")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._entries: list[tuple[DeliveryPointer | None, bytes]] = []
        self._restart: Callable[[], None] | None = None

    def add(self, delivery: DeliveryPointer | None, data: bytes, take: Take) -> None:
        """Keep one until the intake goes on, and call ``take`` for it and those that follow."""
        if self._restart is None:
            self._restart = functools.partial(self._take_all, take)
            self._intake.when_restarted(self._restart)
        self._entries.append((delivery, data))

    def end(self) -> None:
        """The link is gone: drop what was kept, and wait no longer."""
        if self._restart is not None:
            self._intake.stop_waiting(self._restart)
            self._restart = None
            self._entries.clear()

    def _take_all(self, take: Take) -> None:
        entries, self._entries, self._restart = self._entries, [], None
        for delivery, data in entries:
            take(delivery, data)
