"""The client answers a peer's Close, and outcomes given before it reach the peer."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import proton
import pytest

from haclient import Message, State, aio
from haclient.engine import lingering
from haclient.engine.protocol import Engine
from haclient.outcome import ACCEPTED
from haclient.testing.peers.listening import PeerEngine
from tests.certificates import Authority
from tests.failover.tls_front import tls_front
from tests.peers import Primary, primary, url

FORCED = proton.Condition("amqp:connection:forced", "this member goes away")
# More than the kernel's small buffers hold, for a peer that does not read.
LARGE = b"x" * 1_000_000
FAST: dict[str, Any] = {"backoff_base": 0.01, "backoff_max": 0.05}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sockets linger long: a busy machine may not find the next session within the usual time."""
    monkeypatch.setattr(lingering, "_LINGER", 30.0)


def read_nothing(sending: Engine, reading: PeerEngine) -> None:
    """Pause the peer, and make the buffers between both sides small."""
    reading.tcp.pause_reading()
    reading.tcp.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    assert sending._socket is not None
    sending._socket.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)


async def get_stuck(peer: Primary, connection: Any, sender: Any) -> PeerEngine:
    """Stop the peer's reading, with messages that cannot leave."""
    engine = next(reversed(peer.engines))
    read_nothing(connection._core._engine, engine)
    sent = await sender.submit(Message(body=LARGE))
    sent.add_done_callback(lambda done: done.exception())  # the outcome does not matter
    await asyncio.sleep(0)  # the messages are written
    return engine


@asynccontextmanager
async def stuck(peer: Primary) -> AsyncIterator[tuple[Any, Any, PeerEngine]]:
    """A connection, its sender, its peer that reads no more, and a message accepted at that time."""
    peer.put("q", "one")
    async with aio.connect(url(peer), **FAST) as connection:
        receiver = await connection.create_receiver("q")
        sender = await connection.create_sender("p")
        delivery = await receiver.receive(timeout=5)
        engine = await get_stuck(peer, connection, sender)
        await delivery.accept()
        del delivery  # a live delivery would keep its link and engine
        yield connection, sender, engine


async def test_an_outcome_given_before_the_close_was_read_arrives() -> None:
    async with primary() as peer:
        peer.put("q", "one")
        async with aio.connect(url(peer), **FAST) as connection:
            receiver = await connection.create_receiver("q")
            delivery = await receiver.receive(timeout=5)
            await peer.until(lambda: peer.unsettled == 1)
            (engine,) = peer.engines
            connection._core._engine.writable = False  # nothing leaves before the Close is read
            await delivery.accept()
            engine.close(FORCED)
            await peer.until(lambda: engine not in peer.engines)
            assert peer.outcomes == [ACCEPTED]
            assert engine.close_reason is not None
            assert engine.close_reason.by_peer
            await peer.until(lambda: peer.engines)


async def test_it_arrives_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with primary() as peer, tls_front(authority.issue("localhost"), peer.address) as front:
        peer.put("q", "one")
        where = f"amqps://localhost:{front.port}"
        async with aio.connect(where, tls_ca=authority.file, **FAST) as connection:
            receiver = await connection.create_receiver("q")
            delivery = await receiver.receive(timeout=5)
            (engine,) = peer.engines
            connection._core._engine.writable = False
            await delivery.accept()
            engine.close(FORCED)
            await peer.until(lambda: engine not in peer.engines)
            assert peer.outcomes == [ACCEPTED]
            await peer.until(lambda: peer.engines)


@pytest.mark.usefixtures("patient")
async def test_the_search_does_not_wait_for_a_peer_that_does_not_read() -> None:
    async with primary() as peer, stuck(peer) as (connection, _, engine):
        lost = weakref.ref(connection._core._engine)
        engine.close(FORCED)
        await peer.until(lambda: any(other is not engine for other in peer.engines))
        assert connection.state in (State.RECONNECTING, State.CONNECTED)
        assert ACCEPTED not in peer.outcomes
        gc.collect()
        assert lost() is None
        engine.tcp.resume_reading()
        await peer.until(lambda: ACCEPTED in peer.outcomes)
        await peer.until(lambda: engine not in peer.engines)
        assert engine.close_reason is not None
        assert engine.close_reason.by_peer


async def test_a_peer_that_does_not_read_the_answer_keeps_no_socket() -> None:
    async with primary() as peer, stuck(peer) as (connection, _, engine):
        engine.close(FORCED)
        await peer.until(lambda: any(other is not engine for other in peer.engines))
        async with asyncio.timeout(10):
            await connection._core._lingering.closed


@pytest.mark.usefixtures("patient")
async def test_closing_the_connection_waits_for_the_last_bytes_no_longer_than_for_a_close() -> None:
    async with primary() as peer:
        async with stuck(peer) as (connection, _, engine):
            engine.close(FORCED)
            await peer.until(lambda: any(other is not engine for other in peer.engines))
            left = connection._core._lingering
            assert not left.closed.done()
        await asyncio.sleep(0)
        assert left.closed.done()


@pytest.mark.usefixtures("patient")
async def test_a_connection_has_one_lingering_socket_at_most() -> None:
    async with primary() as peer, stuck(peer) as (connection, sender, first):
        first.close(FORCED)
        await peer.until(lambda: any(other is not first for other in peer.engines))
        earlier = connection._core._lingering
        await peer.until(lambda: peer.bodies == [LARGE])  # sent again
        second = await get_stuck(peer, connection, sender)
        assert second is not first
        second.close(FORCED)
        async with asyncio.timeout(10):
            await earlier.closed
        later = connection._core._lingering
        assert later is not earlier
        assert not later.closed.done()
