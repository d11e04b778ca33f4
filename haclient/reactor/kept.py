"""What keeps a container alive: a connection, a listener, a timer."""

from __future__ import annotations

import math


class Kept:
    """Something that a container waits for, and ends when it ends itself."""

    def due(self) -> float:
        """The time by the loop's clock at which the loop has to run; infinite where nothing asks for that."""
        return math.inf

    def catch_up(self) -> None:
        """Give the handlers the events that were held back."""

    def let_go(self) -> None:
        """End without waiting for a peer; what a task of the container uses ends with that task."""

    def abort(self) -> None:
        """End whatever is left when the tasks have ended."""
