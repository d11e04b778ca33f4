"""Timers of a container: ``schedule`` on the event loop.

A cancelled task no longer keeps the container running; in proton it does until its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proton._reactor import Task as ProtonTask

from haclient.reactor.kept import Kept

if TYPE_CHECKING:
    import asyncio

    from haclient.reactor.loop import Reactor


class Task(ProtonTask, Kept):
    """A scheduled call, from ``Container.schedule``."""

    def __init__(self, container: Reactor, delay: float, handler: Any, fire: Callable[[Task], None]) -> None:
        super().__init__(container, time.time() + delay, handler)
        self._handle: asyncio.TimerHandle = container.loop.call_later(max(0.0, delay), fire, self)

    def cancel(self) -> None:
        """Do not call the handler."""
        if not self._cancelled:
            super().cancel()
            self._handle.cancel()
            self._reactor.release(self)  # type: ignore[attr-defined]

    def let_go(self) -> None:
        """Cancel the call."""
        self.cancel()
