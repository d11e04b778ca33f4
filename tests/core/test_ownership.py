"""Who owns a message, a pointer of proton's and a waiter: nothing acts on what it no longer owns."""

from __future__ import annotations

import asyncio

from proton import Message

from haclient import aio
from tests.peers import primary, url


def encoded(body: object) -> bytes:
    return bytes(Message(body=body).encode())


async def test_withdrawing_a_settled_message_leaves_the_others_alone() -> None:
    """proton gives the memory of a settled delivery to the next message of the link."""
    loop = asyncio.get_running_loop()
    async with primary() as peer, aio.connect(url(peer)) as connection:
        core = (await connection.create_sender("q"))._core
        settled = [core.submit(encoded("first"), loop.create_future()) for _ in range(10)]
        before = {entry.delivery for entry in settled}
        await asyncio.gather(*(entry.waiter for entry in settled))
        others = [core.submit(encoded("other"), loop.create_future()) for _ in range(20)]
        assert before & {entry.delivery for entry in others}, "no pointer is used again"
        for entry in settled:
            core.withdraw(entry)
        outcomes = await asyncio.wait_for(asyncio.gather(*(entry.waiter for entry in others)), 5)
        assert all(outcome.accepted for outcome in outcomes)
        assert all(entry.delivery is None for entry in (*settled, *others))
