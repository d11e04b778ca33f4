"""Connections leave nothing behind: no object of proton's, no socket, no timer."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import cproton
import pytest

from haclient import Message, aio
from tests.engine.pair import pair
from tests.peers import primary, url

MANY = 200


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_proton_objects_go_with_their_connections(how: str) -> None:
    async def once() -> None:
        async with pair() as both:
            sender, _ = await both.sender()
            _, other = await both.receiver()
            for number in range(5):
                sender.send(b"x", number)
                other.send(b"y", number)
            await both.server.until(lambda: len(both.server.deliveries) == 5)
            engine = both.client.engine
            assert engine is not None
            engine.close() if how == "close" else engine.abort()
            await both.client.until(lambda: both.client.close_reasons)
            await both.server.until(lambda: both.server.close_reasons)

    await once()
    before = retained()
    for _ in range(MANY // 2):
        await once()
    assert retained() <= before


async def test_reconnecting_two_hundred_times_retains_nothing() -> None:
    async with primary() as peer:
        async with aio.connect(url(peer, backoff_base=0.001, backoff_max=0.001)) as connection:
            sender = await connection.create_sender("q")
            await connection.create_receiver("nothing")
            counts = []
            for number in range(MANY):
                await sender.send(Message(body=number), timeout=10)
                if number in (10, MANY - 1):
                    counts.append(retained())
                peer.drop()
            assert connection._core.session_number >= MANY
        assert peer.bodies == list(range(MANY))
        assert counts[1] <= counts[0]
        assert len(peer.engines) <= 1


async def test_an_ended_engine_leaves_no_timer() -> None:
    loop: Any = asyncio.get_running_loop()
    async with pair({"heartbeat": 30.0}, {"heartbeat": 30.0}) as both:
        engine = both.client.engine
        assert engine is not None
        engine.close()
        await both.client.until(lambda: both.client.close_reasons)
        await both.server.until(lambda: both.server.close_reasons)
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []


def retained() -> int:
    """Return proton's objects that Python keeps alive."""
    gc.collect()
    return int(cproton.retained_count())
