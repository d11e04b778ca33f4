"""Waiting for what happens, never for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from haclient.events import Event

E = TypeVar("E")


async def next_of(events: AsyncIterator[Event], kind: type[E], timeout: float = 20.0) -> E:
    """The next event of a kind; what comes before it is skipped."""
    async with asyncio.timeout(timeout):
        async for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the events ended without {kind.__name__}")
