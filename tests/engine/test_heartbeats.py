"""Heartbeats, both ways: a silent peer is noticed, and an idle connection is kept alive."""

from __future__ import annotations

import asyncio

import pytest

from haclient.testing.proxy import proxy
from tests.engine.pair import Owner, opened, pair, serving

SHORT = 0.3


@pytest.mark.parametrize(("client", "server"), [(SHORT, 0.0), (0.0, SHORT), (SHORT, SHORT)])
async def test_an_idle_connection_outlives_many_heartbeat_intervals(client: float, server: float) -> None:
    async with pair({"heartbeat": client}, {"heartbeat": server}) as both:
        await asyncio.sleep(4 * SHORT)  # the silence that this is about
        assert both.client.close_reasons == []
        assert both.server.close_reasons == []
        sender, _ = await both.sender()
        sender.send(b"still here", 1)
        await both.server.until(lambda: both.server.deliveries)


@pytest.mark.parametrize("who", ["client", "server"])
async def test_a_peer_that_falls_silent_is_given_up(who: str) -> None:
    async with serving(heartbeat=SHORT if who == "server" else 0.0) as (peer, owners), proxy(peer) as way:
        client = Owner()
        engine = await opened(client, way.host, way.port, heartbeat=SHORT if who == "client" else 0.0)
        await client.until(lambda: client.session)
        way.hold()
        watching = client if who == "client" else owners[0]
        await watching.until(lambda: watching.close_reasons)
        assert "idle-timeout" in str(watching.close_reasons[0])
        engine.abort()


async def test_a_slow_trickle_of_bytes_counts_as_life() -> None:
    async with pair({"heartbeat": SHORT}) as both:
        receiver, sender = await both.receiver(grants=100)
        for number in range(8):
            await asyncio.sleep(SHORT / 2)
            sender.send(b"x", number)
        await both.client.until(lambda: len(both.client.deliveries) == 8)
        assert not receiver.dead
