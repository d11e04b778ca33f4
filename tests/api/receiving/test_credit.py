"""``add_credit`` and ``drain``, and a shutdown in which nothing is delivered twice; over both APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Condition

import haclient
from haclient.engine.links import SenderLink
from haclient.errors import DrainTimeout, LinkClosed, ReceiveTimeout
from haclient.outcome import ACCEPTED
from tests.peers import Primary, primary, url
from tests.peers.apis import API, connected, until_waiting


def bodies(deliveries: list[Any]) -> list[Any]:
    return [each.message.body for each in deliveries]


async def round_trip(connection: Any) -> None:
    """Make a round trip: the client's earlier frames have arrived."""
    async with asyncio.timeout(10):
        await (await connection.create_sender(None)).close()


def at_peer(peer: Primary) -> int:
    """Return the current credit of the peer's senders."""
    links = [link for links in peer.engines.values() for link in links if isinstance(link, SenderLink)]
    return sum(link.credit for link in links)


# -- credit=0 -------------------------------------------------------------------------------------


async def test_without_credit_nothing_comes_but_what_is_asked_for(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        peer.put("q", *range(9))
        assert await receiver.receive_many(9, timeout=0.05) == []
        await receiver.add_credit(2)
        assert bodies(await receiver.receive_many(9, min_count=2)) == [0, 1]
        assert await receiver.receive_many(9, timeout=0.05) == []
        await receiver.add_credit(1)
        await receiver.add_credit(2)
        assert bodies(await receiver.receive_many(9, min_count=3)) == [2, 3, 4]
        assert len(peer.queues["q"]) == 4


async def test_after_a_failover_it_gets_what_it_asked_for_and_has_not_received(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        await receiver.add_credit(4)
        peer.put("q", 1, 2)
        assert (await receiver.receive()).message.body == 1
        await peer.until(lambda: peer.unsettled == 2)
        peer.drop()
        await peer.until(lambda: len(peer.sources) == 2)
        peer.put("q", *range(3, 9))
        assert bodies(await receiver.receive_many(9, min_count=3)) == [1, 2, 3]
        assert await receiver.receive_many(9, timeout=0.05) == []


@pytest.mark.parametrize("count", [0, -1, -(2**40)])
async def test_credit_to_add_is_positive(api: API, count: int) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        with pytest.raises(ValueError, match=f"the credit to add is 1 or more, not {count}"):
            await receiver.add_credit(count)


async def test_credit_that_proton_cannot_count_is_refused(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        await receiver.add_credit(2**31 - 1)
        with pytest.raises(ValueError, match="the credit is 2147483647 at most"):
            await receiver.add_credit(1)
        with pytest.raises(ValueError, match="credit is 0 to 2147483647"):
            await connection.create_receiver("q", credit=2**31)
        peer.put("q", 1)
        assert (await receiver.receive(timeout=5)).message.body == 1


async def test_a_receiver_with_a_credit_of_its_own_takes_none(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=5)
        with pytest.raises(ValueError, match="add_credit is for credit=0, not 5"):
            await receiver.add_credit(1)


async def test_a_closed_receiver_takes_none(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        await receiver.close()
        with pytest.raises(LinkClosed, match="the receiver for 'q' is closed"):
            await receiver.add_credit(1)
        with pytest.raises(LinkClosed, match="the receiver for 'q' is closed"):
            await receiver.drain()


# -- drain ----------------------------------------------------------------------------------------


async def test_after_a_drain_nothing_arrives_until_a_call_waits(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=10)
        peer.put("q", 1, 2, 3)
        await receiver.drain()
        assert at_peer(peer) == 0
        peer.put("q", *range(4, 40))
        await round_trip(connection)
        for expected in (1, 2, 3):
            assert (await receiver.receive(timeout=0)).message.body == expected
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0)
        assert await receiver.receive_many(9, timeout=0) == []
        await round_trip(connection)
        assert len(peer.queues["q"]) == 36
        assert bodies(await receiver.receive_many(10, min_count=10)) == list(range(4, 14))
        await round_trip(connection)
        assert max(peer.credit) <= 10


async def test_the_credit_is_whole_again_after_a_drain(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=10)
        for number in range(5):
            peer.put("q", number)
            await receiver.receive()
            await receiver.drain()
        assert await receiver.receive_many(1, timeout=0.01) == []
        await round_trip(connection)
        assert at_peer(peer) == 10


async def test_a_call_that_waits_gets_its_message_after_a_drain(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        waiting = asyncio.ensure_future(receiver.receive())
        await until_waiting(receiver)
        await receiver.drain()
        peer.put("q", 1)
        assert (await asyncio.wait_for(waiting, 10)).message.body == 1


async def test_two_drains_at_once_both_end(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        async with asyncio.timeout(10):
            await asyncio.gather(*(receiver.drain() for _ in range(3)))
        assert at_peer(peer) == 0
        assert bodies(await receiver.receive_many(2, timeout=0)) == [1]


async def test_a_drain_without_credit_returns_at_once(api: API) -> None:
    async with primary(drains=False) as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        await receiver.drain()
        await receiver.add_credit(1)
        peer.put("q", 1, 2)
        await receiver.receive()
        await receiver.drain()


async def test_a_drain_takes_added_credit_back(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0)
        await receiver.add_credit(5)
        await receiver.drain()
        peer.put("q", 1, 2)
        assert await receiver.receive_many(1, timeout=0.05) == []
        await receiver.add_credit(1)
        assert bodies(await receiver.receive_many(2, timeout=5)) == [1]


async def test_a_peer_that_never_answers_a_drain(api: API) -> None:
    async with primary(drains=False) as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=3)
        with pytest.raises(DrainTimeout, match=r"did not answer the drain within 0\.05 s"):
            await receiver.drain(timeout=0.05)
        peer.put("q", *range(9))
        assert bodies(await receiver.receive_many(2, min_count=2)) == [0, 1]  # the credit is still there
        assert bodies(await receiver.receive_many(3, min_count=3)) == [2, 3, 4]


async def test_a_peer_that_uses_all_credit_and_says_nothing_ends_the_drain_too(api: API) -> None:
    async with primary(drains=False) as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=3)
        drain = asyncio.ensure_future(receiver.drain())
        await peer.until(lambda: peer.draining)
        assert not drain.done()
        peer.put("q", 1, 2, 3)
        await asyncio.wait_for(drain, 10)


async def test_a_failover_ends_a_drain_and_the_new_primary_gets_no_credit(api: API) -> None:
    async with primary(drains=False) as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=3)
        peer.put("q", 1)
        drain = asyncio.ensure_future(receiver.drain())
        await peer.until(lambda: peer.unsettled == 1 and peer.draining)
        peer.drop()
        await asyncio.wait_for(drain, 10)
        await peer.until(lambda: len(peer.sources) == 2)
        await round_trip(connection)
        assert at_peer(peer) == 0
        assert await receiver.receive_many(1, timeout=0) == []
        assert bodies(await receiver.receive_many(1)) == [1]


async def test_a_drain_during_an_outage_returns_at_once(api: API) -> None:
    async with primary() as peer, connected(api, peer, backoff_base=5, backoff_max=5) as connection:
        receiver = await connection.create_receiver("q")
        peer.refuses_opens = Condition("amqp:connection:forced", "not now")
        peer.drop()
        await peer.until(lambda: peer.refused)
        async with asyncio.timeout(10):
            await receiver.drain(timeout=1)


async def test_a_receiver_that_is_closed_ends_a_drain(api: API) -> None:
    async with primary(drains=False) as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        drain = asyncio.ensure_future(receiver.drain())
        await peer.until(lambda: peer.draining)
        await receiver.close()
        with pytest.raises(LinkClosed, match="is closed"):
            await asyncio.wait_for(drain, 10)


async def test_a_cancelled_drain_leaves_a_receiver_that_receives() -> None:
    async with primary(drains=False) as peer, haclient.aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", credit=2)
        drain = asyncio.create_task(receiver.drain())
        await peer.until(lambda: peer.draining)
        drain.cancel()
        peer.put("q", *range(5))
        for expected in range(5):
            assert (await receiver.receive(timeout=5)).message.body == expected


# -- a graceful shutdown --------------------------------------------------------------------------


async def test_a_shutdown_settles_what_it_holds_and_leaves_the_rest_undelivered(api: API) -> None:
    """Stop the credit, settle the held deliveries, close: as docs/receiving.md shows."""
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=10)
        peer.put("q", *range(100))
        held = await receiver.receive_many(3, min_count=3)
        await receiver.drain()
        while batch := await receiver.receive_many(4, timeout=0):
            held += batch
        done = bodies(held)
        assert await receiver.accept_many(held) == []
        await receiver.close()
        await peer.until(lambda: peer.detached)
        assert peer.outcomes == [ACCEPTED] * len(done)
        assert done == list(range(len(done)))
        assert len(peer.queues["q"]) == 100 - len(done)
        assert not peer.unsettled
