"""Accepts that the primary confirms, over both APIs; the peer is a member of this package."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import haclient
from haclient import aio
from haclient.core.attach.confirmations import MOST_UNCONFIRMED
from haclient.core.delivery import DeliveryCore
from haclient.errors import (
    AlreadySettled,
    ConfirmNotSupported,
    ConfirmTimeout,
    ConnectionClosed,
    LinkClosed,
    ReceiveTimeout,
    StaleDelivery,
    WrongThread,
)
from haclient.outcome import OutcomeState
from haclient.testing.peers.listening import url
from tests.peers import primary
from tests.peers.apis import API, connected
from tests.peers.primary import Primary

ACCEPTED, REJECTED = OutcomeState.ACCEPTED.value, OutcomeState.REJECTED.value


@asynccontextmanager
async def receiving(
    api: API, peer: Primary, count: int, **options: Any
) -> AsyncIterator[tuple[Any, list[Any]]]:
    """Open a receiver that confirms, with as many deliveries."""
    async with connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", confirm=True, **options)
        peer.put("q", *range(count))
        yield receiver, list(await receiver.receive_many(count, timeout=10, min_count=count))


async def accepting(peer: Primary, *calls: Any) -> list[asyncio.Task[Any]]:
    """Start the calls; return when the peer has an outcome for each."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await peer.until(lambda: len(peer.unconfirmed) == len(tasks))
    return tasks


async def test_it_returns_when_the_primary_has_settled_and_not_before(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2) as (_, (one, other)):
        (task,) = await accepting(peer, one.accept(confirm=True))
        await other.accept()  # settled at once: without a confirmation
        await peer.until(lambda: len(peer.outcomes) == 2)
        assert not task.done()
        assert one.settled
        peer.confirm()
        await task
        await one.accept(confirm=True)  # already confirmed
        for settle in (one.accept, one.release, other.accept):
            with pytest.raises(AlreadySettled):
                await settle()
        with pytest.raises(AlreadySettled):
            await other.accept(confirm=True)


async def test_several_calls_for_one_delivery_wait_for_one_confirmation(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 1) as (_, (one,)):
        (first,) = await accepting(peer, one.accept(confirm=True))
        second = asyncio.ensure_future(one.accept(confirm=True))
        with pytest.raises(ConfirmTimeout, match=r"did not confirm the accept within 0.01 s"):
            await one.accept(confirm=True, timeout=0.01)
        peer.confirm()
        await asyncio.gather(first, second)
        assert len(peer.outcomes) == 1


async def test_a_call_that_is_cancelled_leaves_the_confirmation_to_the_next() -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", confirm=True)
        peer.put("q", 1)
        one = await receiver.receive(timeout=10)
        (task,) = await accepting(peer, one.accept(confirm=True))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = asyncio.ensure_future(one.accept(confirm=True))
        peer.confirm()
        await again
        # No call waits for this one, and it leaves no state behind.
        peer.put("q", 2)
        (task,) = await accepting(peer, (await receiver.receive(timeout=10)).accept(confirm=True))
        task.cancel()
        confirmations = receiver._core.confirmations
        assert confirmations is not None
        peer.confirm()
        async with asyncio.timeout(10):
            while len(confirmations):  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.001)


async def test_a_primary_that_never_confirms_ends_in_the_usual_timeout(api: API) -> None:
    async with primary() as peer, connected(api, peer, call_timeout=0.05) as connection:
        receiver = await connection.create_receiver("q", confirm=True, timeout=10)
        peer.put("q", 1)
        one = await receiver.receive(timeout=10)
        with pytest.raises(ConfirmTimeout) as caught:
            await one.accept(confirm=True)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.code == "confirm-timeout"


async def test_without_the_option_or_with_a_primary_that_does_not_confirm_it_is_an_error(api: API) -> None:
    async with primary(confirms=False) as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        one = await receiver.receive(timeout=10)
        with pytest.raises(ValueError, match="create it with confirm=True"):
            await one.accept(confirm=True)
        with pytest.raises(ValueError, match="create it with confirm=True"):
            await receiver.accept_many([one], confirm=True)
        await one.accept()
        with pytest.raises(ConfirmNotSupported, match="another rcv-settle-mode"):
            await connection.create_receiver("other", confirm=True)
        with pytest.raises(ConfirmNotSupported, match="another rcv-settle-mode"):
            await connection.subscribe("other", confirm=True)
        peer.put("other", 1)
        assert len(peer.queues["other"]) == 1  # no credit was given before the answer


async def test_the_other_outcomes_are_settled_at_once(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 3) as (_, (one, two, three)):
        await one.reject("app:bad")
        await two.release()
        await three.modify()
        await peer.until(lambda: len(peer.outcomes) == 3)
        states = {each.state for each in peer.outcomes if each is not None}
        assert states == {OutcomeState.REJECTED, OutcomeState.RELEASED, OutcomeState.MODIFIED}


@pytest.mark.parametrize("state", [OutcomeState.RELEASED, OutcomeState.MODIFIED, OutcomeState.REJECTED])
async def test_what_is_settled_as_anything_else_is_not_confirmed(api: API, state: OutcomeState) -> None:
    async with primary() as peer, receiving(api, peer, 1) as (_, (one,)):
        (task,) = await accepting(peer, one.accept(confirm=True))
        peer.confirm(state)
        with pytest.raises(StaleDelivery, match=f"settled it as {state.name.lower()}"):
            await task


async def test_a_doubt_is_resolved_by_the_answer_to_the_next_attach(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 3) as (_, deliveries):
        tasks = await accepting(peer, *(each.accept(confirm=True) for each in deliveries))
        # This peer tags its deliveries with numbers.
        peer.resumes = {(0).to_bytes(8, "little"): ACCEPTED, (2).to_bytes(8, "little"): REJECTED}
        peer.drop()
        await tasks[0]
        with pytest.raises(StaleDelivery, match="does not have it as accepted: its message may come again"):
            await tasks[1]
        with pytest.raises(StaleDelivery, match="its message has left the queue since"):
            await tasks[2]
        assert [dict(each) for each in peer.asked] == [
            {number.to_bytes(8, "little"): ACCEPTED for number in range(3)}
        ]
        peer.drop()
        await peer.until(lambda: len(peer.attaches) == 3)
        assert len(peer.asked) == 1  # a second attach asks for nothing
        await deliveries[0].accept(confirm=True)
        with pytest.raises(StaleDelivery):
            await deliveries[1].accept(confirm=True)


async def test_a_doubt_with_a_primary_that_resumes_nothing_is_stale_and_the_message_comes_again(
    api: API,
) -> None:
    async with primary() as peer, receiving(api, peer, 1) as (receiver, (one,)):
        (task,) = await accepting(peer, one.accept(confirm=True))
        peer.queues["q"].append(peer.unconfirmed[0][2])
        peer.drop()
        with pytest.raises(StaleDelivery, match="may come again"):
            await task
        again = await receiver.receive(timeout=10)
        assert again.body == 0
        peer.unconfirmed.clear()
        (task,) = await accepting(peer, again.accept(confirm=True))
        peer.confirm()
        await task


async def test_what_was_not_accepted_before_the_loss_is_not_asked_about(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 1) as (_, (one,)):
        peer.drop()
        await peer.until(lambda: len(peer.attaches) == 2)
        with pytest.raises(StaleDelivery):
            await one.accept(confirm=True)
        assert peer.asked == []


async def test_more_doubts_than_fit_into_an_attach_are_stale(api: API) -> None:
    async with primary(max_frame_size=1024) as peer, receiving(api, peer, 100, credit=100) as (_, deliveries):
        tasks = await accepting(peer, *(each.accept(confirm=True) for each in deliveries))
        peer.resumes = {number.to_bytes(8, "little"): ACCEPTED for number in range(100)}
        peer.drop()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        (asked,) = peer.asked
        assert 10 < len(asked) < 100
        assert results.count(None) == len(asked)
        assert sum(isinstance(each, StaleDelivery) for each in results) == 100 - len(asked)


async def test_what_is_under_way_ends_with_the_receiver_or_its_connection(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        for end, error in (("receiver", LinkClosed), ("connection", ConnectionClosed)):
            receiver = await connection.create_receiver("q", confirm=True)
            peer.put("q", 1)
            one = await receiver.receive(timeout=10)
            (task,) = await accepting(peer, one.accept(confirm=True))
            await (receiver if end == "receiver" else connection).close()
            with pytest.raises(error):
                await task
            peer.unconfirmed.clear()


async def test_several_at_once(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 4) as (receiver, deliveries):
        task = asyncio.ensure_future(receiver.accept_many(deliveries, confirm=True))
        await peer.until(lambda: len(peer.unconfirmed) == 4)
        with pytest.raises(ConfirmTimeout):
            await receiver.accept_many(deliveries, confirm=True, timeout=0.01)
        peer.resumes = {number.to_bytes(8, "little"): ACCEPTED for number in (0, 1, 3)}
        peer.drop()
        stale = await task
        assert [each.body for each in stale] == [2]
        assert await receiver.accept_many(deliveries[:2], confirm=True) == []
        with pytest.raises(AlreadySettled):
            await receiver.accept_many([deliveries[0], deliveries[0]], confirm=True)


async def test_too_many_unconfirmed_ones_hold_the_credit_back(
    api: API, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_UNCONFIRMED == 2000
    monkeypatch.setattr("haclient.core.attach.confirmations.MOST_UNCONFIRMED", 4)
    async with primary() as peer, receiving(api, peer, 4, credit=4) as (receiver, deliveries):
        # The credit of the first four is granted again when they are received, before any is unconfirmed.
        tasks = await accepting(peer, *(each.accept(confirm=True) for each in deliveries))
        peer.put("q", *range(8))
        held = await receiver.receive_many(4, timeout=10, min_count=4)
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0.05)
        peer.confirm()
        await asyncio.gather(*tasks)
        assert len(held) + len(await receiver.receive_many(4, timeout=10, min_count=4)) == 8


async def test_nothing_of_a_confirmed_delivery_is_kept() -> None:
    async with primary() as peer, aio.connect(url(peer)) as connection:
        receiver = await connection.create_receiver("q", confirm=True)
        peer.put("q", 1)
        one = await receiver.receive(timeout=10)
        (task,) = await accepting(peer, one.accept(confirm=True))
        peer.confirm()
        await task
        del one, task
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, DeliveryCore)]
        assert not receiver._core.confirmations


def test_a_fork_may_not_wait_for_the_confirmation_of_its_parent() -> None:
    async def serve() -> None:
        async with primary() as peer:
            await asyncio.to_thread(use, peer, asyncio.get_running_loop())

    def use(peer: Primary, loop: asyncio.AbstractEventLoop) -> None:
        with haclient.connect(url(peer)) as connection:
            receiver = connection.create_receiver("q", confirm=True)
            loop.call_soon_threadsafe(peer.put, "q", 1)
            delivery = receiver.receive(timeout=10)
            child = os.fork()
            if not child:
                try:
                    delivery.accept(confirm=True)
                except WrongThread:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    asyncio.run(serve())
