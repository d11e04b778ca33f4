"""The rate of messages: ``--rate``, and what keeps to it."""

from __future__ import annotations

import asyncio

import click

RATE = click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most.")
# Seconds that a pace may catch up with, after something held it up: a timer is not exact.
_CATCH_UP = 0.1


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
