"""The bare client reads stored messages byte for byte."""

from __future__ import annotations

import random

from haclient import Message, aio
from tests.brokers.bare import Account, receive_all
from tests.members import Members


async def test_binary_bodies_outlive_their_messages(members: Members) -> None:
    """proton exposes a binary body as a view of memory that it frees with the message."""
    member = members.start("alone", role="primary")
    bodies = [random.Random(number).randbytes(100_000) for number in range(20)]
    async with aio.connect(member.url) as connection:
        sender = await connection.create_sender("q")
        for body in bodies:
            await sender.send(Message(body=body))
    stored = await receive_all(member.endpoint, Account(), "q")
    assert [each.body for each in stored] == bodies
