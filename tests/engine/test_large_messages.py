"""Messages larger than a frame, a read and a socket buffer, and messages that never become complete."""

from __future__ import annotations

import asyncio
import os

import proton
import pytest

from haclient.testing.proxy import proxy
from tests.engine.pair import Owner, opened, pair, serving

FOUR_MB = 4 * 1024 * 1024


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 65535, 65536, 1_000_000, FOUR_MB])
@pytest.mark.parametrize("from_client", [True, False], ids=["sent", "received"])
async def test_a_message_of_any_size_arrives_whole(size: int, from_client: bool) -> None:
    data = os.urandom(size)
    async with pair() as both:
        if from_client:
            sender, _ = await both.sender()
            receiving = both.server
        else:
            _, sender = await both.receiver()
            receiving = both.client
        sender.send(data, 1)
        sender.send(b"after", 2)
        await receiving.until(lambda: len(receiving.deliveries) == 2)
        assert [found for _, _, found in receiving.deliveries] == [data, b"after"]


async def test_small_frames_carry_a_large_message() -> None:
    data = os.urandom(100_000)
    async with pair({"max_frame_size": 512}, {"max_frame_size": 600}) as both:
        sender, _ = await both.sender()
        sender.send(data, 1)
        await both.server.until(lambda: both.server.deliveries)
        assert both.server.deliveries[0][2] == data


async def test_large_messages_of_two_links_do_not_mix() -> None:
    async with pair() as both:
        one, _ = await both.sender()
        assert both.client.engine is not None
        assert both.client.session is not None
        other = both.client.engine.sender(both.client.session, "other", both.client)
        other.endpoint.target.address = "other"
        both.client.engine.attach(other)
        await both.client.until(lambda: other.credit > 0)
        bodies = {one: b"1" * 500_000, other: b"2" * 500_000}
        for number in range(6):
            sender = one if number % 2 else other
            sender.send(bodies[sender], number)
        await both.server.until(lambda: len(both.server.deliveries) == 6)
        assert sorted(data for _, _, data in both.server.deliveries) == sorted([*bodies.values()] * 3)


@pytest.mark.parametrize("cut_at", [10_000, 1_000_000, FOUR_MB - 10])
async def test_a_message_that_is_cut_in_mid_transfer_is_not_delivered(cut_at: int) -> None:
    async with serving() as (peer, owners), proxy(peer) as way:
        client = Owner()
        engine = await opened(client, way.host, way.port)
        await client.until(lambda: client.session)
        assert client.session is not None
        sender = engine.sender(client.session, "s", client)
        engine.attach(sender)
        await client.until(lambda: sender.credit > 0)
        way.cut_after(cut_at)
        sender.send(os.urandom(FOUR_MB), 1)
        await owners[0].until(lambda: owners[0].close_reasons)
        await client.until(lambda: client.close_reasons)
        assert way.made == 1
        assert owners[0].deliveries == []
        assert client.outcomes == []


async def test_an_aborted_message_is_not_delivered() -> None:
    async with pair() as both:
        receiver, sender = await both.receiver()
        endpoint = sender.endpoint
        assert isinstance(endpoint, proton.Sender)
        delivery = endpoint.delivery("aborted")
        endpoint.send(b"x" * 200_000)
        sender._engine.wake()
        async with asyncio.timeout(10):
            while not receiver._partial:  # noqa: ASYNC110 - an owner hears of whole messages only
                await asyncio.sleep(0)
        delivery.abort()
        sender.send(b"whole", 1)
        await both.client.until(lambda: both.client.deliveries)
        assert [data for _, _, data in both.client.deliveries] == [b"whole"]
        assert receiver._partial is None


async def test_a_peer_that_does_not_read_stops_the_sender_and_is_served_later() -> None:
    async with pair() as both:
        sender, _ = await both.sender(grants=100_000)
        engine = both.client.engine
        assert engine is not None
        (socket,) = both.peer.transports
        socket.pause_reading()
        data, sent, most = b"x" * 1000, 0, 0
        async with asyncio.timeout(10):
            while engine.writable:
                assert sender.credit > 0
                sender.send(data, sent)
                sent += 1
                if sent % 100 == 0:
                    await asyncio.sleep(0)
                most = max(most, held(engine))
        # The kernel's buffers do not count; the engine's own buffer is bounded.
        assert most < 2 * 1024 * 1024
        assert both.client.writable == 0
        socket.resume_reading()
        await both.client.until(lambda: both.client.writable)
        assert engine.writable
        await both.server.until(lambda: len(both.server.deliveries) == sent)
        assert held(engine) == 0


def held(engine: object) -> int:
    """Return the sent bytes that the kernel has not taken yet."""
    socket = engine._socket
    return socket.get_write_buffer_size() + engine.transport.pending()
