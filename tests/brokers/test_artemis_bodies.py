"""Bodies of 20 MiB, and of 100 KiB, where Artemis' large messages begin, through a pair that is killed.

Bodies are in flight at each kill. All settled bodies must be stored unchanged. One queue is drained only
by the bare client, each body once. From a second queue haclient receives across kills.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from haclient import Message, aio
from haclient.errors import StaleDelivery
from tests.brokers.application import running
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind
from tests.brokers.topology import Fault, Launch

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(1200)]
_KILLS = 2
_PATIENCE = 300.0


def _body(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


async def _send(pair: Artemis, connection: aio.Connection, queue: str, size: int, burst: int) -> list[int]:
    """Send a burst for each kill. Return the number without an outcome at each kill."""
    sender = await connection.create_sender(queue)
    on_the_way = []
    for kill in range(_KILLS):
        await pair.whole()
        futures = [
            await sender.submit(Message(body=_body(kill * burst + number, size))) for number in range(burst)
        ]
        async with asyncio.timeout(_PATIENCE):
            await futures[0]
            await pair.inject(Fault.KILL)
            on_the_way.append(sum(not future.done() for future in futures))
            await asyncio.gather(*futures)
    return on_the_way


async def _receive(pair: Artemis, connection: aio.Connection, queue: str, size: int, count: int) -> int:
    """Receive all bodies, with kills in between. Return how many were redelivered after a lost accept."""
    receiver = await connection.create_receiver(queue, credit=2)
    accepted: Counter[int] = Counter()
    known = {_body(number, size): number for number in range(count)}
    kills = [each * count // (_KILLS + 1) for each in range(1, _KILLS + 1)]
    async with asyncio.timeout(_PATIENCE):
        while len(accepted) < count:
            delivery = await receiver.receive()
            body = delivery.message.body
            assert isinstance(body, bytes)
            number = known[body]
            try:
                await delivery.accept()
            except StaleDelivery:
                continue
            accepted[number] += 1
            if kills and len(accepted) == kills[0]:
                del kills[0]
                await pair.inject(Fault.KILL)
    return accepted.total() - count


@pytest.mark.parametrize(("size", "burst"), [(20 << 20, 4), (100 << 10, 300)], ids=["20 MiB", "100 KiB"])
async def test_large_bodies_arrive_to_the_byte_across_kills(tmp_path: Path, size: int, burst: int) -> None:
    count = _KILLS * burst
    async with running("artemis-locked", Artemis(Kind.LOCKED, Launch(tmp_path))) as pair:
        async with aio.connect(
            pair.url, window=burst, send_timeout=_PATIENCE, call_timeout=_PATIENCE
        ) as connection:
            on_the_way = [*await _send(pair, connection, "kept", size, burst)]
            on_the_way += await _send(pair, connection, "live", size, burst)
            again = await _receive(pair, connection, "live", size, count)
        kept = Counter(stored.body for stored in await pair.drain("kept"))
        left = await pair.drain("live")
    assert all(on_the_way), on_the_way
    assert kept == Counter(_body(number, size) for number in range(count))
    assert left == []
    print(f"{2 * count} settled, without an outcome at each kill {on_the_way}, {again} came again")  # noqa: T201
