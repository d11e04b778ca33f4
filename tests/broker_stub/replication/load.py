"""A producer that keeps a cluster busy, and records the settled messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proton import Message

from haclient import aio

# At most a thousand messages a second, ten at a time: some are always in transit.
BURST, PAUSE = 10, 0.01


class Load:
    """Sends numbers without waiting for outcomes, up to a window."""

    def __init__(self) -> None:
        self.sent = 0
        self.settled: set[int] = set()
        self._more = asyncio.Event()

    async def run(self, sender: aio.Sender) -> None:
        while True:
            for _ in range(BURST):
                number = self.sent
                self.sent += 1
                future = await sender.submit(Message(body=number))
                future.add_done_callback(lambda future, number=number: self._done(future, number))
            await asyncio.sleep(PAUSE)

    def _done(self, future: asyncio.Future[object], number: int) -> None:
        if not future.cancelled() and future.exception() is None:
            self.settled.add(number)
            self._more.set()

    async def goes_on(self, count: int = 200) -> None:
        """Wait until ``count`` more are settled."""
        goal = len(self.settled) + count
        async with asyncio.timeout(30):
            while len(self.settled) < goal:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def load(url: str) -> AsyncIterator[Load]:
    """Send numbers to the queue ``orders`` until the body ends."""
    async with aio.connect(url, window=100) as connection:
        made = Load()
        task = asyncio.create_task(made.run(await connection.create_sender("orders")))
        try:
            yield made
        finally:
            task.cancel()
            await asyncio.wait([task])
            await connection.close()  # the end of the block would wait for unsettled messages
