"""Sends and drains messages through ``haclient.aio``, for several benchmarks.

They are not durable, because the messages of the peers (proton and the bare engine) are not either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from measure import Sample, Stopwatch

import haclient
from haclient import aio

ADDRESS = "bench"


async def send_all(sender: aio.Sender, body: bytes, count: int) -> Sample:
    """Send pipelined, until the last outcome; every message is accepted."""
    watch = Stopwatch()
    futures = [await sender.submit(haclient.Message(body=body)) for _ in range(count)]
    await sender.flush()
    assert all(future.result().accepted for future in futures)
    return watch.stop(count)


async def connect_and_send(url: str, body: bytes, count: int, **options: Any) -> Sample:
    """Connect and send pipelined; ``options`` are the options of ``aio.connect``."""
    async with aio.connect(url, **options) as connection:
        return await send_all(await connection.create_sender(ADDRESS, durable=False), body, count)


async def drain(url: str, count: int) -> None:
    """Receive and accept ``count`` messages."""
    async with aio.connect(url) as connection:
        receiver = await connection.create_receiver(ADDRESS, credit=1000)
        for _ in range(count):
            await (await receiver.receive()).accept()


def sending(
    send: Callable[[], Coroutine[Any, Any, Sample]], url: str, count: int
) -> Callable[[], Mapping[str, Sample]]:
    """Return a contestant that sends, and leaves the queue empty."""

    def run() -> Mapping[str, Sample]:
        sample = asyncio.run(send())
        asyncio.run(drain(url, count))
        return {"send": sample}

    return run
