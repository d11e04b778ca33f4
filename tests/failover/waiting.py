"""Waiting for events, never for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from haclient.events import Event

E = TypeVar("E")


async def next_of(events: AsyncIterator[Event], kind: type[E], timeout: float = 20.0) -> E:
    """Return the next event of a kind; skip earlier ones."""
    async with asyncio.timeout(timeout):
        async for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the events ended without {kind.__name__}")
