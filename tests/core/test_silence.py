"""The client leaves a primary that falls silent on an intact TCP connection after one ``heartbeat``."""

from __future__ import annotations

import asyncio

import pytest

from haclient import Message, aio
from haclient.events import Disconnected, LossKind, Reconnected
from haclient.testing.proxy import proxy
from haclient.testing.virtual_clock import VirtualTime
from tests.peers import primary, url
from tests.peers.watch import Watch

from .attach.test_retries import follow


@pytest.mark.parametrize("heartbeat", [2.0, 10.0])
@pytest.mark.parametrize("begun", [0.1, 0.6, 1.3])
def test_a_silent_primary_is_left_after_one_heartbeat(heartbeat: float, begun: float) -> None:
    """A client never takes up to two heartbeats, whenever the silence begins."""

    async def main() -> None:
        loop, watch = asyncio.get_running_loop(), Watch()
        async with primary() as first, primary() as second, proxy(first) as route:
            async with aio.connect(url(route, second, heartbeat=heartbeat)) as connection:
                follow(connection, watch)
                sender = await connection.create_sender("q")
                await asyncio.sleep(begun * heartbeat)
                await sender.send(Message(body="before"))  # its outcome is the last frame received
                heard = loop.time()
                route.hold()
                future = await sender.submit(Message(body="after"))
                (lost,) = await watch.until(Disconnected, timeout=10 * heartbeat)
                assert heartbeat <= loop.time() - heard <= heartbeat + max(heartbeat / 10, 0.05)
                assert f"silent for {heartbeat:g} s" in lost.reason
                assert lost.kind is LossKind.SILENCE
                await watch.until(Reconnected, timeout=30)
                assert (await future).accepted
            assert second.bodies == ["after"]

    VirtualTime().run(main())  # the fixture turns heartbeats off
