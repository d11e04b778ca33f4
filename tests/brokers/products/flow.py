"""A continuous flow of messages through haclient; every settled body must be stored at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from haclient import Message, aio
from haclient.outcome import Outcome

# Some hundred messages a second, so that some are in flight at any time.
_BURST, _PAUSE_SECONDS = 20, 0.02
# Seconds for a broker to take over on a busy machine.
_PATIENCE = 120.0


class Flow:
    """The outcomes of the bodies so far.

    :ivar settled: the bodies that the broker accepted.
    """

    def __init__(self) -> None:
        self.settled: set[str] = set()
        self._failures: list[BaseException] = []
        self._changed = asyncio.Event()

    async def goes_on(self, count: int = 100) -> None:
        """Wait until ``count`` more bodies are settled.

        :raises BaseException: the error of a failed send.
        """
        goal = len(self.settled) + count
        async with asyncio.timeout(_PATIENCE):
            while len(self.settled) < goal:
                if self._failures:
                    raise self._failures[0]
                self._changed.clear()
                await self._changed.wait()

    async def _send(self, sender: aio.Sender) -> None:
        number = 0
        while True:
            for _ in range(_BURST):
                body = f"number {number}"
                future = await sender.submit(Message(body=body))
                future.add_done_callback(self._noting(body))
                number += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    def _noting(self, body: str) -> Callable[[asyncio.Future[Outcome]], None]:
        def note(future: asyncio.Future[Outcome]) -> None:
            if future.cancelled():
                return
            if error := future.exception():
                self._failures.append(error)
            else:
                self.settled.add(body)
            self._changed.set()

        return note


@asynccontextmanager
async def flowing(connection: aio.Connection, address: str, *capabilities: str) -> AsyncIterator[Flow]:
    """Send bodies until the block ends, and then wait for every outcome.

    :param capabilities: the capabilities of the target.
    """
    flow = Flow()
    sender = await connection.create_sender(address, capabilities=capabilities, timeout=_PATIENCE)
    producer = asyncio.create_task(flow._send(sender))
    try:
        yield flow
    finally:
        producer.cancel()
        await asyncio.wait([producer])
    await sender.flush(timeout=_PATIENCE)
