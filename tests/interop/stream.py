"""A continuous stream of numbers to a queue; every settled number must be in it at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from haclient import Message, aio
from tests.interop import rabbitmq

# Some hundred messages a second, so that some are in flight at any time.
_BURST, _PAUSE = 10, 0.02
# Seconds for a broker to take over on a busy machine.
_PATIENCE = 60.0


class Stream:
    """The outcomes of the numbers so far."""

    def __init__(self) -> None:
        self.settled: set[int] = set()
        self._failures: list[BaseException] = []
        self._changed = asyncio.Event()

    async def flows(self, count: int = 100) -> None:
        """Wait until ``count`` more numbers are settled."""
        goal = len(self.settled) + count
        async with asyncio.timeout(_PATIENCE):
            while len(self.settled) < goal:
                if self._failures:
                    raise self._failures[0]
                self._changed.clear()
                await self._changed.wait()

    async def send(self, sender: aio.Sender) -> None:
        """Send without waiting for outcomes."""
        number = 0
        while True:
            for _ in range(_BURST):
                future = await sender.submit(Message(body=number, durable=True))
                future.add_done_callback(lambda future, number=number: self._done(future, number))
                number += 1
            await asyncio.sleep(_PAUSE)

    def _done(self, future: asyncio.Future[object], number: int) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.settled.add(number)
        else:
            self._failures.append(error)
        self._changed.set()


@asynccontextmanager
async def flowing(url: str, address: str) -> AsyncIterator[tuple[Stream, aio.Connection]]:
    """Send numbers until the body ends. Then check that every settled number is in the queue."""
    stream = Stream()
    async with aio.connect(url, window=100) as connection:
        sender = await connection.create_sender(address, configure=rabbitmq.durable)
        producer = asyncio.create_task(stream.send(sender))
        try:
            yield stream, connection
        finally:
            producer.cancel()
            await asyncio.wait([producer])
        await sender.flush(timeout=_PATIENCE)
    await _take(url, address, stream.settled)


async def _take(url: str, address: str, expected: set[int]) -> None:
    came: set[int] = set()
    async with aio.connect(url) as connection:
        receiver = await connection.create_receiver(address, credit=1000, configure=rabbitmq.durable)
        while not expected <= came:
            delivery = await receiver.receive(timeout=_PATIENCE)
            came.add(delivery.message.body)
            await delivery.accept()
