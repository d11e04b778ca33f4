"""``receive_many`` and ``accept_many``, over both APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import haclient
from haclient.errors import AlreadySettled, LinkClosed, StaleDelivery
from haclient.outcome import ACCEPTED
from tests.peers import primary, url
from tests.peers.apis import API, connected, on_thread, until_waiting


def bodies(deliveries: list[Any]) -> list[Any]:
    return [each.message.body for each in deliveries]


async def test_it_returns_what_is_there_in_order_up_to_the_maximum(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", *range(5))
        assert bodies(await receiver.receive_many(10, min_count=5)) == list(range(5))
        peer.put("q", *range(5, 12))
        assert bodies(await receiver.receive_many(3, min_count=3)) == [5, 6, 7]
        assert bodies(await receiver.receive_many(100, min_count=4)) == [8, 9, 10, 11]


async def test_at_the_timeout_it_returns_what_arrived_or_nothing(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        assert await receiver.receive_many(3, timeout=0.01) == []
        assert await receiver.receive_many(3, timeout=0) == []
        peer.put("q", 1, 2)
        assert bodies(await receiver.receive_many(5, min_count=4, timeout=0.3)) == [1, 2]


async def test_without_any_time_it_polls_and_gets_messages_in_the_end(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        async with asyncio.timeout(10):
            while not (found := await receiver.receive_many(5, timeout=0)):
                pass
        assert bodies(found) == [1]


@pytest.mark.parametrize(("most", "least"), [(0, 1), (-1, 1), (3, 4), (3, 0), (3, -1), (0, 0)])
async def test_impossible_counts_are_refused(api: API, most: int, least: int) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        with pytest.raises(ValueError, match="min_count is 1 or more and at most max_count, not "):
            await receiver.receive_many(most, min_count=least)


async def test_more_than_the_credit_can_bring_is_refused(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=5)
        with pytest.raises(ValueError, match="at most the receiver's credit of 5, not 6"):
            await receiver.receive_many(9, min_count=6)


async def test_the_whole_credit_arrives_although_it_is_refilled_by_halves(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=10)
        peer.put("q", *range(200))
        for _ in range(4):
            await receiver.receive()  # less than half of the credit: it is not granted again yet
        async with asyncio.timeout(10):
            assert bodies(await receiver.receive_many(10, min_count=10)) == list(range(4, 14))


async def test_a_failover_in_between_gives_no_message_twice(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1, 2)
        waiting = asyncio.ensure_future(receiver.receive_many(5, min_count=3))
        await peer.until(lambda: peer.unsettled == 2)
        peer.drop()
        await peer.until(lambda: len(peer.sources) == 2)
        peer.put("q", 3)
        got = await asyncio.wait_for(waiting, 10)
        assert bodies(got) == [1, 2, 3]
        assert await receiver.accept_many(got) == []
        await peer.until(lambda: peer.outcomes == [ACCEPTED] * 3)


async def test_a_receiver_that_is_closed_ends_it(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        waiting = asyncio.ensure_future(receiver.receive_many(5))
        await until_waiting(receiver)
        await receiver.close()
        with pytest.raises(LinkClosed, match="the receiver for 'q' is closed"):
            await waiting
        with pytest.raises(LinkClosed):
            await receiver.receive_many(5, timeout=0)


async def test_a_cancelled_call_leaves_its_messages_in_the_inbox() -> None:
    async with primary() as peer, haclient.aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1, 2, 3)
        waiting = asyncio.create_task(receiver.receive_many(9, min_count=4))
        other = asyncio.create_task(receiver.receive_many(9, min_count=3))
        await peer.until(lambda: peer.unsettled == 3)
        waiting.cancel()
        assert bodies(await asyncio.wait_for(other, 10)) == [1, 2, 3]
        waiting = asyncio.create_task(receiver.receive_many(9, min_count=3))
        peer.put("q", 4, 5)
        await peer.until(lambda: peer.unsettled == 5)
        waiting.cancel()
        assert bodies(await receiver.receive_many(9, min_count=2)) == [4, 5]


async def test_a_call_that_needs_less_is_not_held_up_by_one_that_needs_more() -> None:
    async with primary() as peer, haclient.aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q")
        many = asyncio.create_task(receiver.receive_many(9, min_count=3))
        await asyncio.sleep(0)
        one = asyncio.create_task(receiver.receive())
        await asyncio.sleep(0)
        peer.put("q", 1, 2, 3, 4)
        assert (await asyncio.wait_for(one, 10)).message.body == 1
        assert bodies(await asyncio.wait_for(many, 10)) == [2, 3, 4]


async def test_two_threads_share_the_messages_and_lose_none() -> None:
    async with primary() as peer:
        connection = await on_thread(haclient.connect, url(peer))
        receiver = (await connection.create_receiver("q", credit=7)).inner
        got: list[int] = []

        def consume() -> None:
            while len(got) < 600:
                batch = receiver.receive_many(5, min_count=4, timeout=0.2)
                got.extend(bodies(batch))
                assert receiver.accept_many(batch) == []

        peer.put("q", *range(600))
        async with asyncio.timeout(30):
            await asyncio.gather(on_thread(consume), on_thread(consume))
        await peer.until(lambda: len(peer.outcomes) == 600)
        assert sorted(got) == list(range(600))
        assert max(peer.credit) <= 7
        await connection.close()


async def test_what_an_interrupted_call_took_returns_to_the_inbox() -> None:
    """Two calls receive from one inbox: one of them holds messages, and waits for more."""
    async with primary() as peer:
        connection = await on_thread(haclient.connect, url(peer))
        receiver = (await connection.create_receiver("q", credit=4)).inner
        core = receiver._core
        peer.put("q", 1, 2, 3, 4)
        await on_thread(receiver._thread.call, core.wait_messages(4))
        taken = [core.inbox.popleft() for _ in range(3)]
        receiver._thread.post(core.replenish_credit, 3, core.session_number)
        receiver._thread.post(core.put_back, taken)
        assert bodies(await on_thread(receiver.receive_many, 9, min_count=4)) == [1, 2, 3, 4]
        peer.put("q", *range(5, 20))
        await connection.close()
        assert max(peer.credit) <= 4


async def test_accepted_at_once(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", *range(50))
        got = await receiver.receive_many(50, min_count=50)
        assert await receiver.accept_many(got) == []
        await peer.until(lambda: peer.outcomes == [ACCEPTED] * 50)
        assert all(each.settled for each in got)
        assert await receiver.accept_many([]) == []


async def test_the_stale_ones_come_back_in_order_and_the_others_are_accepted(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1, 2)
        old = await receiver.receive_many(2, min_count=2)
        peer.drop()
        new = await receiver.receive_many(2, min_count=2)
        mixed = [old[1], new[0], old[0], new[1]]
        assert bodies(await receiver.accept_many(mixed)) == [2, 1]
        await peer.until(lambda: peer.outcomes == [ACCEPTED] * 2)
        with pytest.raises(StaleDelivery, match="connection was lost; the new primary delivers"):
            await old[0].accept()


async def test_deliveries_of_another_receiver_are_refused_and_nothing_is_accepted(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        one, other = await connection.create_receiver("a"), await connection.create_receiver("b")
        peer.put("a", 1)
        peer.put("b", 2)
        mixed = [await one.receive(), await other.receive()]
        with pytest.raises(ValueError, match="of another receiver"):
            await one.accept_many(mixed)
        assert await one.accept_many(mixed[:1]) == []
        assert await other.accept_many(mixed[1:]) == []


async def test_a_delivery_that_is_settled_or_there_twice_is_an_error_and_nothing_is_accepted(
    api: API,
) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1, 2)
        one, two = await receiver.receive_many(2, min_count=2)
        with pytest.raises(AlreadySettled):
            await receiver.accept_many([one, two, one])
        await one.release()
        with pytest.raises(AlreadySettled):
            await receiver.accept_many([two, one])
        assert await receiver.accept_many([two]) == []
