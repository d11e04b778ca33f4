"""A VIP that follows the primary, tested with plain sockets."""

from __future__ import annotations

import asyncio
import socket

from haclient.testing.peers.listening import Peer, listening
from tests.brokers.vip import Vip


class _Says(asyncio.Protocol):
    def __init__(self, text: bytes) -> None:
        self._text = text

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._text)


def _first(_peer: Peer) -> _Says:
    return _Says(b"a")


def _second(_peer: Peer) -> _Says:
    return _Says(b"b")


async def _read(client: socket.socket) -> bytes:
    """Return the next byte, or nothing if the connection was cut."""
    try:
        return await asyncio.get_running_loop().sock_recv(client, 1)
    except ConnectionResetError:
        return b""


async def _dial(client: socket.socket, vip: Vip) -> str:
    client.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(client, (vip.host, vip.port))
    except ConnectionRefusedError:
        return "refused"
    return (await _read(client)).decode()


async def test_a_vip_that_leads_nowhere_is_refused_and_one_that_moves_is_cut() -> None:
    async with listening(_first) as first, listening(_second) as second:
        with socket.socket() as before, socket.socket() as one, socket.socket() as other:
            vip = Vip()
            assert await _dial(before, vip) == "refused"
            await vip.lead(Peer(first.host, first.port))
            assert await _dial(one, vip) == "a"
            await vip.lead(Peer(second.host, second.port))
            assert await _read(one) == b""
            assert await _dial(other, vip) == "b"
            await vip.leave()
            assert await _read(other) == b""
            with socket.socket() as after:
                assert await _dial(after, vip) == "refused"
