"""The shim of ``haclient``: ``python -m tests.interop.qit.native send ...``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import proton

from haclient import aio
from haclient.errors import ReceiveTimeout
from tests.interop.qit.shim import SEND_TIMEOUT, Client, run


async def _send(url: str, queue: str, messages: Sequence[proton.Message]) -> None:
    async with aio.connect(url) as connection:
        sender = await connection.create_sender(queue)
        for message in messages:
            # This API sets durability at the send, and not on the message.
            await sender.submit(message, durable=message.durable)
        await sender.flush(timeout=SEND_TIMEOUT)


async def _receive(url: str, queue: str, count: int, timeout: float) -> Sequence[proton.Message]:
    messages: list[proton.Message] = []
    async with aio.connect(url) as connection:
        receiver = await connection.create_receiver(queue, credit=count)
        try:
            async with asyncio.timeout(timeout):
                while len(messages) < count:
                    delivery = await receiver.receive(timeout=timeout)
                    await delivery.accept()
                    messages.append(delivery.message)
        except (TimeoutError, ReceiveTimeout):
            pass  # a shorter list is the result
    return messages


CLIENT = Client(
    send=lambda *arguments: asyncio.run(_send(*arguments)),
    receive=lambda *arguments: asyncio.run(_receive(*arguments)),
)

if __name__ == "__main__":
    sys.exit(run(CLIENT))
