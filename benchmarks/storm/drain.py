"""Receives every message of a queue after a storm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from haclient import aio
from haclient.errors import ReceiveTimeout

_CREDIT = 1_000
# Seconds without a message after which the queue counts as empty.
_IDLE_TIMEOUT = 5.0


async def take_all(
    url: str, address: str, expected: Iterable[str], progress: Callable[[int], object]
) -> Counter[str]:
    """Receive the messages of a queue; return how often each body arrived.

    Ends when every expected message has arrived and the queue is empty, or no message arrives for a while.
    """
    missing = set(expected)
    came: Counter[str] = Counter()
    async with aio.connect(url) as connection:
        receiver = await connection.create_receiver(address, credit=_CREDIT)
        while True:
            try:
                delivery = await receiver.receive(timeout=_IDLE_TIMEOUT if missing else 0.5)
            except ReceiveTimeout:
                return came
            body = str(delivery.message.body)
            came[body] += 1
            missing.discard(body)
            await delivery.accept()
            progress(len(came))
