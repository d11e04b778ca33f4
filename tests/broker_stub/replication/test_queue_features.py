"""Features of a queue work after a failover as before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import proton
import pytest
from proton import Message

from haclient import aio
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, Member, depth, send, take
from tests.broker_stub.replication.test_clocks import HOUR, Clocks, take_over


async def test_priorities_survive_a_failover(tmp_path: Path) -> None:
    """The backup has the messages by number, and the next primary delivers them by priority."""
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        for priority in (4, 1, 8, 4, 8):
            await send(a, "orders", priority, priority=priority)
        async with aio.connect(a.url) as connection:
            receiver = await connection.create_receiver("orders", credit=1)
            assert (await receiver.receive(timeout=PATIENCE)).message.body == 8
            await a.kill()
        await b.promote()
        assert [message.body for message in await take(b, "orders")] == [8, 8, 4, 4, 1]


class Delay(NamedTuple):
    """Sent with this delay in milliseconds."""

    body: str
    delay: int


async def send_delayed(member: Member, *messages: Delay) -> None:
    async with aio.connect(member.url) as connection:
        sender = await connection.create_sender("orders")
        for body, delay in messages:
            message = Message(body=body, annotations={proton.symbol("x-opt-delivery-delay"): delay})
            await sender.send(message, timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [3 * HOUR, -3 * HOUR])
async def test_delays_survive_failovers_between_members_whose_clocks_are_hours_apart(
    tmp_path: Path, ahead: float
) -> None:
    """The backup gets one message live, and one by catch-up; neither is early, and neither is hours late."""
    clocks = Clocks(tmp_path, {"a": 0.0, "b": ahead})
    async with Cluster(tmp_path, wrappers=clocks.wrappers) as cluster:
        a, b = await cluster.pair()
        await send_delayed(a, Delay("far", 3_600_000))
        await b.stop()
        await send_delayed(a, Delay("near", 12_000))
        before = asyncio.get_running_loop().time()
        await b.start()
        await b.until("ready")
        await send_delayed(a, Delay("live", 1))
        await a.until(lambda status: depth(status, "orders") == 3)
        await take_over(a, b, restart=ahead > 0)
        async with aio.connect(b.url) as connection:
            receiver = await connection.create_receiver("orders", credit=10)
            for body in ("live", "near"):
                assert (await receiver.receive(timeout=PATIENCE)).message.body == body
            assert asyncio.get_running_loop().time() - before > 11


async def test_a_group_goes_to_one_consumer_before_and_after_a_failover(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        for number in range(6):
            await send(a, "orders", number, group_id="one" if number % 2 else "other")
        await a.kill()
        await b.promote()
        async with aio.connect(b.url) as connection:
            first = await connection.create_receiver("orders", credit=10)
            assert await bodies(first, 6) == [0, 1, 2, 3, 4, 5]
            # A consumer owns the groups of messages 6 and 7, so the second consumer gets neither.
            second = await connection.create_receiver("orders", credit=10)
            for number in (6, 7):
                await send(b, "orders", number, group_id="one" if number % 2 else "other")
            assert await bodies(first, 2) == [6, 7]
            await first.close()
            assert await bodies(second, 8) == list(range(8))


async def bodies(receiver: aio.Receiver, count: int) -> list[Any]:
    return [(await receiver.receive(timeout=PATIENCE)).message.body for _ in range(count)]
