"""Peers for tests that are not coroutines: they live on an event loop of another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")
_PATIENCE = 20


@contextmanager
def in_thread(peer: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Run an asynchronous context manager on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="peer", daemon=True)
    thread.start()
    try:
        made = asyncio.run_coroutine_threadsafe(peer.__aenter__(), loop).result(_PATIENCE)
        try:
            yield made
        finally:
            asyncio.run_coroutine_threadsafe(_leave(peer), loop).result(_PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE)
        loop.close()


async def _leave(peer: AbstractAsyncContextManager[T]) -> None:
    await peer.__aexit__(None, None, None)
