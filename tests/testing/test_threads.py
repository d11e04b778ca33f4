"""Leftovers of a thread with an event loop."""

from __future__ import annotations

import psutil

from haclient import aio
from haclient.testing.threads import in_thread, loop_in_thread
from tests.peers import Peer, primary, url


def sockets_to(peer: Peer) -> list[object]:
    """Return the connections of this process to a peer, as the kernel lists them."""
    found = psutil.Process().net_connections("tcp")
    return [each for each in found if each.raddr and each.raddr[:2] == (peer.host, peer.port)]


def test_the_end_cancels_what_still_runs_there() -> None:
    """A connection left by a test must not outlive the loop."""

    async def leave() -> aio.Connection:
        return await aio.connect(url(peer)).__aenter__()

    with in_thread(primary()) as peer:
        with loop_in_thread() as loop:
            left = loop.call(leave())
            assert sockets_to(Peer(peer.host, peer.port))
        assert not sockets_to(Peer(peer.host, peer.port))
    left._closed = True  # without this, its collection warns
