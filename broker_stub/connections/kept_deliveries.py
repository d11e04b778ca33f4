"""Deliveries that arrive on a link while nothing may be stored: kept in order, unsettled, and handled later.

Their number never exceeds the credit given before.

A ``KeptDeliveries`` refers to its link only while it holds deliveries. A link that ends is then freed at
once, and proton's objects in the order that proton expects; the cycle collector ignores that order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from broker_stub.queueing.intake import Intake
from haclient.engine.links import DeliveryPointer

Take = Callable[[DeliveryPointer | None, bytes], None]


class KeptDeliveries:
    """The kept deliveries of one link."""

    __slots__ = ("_entries", "_intake", "_restart")

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._entries: list[tuple[DeliveryPointer | None, bytes]] = []
        self._restart: Callable[[], None] | None = None

    def add(self, delivery: DeliveryPointer | None, data: bytes, take: Take) -> None:
        """Keep a delivery until the intake restarts; then call ``take`` for it and its successors."""
        if self._restart is None:
            self._restart = functools.partial(self._take_all, take)
            self._intake.when_restarted(self._restart)
        self._entries.append((delivery, data))

    def end(self) -> None:
        """Drop the kept deliveries of an ended link."""
        if self._restart is not None:
            self._intake.stop_waiting(self._restart)
            self._restart = None
            self._entries.clear()

    def _take_all(self, take: Take) -> None:
        entries, self._entries, self._restart = self._entries, [], None
        for delivery, data in entries:
            take(delivery, data)
