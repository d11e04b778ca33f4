"""Base of the objects that keep a container running: connections, listeners, timers."""

from __future__ import annotations

import math


class Kept:
    """An object that a container waits for, and ends together with itself."""

    def due(self) -> float:
        """Return when the loop must run next, by its clock; infinite if there is no such time."""
        return math.inf

    def catch_up(self) -> None:
        """Deliver the events that were held back to the handlers."""

    def let_go(self) -> None:
        """End without waiting for a peer; an object that a task uses ends with that task."""

    def abort(self) -> None:
        """End immediately; called after the tasks have ended."""
