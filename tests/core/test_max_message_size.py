"""A message above the primary's limit fails alone, before any byte is sent; over both APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient import aio
from haclient.errors import MessageTooLarge, SendManyError
from haclient.outcome import ACCEPTED
from tests.broker_stub.clients import running
from tests.peers import Primary, primary, url
from tests.peers.apis import API, connected

LIMIT = 10_000
LARGE, SMALL = bytes(LIMIT), b"small"


def sizes(peer: Primary) -> list[int]:
    """Return the sizes of the received bodies."""
    return [len(body) for body in peer.bodies]


async def test_the_send_fails_with_both_sizes_and_the_sender_goes_on(api: API) -> None:
    async with primary(max_message_size=LIMIT) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(MessageTooLarge, match=f"takes {LIMIT} at most for 'q'") as caught:
            await sender.send(LARGE, timeout=5)
        error = caught.value
        assert error.size > error.limit == LIMIT
        assert f"the message has {error.size} bytes" in str(error)
        assert (error.delivered, error.safe_to_retry, error.connection_usable) == (False, False, True)
        assert (await sender.send(SMALL, timeout=5)).accepted
        assert sizes(peer) == [5]
        assert len(peer.attaches) == 1


async def test_what_is_sent_before_and_behind_it_has_its_outcome(api: API) -> None:
    async with primary(max_message_size=LIMIT, outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        before = [await sender.submit(SMALL) for _ in range(20)]
        with pytest.raises(MessageTooLarge):
            await (
                await sender.submit_nowait(LARGE) if api.name == "blocking" else sender.submit_nowait(LARGE)
            )
        behind = [await sender.submit(SMALL) for _ in range(20)]
        await peer.until(lambda: len(peer.received) == 40)
        peer.outcome = ACCEPTED
        peer.drop()  # it drops the copies, and settles them
        for future in before + behind:
            assert (await future).accepted


async def test_send_many_has_it_as_the_result_of_that_message(api: API) -> None:
    async with primary(max_message_size=LIMIT) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendManyError) as caught:
            await sender.send_many([SMALL, LARGE, SMALL], timeout=10)
        first, second, third = caught.value.results
        assert first.accepted
        assert isinstance(second, MessageTooLarge)
        assert third.accepted
        assert sizes(peer) == [5, 5]


@pytest.mark.parametrize("limit", [0, 2**64 - 1])
async def test_0_and_the_largest_number_are_no_limit(api: API, limit: int) -> None:
    async with primary(max_message_size=limit) as peer, connected(api, peer) as connection:
        assert (await (await connection.create_sender("q")).send(bytes(300_000))).accepted


async def test_a_message_of_exactly_that_size_is_sent(api: API) -> None:
    async with primary(max_message_size=LIMIT) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(MessageTooLarge) as caught:
            await sender.send(LARGE, duplicate_id="id")
        size = caught.value.size
        for limit, fits in ((size, True), (size - 1, False)):
            peer.max_message_size = limit
            sender = await connection.create_sender("q")
            if fits:
                assert (await sender.send(LARGE, duplicate_id="id")).accepted
            else:
                with pytest.raises(MessageTooLarge):
                    await sender.send(LARGE, duplicate_id="id")


async def test_what_is_replayed_to_a_member_that_takes_less_fails_alone(api: API) -> None:
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        futures = [await sender.submit(body) for body in (SMALL, LARGE, SMALL)]
        await peer.until(lambda: len(peer.received) == 3)
        peer.max_message_size, peer.outcome = LIMIT, ACCEPTED
        peer.drop()
        assert (await futures[0]).accepted
        with pytest.raises(MessageTooLarge) as caught:
            await futures[1]
        assert caught.value.delivered is None
        assert (await futures[2]).accepted
        assert sender.unsettled == 0


async def test_what_waits_for_a_primary_fails_when_one_takes_less(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        peer.ignores.add("q")
        peer.drop()
        await peer.until(lambda: peer.waiting)
        large, small = await sender.submit(LARGE), await sender.submit(SMALL)
        peer.max_message_size = LIMIT
        peer.answer_one()
        with pytest.raises(MessageTooLarge) as caught:
            await large
        assert caught.value.delivered is False
        assert (await small).accepted
        peer.ignores.clear()


async def test_a_call_that_waits_for_the_window_gets_the_place_that_it_does_not_use(api: API) -> None:
    async with (
        primary(max_message_size=LIMIT, outcome=None) as peer,
        connected(api, peer, window=1) as connection,
    ):
        sender = await connection.create_sender("q")
        first = await sender.submit(SMALL)
        waiting = [asyncio.create_task(sender.send(body, timeout=10)) for body in (LARGE, LARGE, SMALL)]
        async with asyncio.timeout(10):
            while len(sender._core._waiting_for_window) < len(waiting):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.001)
        peer.outcome = ACCEPTED
        peer.drop()
        assert (await first).accepted
        results: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in results[:2]] == [MessageTooLarge] * 2
        assert results[2].accepted


async def test_a_member_keeps_the_sender_of_a_message_that_it_does_not_take(api: API) -> None:
    async with running(max_message_size=LIMIT) as broker:
        connection = await api.connect(str(broker.address))
        sender = await connection.create_sender("q")
        small = [await sender.submit(SMALL) for _ in range(50)]
        with pytest.raises(MessageTooLarge):
            await sender.send(LARGE)
        for future in small:
            assert (await future).accepted
        await connection.close()


@given(
    bodies=st.lists(st.integers(0, 3000), min_size=1, max_size=12),
    limits=st.lists(st.integers(0, 3000), min_size=1, max_size=3),
)
@settings(max_examples=20)
def test_over_members_of_any_limits_each_message_is_stored_or_named_too_large(
    bodies: list[int], limits: list[int]
) -> None:
    """The next primary allows more, less, or any size; a message that no member refused for its size arrives
    once.
    """

    async def run() -> None:
        async with (
            primary(outcome=None, max_message_size=limits[0]) as peer,
            aio.connect(url(peer, backoff_base=0.001, backoff_max=0.01)) as connection,
        ):
            sender = await connection.create_sender("q")
            futures = [await sender.submit(bytes(size)) for size in bodies]
            for limit in limits[1:]:
                attached = len(peer.attaches)
                peer.max_message_size = limit
                peer.drop()
                await peer.until(lambda attached=attached: len(peer.attaches) > attached)
            peer.outcome = ACCEPTED
            peer.drop()
            results = await asyncio.gather(*futures, return_exceptions=True)
            for size, result in zip(bodies, results, strict=True):
                if isinstance(result, MessageTooLarge):
                    assert result.size > result.limit in limits
                    assert size < result.size
                else:
                    assert result.accepted
                    assert size <= (limits[-1] or size)
            stored = sum(not isinstance(each, MessageTooLarge) for each in results)
            assert stored <= len(peer.received) <= len(bodies)

    asyncio.run(run())
