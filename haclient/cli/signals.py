"""Work that a signal ends, and work that keeps a pace."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import click

RATE = click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most.")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds that a pace may catch up with, after something held it up: a timer is not exact.
_CATCH_UP = 0.1


async def until_stopped(work: Coroutine[Any, Any, None]) -> bool:
    """Run it to its end, or until SIGINT or SIGTERM cancels it; the second signal is the system's again.

    :returns: whether a signal came.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    stopped = False

    def restore() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def stop() -> None:
        nonlocal stopped
        stopped = True
        restore()
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        restore()
    return stopped


class Pace:
    """So many a second, and no more.

    :param rate: ``None`` for as many as can be.
    """

    def __init__(self, rate: float | None) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._due = 0.0

    async def wait(self) -> None:
        """Wait for the next turn."""
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        self._due = max(self._due + self._interval, now - _CATCH_UP)
        if self._due > now:
            await asyncio.sleep(self._due - now)
