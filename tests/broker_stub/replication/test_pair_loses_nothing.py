"""Repeated SIGKILLs of the primary in mid-stream: every settled message survives."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from haclient import aio
from tests import stores
from tests.broker_stub.replication.cluster import PATIENCE
from tests.broker_stub.replication.load import Load, load

KILLS = 3
QUICK = LocalClusterOptions(probe_interval=0.05, probe_timeout=10)


async def kill_in_mid_stream(pair: LocalCluster, made: Load) -> None:
    """Kill the primary each time the pair is complete and messages are in transit."""
    for _ in range(KILLS):
        await pair.wait_ready()
        await made.goes_on()
        generation = pair.generation
        await pair.kill_primary()
        await pair.wait_until(lambda pair, before=generation: pair.generation > before)
        await made.goes_on(50)
    await pair.wait_ready()
    await made.goes_on(50)


async def received(pair: LocalCluster) -> list[int]:
    """Receive all messages of the queue, in order."""
    assert pair.primary is not None
    async with asyncio.timeout(PATIENCE), aio.connect(pair.url) as connection:
        sender = await connection.create_sender("orders")
        await sender.send(Message(body="the last one"))
        receiver = await connection.create_receiver("orders", credit=500)
        found: list[Any] = []
        async for delivery in receiver:
            if delivery.message.body == "the last one":
                return found
            found.append(int(delivery.message.body))
            await delivery.accept()
    raise AssertionError("the receiver ended before the last message")


@pytest.mark.slow
@pytest.mark.parametrize("memory", [False, True], ids=["on disk", "in memory"])
async def test_what_was_settled_is_there_once_and_in_order(tmp_path: Path, memory: bool) -> None:
    async with LocalCluster(replace(QUICK, store=tmp_path, memory=memory)) as pair:
        async with load(pair.url) as made:
            await kill_in_mid_stream(pair, made)
        found = await received(pair)
        assert made.settled <= set(found)
        assert set(found) <= set(range(made.sent))
        assert found == sorted(set(found))


@pytest.mark.slow
async def test_both_stores_are_equal_after_the_last_kill(tmp_path: Path) -> None:
    async with LocalCluster(replace(QUICK, store=tmp_path)) as pair:
        async with load(pair.url) as made:
            await kill_in_mid_stream(pair, made)
        await pair.wait_ready()
        names = [member.name for member in pair.members]
        last = await stores.generation(tmp_path / names[0])
        await asyncio.gather(*(member.process.stop() for member in pair.members))
    one, two = [await stores.contents(tmp_path / name) for name in names]
    assert one == two
    assert made.settled <= {number_of(data) for _, data, _ in one["orders"]}
    assert last.generation is None or last.generation <= pair.generation


def number_of(data: bytes) -> int:
    message = Message()
    message.decode(data)
    return int(message.body)
