"""Reads the contents of a queue that other clients filled."""

from __future__ import annotations

from typing import Any

from haclient import aio


async def everything_in(url: str, queue: str, at_least: int) -> list[Any]:
    """Receive until ``at_least`` different bodies have arrived; return all bodies."""
    found: list[Any] = []
    async with aio.connect(url) as connection:
        receiver = await connection.create_receiver(queue, credit=1000)
        while len(set(map(str, found))) < at_least:
            delivery = await receiver.receive(timeout=30)
            found.append(delivery.message.body)
            await delivery.accept()
    return found
