"""Collects the events of a factory on the test's loop, and waits for one."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Failure, FailureReason
from haclient.events import AttemptFailed, Event

E = TypeVar("E")


class Watch:
    """An ``on_event`` callback."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._append, event)

    def _append(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, kind: type[E], count: int = 1, timeout: float | None = 20.0) -> list[E]:
        """Wait for ``count`` events of one kind, and return all of them."""
        async with asyncio.timeout(timeout):
            while len(self.of(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(kind)

    def failures(self) -> list[tuple[Endpoint, Failure]]:
        """Return the failed attempts, in order."""
        return [(failed.record.endpoint, failed.record.failure) for failed in self.of(AttemptFailed)]

    def kinds(self) -> list[FailureReason]:
        """Return the reasons of failed attempts, in order."""
        return [failure.kind for _, failure in self.failures()]
