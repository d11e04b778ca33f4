"""A peer that accepts the session of a client that comes back, and answers none of its links."""

from __future__ import annotations

import asyncio

import pytest

from haclient import State, aio
from haclient.errors import LinkClosed, LinkTimeout
from haclient.events import Disconnected
from haclient.testing.virtual_clock import VirtualTime
from tests.peers import primary, url
from tests.peers.watch import Watch

from .test_retries import attaches, follow

PATIENCE = 30.0


@pytest.fixture
def virtual_time(haclient_virtual_time: VirtualTime) -> VirtualTime:
    haclient_virtual_time.settle = 0.02
    return haclient_virtual_time


def test_a_link_without_an_answer_is_attached_over_another_connection(virtual_time: VirtualTime) -> None:
    async def main() -> None:
        loop, watch = asyncio.get_running_loop(), Watch()
        async with primary() as peer, aio.connect(url(peer)) as connection:
            follow(connection, watch)
            sender = await connection.create_sender("orders")
            peer.ignores.add("orders")
            peer.drop()
            began = loop.time()
            sending = asyncio.ensure_future(sender.send(b"one", timeout=100))
            await peer.until(lambda: len(attaches(peer, "orders")) == 2)
            peer.ignores.clear()
            assert (await sending).accepted
            assert PATIENCE <= loop.time() - began < PATIENCE + 12
            assert len(peer.received) == 1
            assert "it answered no Attach for 30 s" in str(watch.of(Disconnected)[1].reason)

    virtual_time.run(main())


def test_a_link_that_is_never_answered_fails_alone(virtual_time: VirtualTime) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with primary() as peer, aio.connect(url(peer)) as connection:
            sender = await connection.create_sender("orders")
            beside = await connection.create_sender("other")
            peer.ignores.add("orders")
            peer.drop()
            began = loop.time()
            with pytest.raises(LinkClosed, match="so ended each connection that it was attached over"):
                await sender.send(b"one", timeout=1000)
            assert 120 <= loop.time() - began < 200
            assert (await beside.send(b"two")).accepted
            assert connection.state is State.CONNECTED

    virtual_time.run(main())


def test_a_peer_that_answers_one_link_after_the_other_may_take_as_long_as_it_needs(
    virtual_time: VirtualTime,
) -> None:
    """Twenty links, with ten seconds between two answers."""

    async def main() -> None:
        watch = Watch()
        async with primary() as peer, aio.connect(url(peer)) as connection:
            follow(connection, watch)
            names = [f"q{number}" for number in range(20)]
            senders = [await connection.create_sender(name) for name in names]
            peer.ignores.update(names)
            peer.drop()
            await watch.until(Disconnected)
            await peer.until(lambda: len(peer.waiting) == len(names))
            for _ in names:
                await asyncio.sleep(10)
                peer.answer_one()
            assert all([(await sender.send(b"x")).accepted for sender in senders])
            assert len(watch.of(Disconnected)) == 1

    virtual_time.run(main())


@pytest.mark.slow  # a thousand links are opened twice
@pytest.mark.timeout(600)
def test_a_peer_that_answers_a_thousand_links_in_one_go_has_longer_for_it(virtual_time: VirtualTime) -> None:
    """Artemis answered the first of 10,000 only after 30 s."""

    async def main() -> None:
        watch = Watch()
        async with primary() as peer, aio.connect(url(peer)) as connection:
            follow(connection, watch)
            names = [f"q{number}" for number in range(1000)]
            senders = await asyncio.gather(*(connection.create_sender(name) for name in names))
            peer.ignores.update(names)
            peer.drop()
            await watch.until(Disconnected)
            await peer.until(lambda: len(peer.waiting) == len(names))
            await asyncio.sleep(1.5 * PATIENCE)
            for _ in names:
                peer.answer_one()
            assert (await senders[-1].send(b"x")).accepted
            assert len(watch.of(Disconnected)) == 1

    virtual_time.run(main())


def test_a_link_that_was_never_open_has_the_time_of_its_call(virtual_time: VirtualTime) -> None:
    async def main() -> None:
        watch = Watch()
        async with primary() as peer, aio.connect(url(peer)) as connection:
            follow(connection, watch)
            peer.ignores.add("orders")
            creating = asyncio.ensure_future(connection.create_sender("orders", timeout=100))
            await asyncio.sleep(1)
            peer.drop()
            with pytest.raises(LinkTimeout):
                await creating
            assert len(attaches(peer, "orders")) == 2
            assert len(watch.of(Disconnected)) == 1

    virtual_time.run(main())
