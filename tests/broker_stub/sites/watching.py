"""Reads the events of a broker, and computes the resulting state of another site."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker_stub.queueing.site_state import REPLICATION_QUEUE
from broker_stub.sites.event import Event, Op, decode
from haclient import Credentials, aio

PATIENCE = 30.0


async def read_events(
    url: str, count: int, *, accept: bool = False, credentials: Credentials | None = None
) -> list[Event]:
    """Read the first events; accept them, or leave them there."""
    events = []
    async with asyncio.timeout(PATIENCE), aio.connect(url, credentials=credentials) as connection:
        receiver = await connection.create_receiver(REPLICATION_QUEUE)
        for _ in range(count):
            delivery = await receiver.receive()
            events.append(decode(delivery.data))
            if accept:
                await delivery.accept()
    return events


def check_sequence(events: Iterable[Event], first: int = 1) -> None:
    sequences = [event.sequence for event in events]
    assert sequences == list(range(first, first + len(sequences)))


def replay(events: Iterable[Event]) -> dict[str, list[int]]:
    """Return the remaining positions of each queue, in order."""
    queues: dict[str, dict[int, None]] = {}
    for event in events:
        queue = queues.setdefault(event.queue, {})
        if event.op is Op.ENQUEUE:
            assert event.position not in queue
            queue[event.position] = None
        else:
            del queue[event.position]
    return {name: list(left) for name, left in queues.items()}
