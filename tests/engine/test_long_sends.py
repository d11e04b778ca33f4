"""A large message in transit: the bytes that count as life, and the writes to a closing socket."""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Callable
from socket import SHUT_RDWR

import proton
import pytest

from haclient.engine.protocol import Engine
from haclient.engine.wire.outgoing import WRITE_HIGH_WATER
from haclient.testing.proxy import proxy
from haclient.testing.virtual_clock import VirtualTime
from tests.engine.pair import Owner, Pair, opened, pair, serving

MIB = 1024 * 1024
HEARTBEAT = 2.0
# An AMQP frame without a body: part 2, section 2.4.5.
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


@pytest.mark.parametrize("reads", ["client", "server"])
def test_bytes_of_a_frame_that_is_not_whole_are_life_on_both_sides(reads: str) -> None:
    """A frame takes several time-outs, as one of a large message does on a slow network."""

    async def main(_: VirtualTime) -> None:
        times = {reads: HEARTBEAT}
        async with serving(heartbeat=times.get("server", 0.0)) as (peer, owners), proxy(peer) as route:
            client = Owner()
            await opened(client, route.host, route.port, heartbeat=times.get("client", 0.0))
            await client.until(lambda: client.session)
            reader = client if reads == "client" else owners[0]
            assert reader.engine is not None
            route.hold()
            for part in (EMPTY_FRAME[:1], EMPTY_FRAME[1:4], EMPTY_FRAME[4:7]):
                await asyncio.sleep(0.9 * HEARTBEAT)
                reader.engine.data_received(part)
            assert reader.close_reasons == []
            await reader.until(lambda: reader.close_reasons, 2 * HEARTBEAT)
            assert "silent" in str(reader.close_reasons[0])
            if client.engine is not None:
                client.engine.abort()

    time = VirtualTime()
    time.run(main(time))


async def test_the_peer_gets_the_first_bytes_before_the_last_ones_are_copied() -> None:
    """The loop has not iterated once: a peer with a short time-out would see silence for as long."""
    async with pair() as both:
        sender, _ = await both.sender()
        (transport,) = both.peer.transports
        socket = transport.get_extra_info("socket")
        sender.send(b"x" * (16 * MIB), 1)
        assert select.select([socket], [], [], 0)[0]
        await both.server.until(lambda: both.server.deliveries)
        assert both.server.deliveries[0][2] == b"x" * (16 * MIB)


@pytest.mark.parametrize("more", [-1, 0, 1, WRITE_HIGH_WATER - 1, WRITE_HIGH_WATER, WRITE_HIGH_WATER + 1])
async def test_messages_about_the_size_of_a_piece_arrive_in_their_order(more: int) -> None:
    bodies = [b"before", os.urandom(WRITE_HIGH_WATER + more), b"between", os.urandom(3 * MIB), b"after"]
    async with pair() as both:
        sender, _ = await both.sender()
        for number, body in enumerate(bodies):
            sender.send(body, number)
        await both.server.until(lambda: len(both.server.deliveries) == len(bodies))
        assert [data for _, _, data in both.server.deliveries] == bodies


async def test_a_large_message_to_a_peer_that_does_not_read_waits_in_the_socket() -> None:
    """Only one copy, and none in proton, which takes seconds to move a large buffer."""
    async with pair() as both:
        sender, _ = await both.sender()
        engine = both.client.engine
        assert engine is not None
        (socket,) = both.peer.transports
        socket.pause_reading()
        body = os.urandom(8 * MIB)
        sender.send(body, 1)
        assert not engine.writable
        assert engine.transport.pending() <= 2 * WRITE_HIGH_WATER
        before = engine.written
        assert before < len(body)
        socket.resume_reading()
        await both.server.until(lambda: both.server.deliveries)
        assert both.server.deliveries[0][2] == body
        assert engine.written > len(body)


# -- a socket that closes -----------------------------------------------------------------------------


async def large_message_on_its_way(both: Pair) -> Engine:
    """Start a message that the socket does not take: the peer does not read."""
    sender, _ = await both.sender()
    (socket,) = both.peer.transports
    socket.pause_reading()
    sender.send(bytes(16 * MIB), 1)
    await asyncio.sleep(0)
    assert both.client.engine is not None
    assert not both.client.engine.writable
    return both.client.engine


def leave(engine: Engine) -> None:
    engine.leave()


def lose(engine: Engine) -> None:
    engine._end_silent(asyncio.get_running_loop().time() + 1000)


def attach(engine: Engine) -> None:
    session = engine.connection.session_head(0)
    assert session is not None
    link = session.sender("late")
    engine.change_output(link.open, bytes)


@pytest.mark.parametrize("end", [leave, lose, attach])
async def test_nothing_is_written_to_a_socket_that_is_closing(
    end: Callable[[Engine], None], caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio drops such bytes with a warning for each write, and uvloop raises an error."""
    with caplog.at_level(logging.DEBUG, "asyncio"):
        async with pair() as both:
            engine = await large_message_on_its_way(both)
            assert engine._socket is not None
            engine._socket.abort()
            end(engine)
            engine.abort()
            await both.client.until(lambda: both.client.close_reasons)
            (socket,) = both.peer.transports
            socket.resume_reading()
    assert [line for line in caplog.messages if "socket.send()" in line] == []


class LeavingOwner(Owner):
    """Answers the peer's Close at once, as a client does."""

    def peer_closed(self, engine: Engine, condition: proton.Condition | None) -> None:
        engine.leave()


async def test_a_peer_that_closes_in_the_middle_of_a_large_message_leaves_no_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The answer to the Close follows the rest of the message, which the kernel does not take any more."""
    with caplog.at_level(logging.WARNING, "asyncio"):
        async with serving() as (peer, owners):
            client = LeavingOwner()
            engine = await opened(client, peer.host, peer.port)
            await client.until(lambda: client.session)
            both = Pair(client, owners[0], peer)
            await large_message_on_its_way(both)
            (socket,) = peer.transports
            assert owners[0].engine is not None
            owners[0].engine.close()
            owners[0].engine.write()
            socket.get_extra_info("socket").shutdown(SHUT_RDWR)
            await client.until(lambda: client.close_reasons)
            if engine.lingering is not None:
                await engine.lingering.closed
    assert [line for line in caplog.messages if "socket.send()" in line] == []
