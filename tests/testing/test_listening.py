"""A peer that ends leaves no connection open, however late it was accepted."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from haclient.testing.peers.listening import listening


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_was_accepted_just_now_is_closed(turns: int) -> None:
    """pytest reports a socket that is left open."""

    async def end_after() -> None:
        with socket.socket() as client:
            client.setblocking(False)
            async with listening(lambda _: asyncio.Protocol()) as peer:
                client.connect_ex((peer.host, peer.port))
                for _ in range(turns):
                    await asyncio.sleep(0)

    for _ in range(5):
        asyncio.run(end_after())
        gc.collect()
