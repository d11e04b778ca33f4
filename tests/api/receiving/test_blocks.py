"""``with delivery:`` and ``delivery.processing()`` settle at the end of the block, over both APIs."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from proton import Condition

import haclient
from haclient import aio
from haclient.cli.formatting import describe, name_of
from haclient.errors import (
    AlreadySettled,
    ConfirmTimeout,
    ConnectionClosed,
    LinkClosed,
    MessageNotAccepted,
    StaleDelivery,
    UndecodableMessage,
    WrongThread,
)
from haclient.events import Closed, DeliveryStale, GaveUp
from haclient.outcome import OutcomeState
from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from tests.peers import primary
from tests.peers.apis import API, AsyncAPI, BlockingAPI
from tests.peers.primary import Primary
from tests.peers.watch import Watch

FAST = {"backoff_base": 0.001, "backoff_max": 0.01}
LOST = "the delivery's connection was lost; the new primary delivers its message again"


class WorkError(Exception):
    """An error of the application."""


@asynccontextmanager
async def receiving(
    api: API, peer: Primary, count: int = 1, *, confirm: bool = False, **options: Any
) -> AsyncIterator[tuple[Any, Any, list[Any], Watch]]:
    """Open a connection and a receiver; return ``count`` deliveries, and the events."""
    watch = Watch()
    connection = await api.connect(url(peer, **FAST, **options), on_event=watch)
    try:
        receiver = await connection.create_receiver("q", confirm=confirm, timeout=10)
        peer.put("q", *range(count))
        deliveries = await receiver.receive_many(count, timeout=10, min_count=count)
        yield connection, receiver, list(deliveries), watch
    finally:
        await connection.close()


async def work(block: Any, then: Callable[[], Awaitable[object]]) -> None:
    """Run a function in a block, and fail."""
    async with block:
        await then()
        raise WorkError


async def settled_as(peer: Primary, *states: OutcomeState) -> None:
    """Wait for as many outcomes, and compare them."""
    await peer.until(lambda: len(peer.outcomes) >= len(states))
    assert [each.state for each in peer.outcomes if each is not None] == list(states)


async def only_stale_event(watch: Watch, reason: str) -> DeliveryStale:
    """Wait for the event, and assert that there is only one."""
    (event,) = await watch.until(DeliveryStale)
    assert event.address == "q"
    assert reason in event.reason
    return event


# -- the ends ---------------------------------------------------------------------------------


async def test_the_end_of_the_block_accepts(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2) as (_, _, (one, other), watch):
        async with one as entered:
            assert entered.body == 0
            assert not one.settled
        assert one.settled
        async with other.processing(on_error="reject", timeout=1) as entered:
            assert entered.body == 1
        await settled_as(peer, OutcomeState.ACCEPTED, OutcomeState.ACCEPTED)
        assert watch.of(DeliveryStale) == []


async def test_an_exception_releases_and_leaves_the_block(api: API) -> None:
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), _):
        error = WorkError()
        with pytest.raises(WorkError) as caught:
            async with one:
                raise error
        assert caught.value is error
        await settled_as(peer, OutcomeState.RELEASED)
        async with await receiver.receive(timeout=10) as again:
            assert again.body == 0


@pytest.mark.parametrize(
    ("on_error", "state"),
    [
        ("release", OutcomeState.RELEASED),
        ("modify", OutcomeState.MODIFIED),
        ("reject", OutcomeState.REJECTED),
    ],
)
async def test_an_exception_settles_as_the_block_says(api: API, on_error: str, state: OutcomeState) -> None:
    async with primary() as peer, receiving(api, peer) as (_, _, (one,), _):
        with pytest.raises(WorkError):
            async with one.processing(on_error=on_error):
                raise WorkError
        await settled_as(peer, state)
        (outcome,) = peer.outcomes
        assert outcome is not None
        assert outcome.delivery_failed == (on_error == "modify")


@pytest.mark.parametrize("on_error", ["accept", "", "Release"])
async def test_another_outcome_is_refused(api: API, on_error: str) -> None:
    async with primary() as peer, receiving(api, peer) as (_, _, (one,), _):
        with pytest.raises(ValueError, match="on_error: it is 'release', 'modify' or 'reject', not '"):
            one.processing(on_error=on_error)
        for wrong in ({"on_error": None}, {"on_error": ["reject"]}, {"timeout": "1"}):
            with pytest.raises(TypeError):
                one.processing(**wrong)
        with pytest.raises(ValueError, match="nan"):
            one.processing(timeout=math.nan)
        assert not one.settled


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_an_interrupt_says_nothing_about_the_message(api: API, kind: type[BaseException]) -> None:
    async with primary() as peer, receiving(api, peer) as (_, _, (one,), _):
        block, error = one.processing(on_error="reject"), kind()
        await block.__aenter__()  # the test's own loop would end with it
        assert not await block.__aexit__(kind, error, None)
        await settled_as(peer, OutcomeState.RELEASED)


async def test_a_task_that_is_cancelled_in_the_block_ends_as_cancelled(api: API) -> None:
    async with primary() as peer, receiving(api, peer) as (_, _, (one,), _):
        entered = asyncio.Event()

        async def work() -> None:
            async with one.processing(on_error="modify"):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settled_as(peer, OutcomeState.RELEASED)


# -- errors of this package -------------------------------------------------------------------


async def test_an_error_of_ours_in_the_block_leaves_it_as_any_other(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2) as (connection, receiver, (one, other), _):
        sender = await connection.create_sender("full")
        peer.outcome = haclient.Outcome(OutcomeState.REJECTED, "amqp:resource-limit-exceeded")
        with pytest.raises(MessageNotAccepted):
            async with one.processing(on_error="reject"):
                await sender.send("result", timeout=10)
        await sender.close()
        with pytest.raises(LinkClosed):
            async with other.processing(on_error="reject"):
                await sender.send("result", timeout=10)
        peer.put_encoded("q", b"no message")
        bad = await receiver.receive(timeout=10)
        with pytest.raises(UndecodableMessage):
            async with bad.processing(on_error="reject"):
                _ = bad.body
        await settled_as(peer, *[OutcomeState.REJECTED] * 3)


async def test_the_stale_delivery_of_another_connection_is_an_error_in_this_block(api: API) -> None:
    async with (
        primary() as peer,
        primary() as second,
        receiving(api, peer) as (_, _, (one,), watch),
        receiving(api, second) as (_, receiver, (foreign,), _),
    ):
        second.drop()
        again = await receiver.receive(timeout=10)
        with pytest.raises(StaleDelivery):
            async with one:
                await foreign.accept()
        await settled_as(peer, OutcomeState.RELEASED)
        async with again:  # accepted explicitly: another delivery is redelivered
            await again.accept()
            second.drop()
            with pytest.raises(StaleDelivery) as caught:
                await foreign.accept()
            assert not await again.__aexit__(StaleDelivery, caught.value, None)
        assert watch.of(DeliveryStale) == []


# -- settled already --------------------------------------------------------------------------


@pytest.mark.parametrize("settle", ["accept", "reject", "release", "modify"])
async def test_the_block_leaves_a_delivery_alone_that_was_settled_inside(api: API, settle: str) -> None:
    async with primary() as peer, receiving(api, peer, 2) as (_, _, (one, other), watch):
        async with one:
            await getattr(one, settle)()
        with pytest.raises(WorkError):
            await work(other.processing(on_error="modify"), getattr(other, settle))
        await peer.until(lambda: len(peer.outcomes) >= 2)
        assert len({each.state for each in peer.outcomes if each is not None}) == 1
        with pytest.raises(AlreadySettled):
            async with other if settle == "accept" else one:
                pytest.fail("it is settled")
        assert watch.of(DeliveryStale) == []


async def test_accepted_with_others_inside_the_block(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2) as (_, receiver, deliveries, _):
        async with deliveries[0]:
            given = [getattr(each, "inner", each) for each in deliveries]
            assert await receiver.accept_many(given) == []
        await settled_as(peer, OutcomeState.ACCEPTED, OutcomeState.ACCEPTED)


async def test_a_second_block_is_refused_before_it_begins(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2) as (_, _, (one, other), _):
        async with one:
            pass
        block = other.processing()
        with pytest.raises(WorkError):
            async with block:
                raise WorkError
        for again in (one, one.processing(), other, block):
            with pytest.raises(AlreadySettled):
                async with again:
                    pytest.fail("the work was done twice")
        await settled_as(peer, OutcomeState.ACCEPTED, OutcomeState.RELEASED)


async def test_the_inner_one_of_two_blocks_settles(api: API) -> None:
    async with primary() as peer, receiving(api, peer) as (_, _, (one,), _):

        async def inner() -> None:
            async with one:
                pass

        with pytest.raises(WorkError):
            await work(one.processing(on_error="reject"), inner)
        await settled_as(peer, OutcomeState.ACCEPTED)


# -- a connection that is lost ----------------------------------------------------------------


@pytest.mark.parametrize("begins", ["before", "after"])
@pytest.mark.parametrize("options", [{}, {"on_error": "reject"}])
async def test_a_stale_delivery_raises_nothing_and_an_event_says_so(
    api: API, begins: str, options: dict[str, str]
) -> None:
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), watch):
        if begins == "after":
            peer.drop()
            again = await receiver.receive(timeout=10)
        async with one.processing(**options) if options else one:
            if begins == "before":
                peer.drop()
                again = await receiver.receive(timeout=10)
        assert not one.settled
        event = await only_stale_event(watch, LOST)
        assert event.link == receiver._core.name
        async with again:
            assert again.body == 0
        await settled_as(peer, OutcomeState.ACCEPTED)


async def test_a_connection_that_is_down_when_the_block_ends(api: API) -> None:
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), watch):
        peer.refuses_opens = Condition("amqp:internal-error", "not now")
        async with one:
            peer.drop()
            await peer.until(lambda: peer.refused)
        await only_stale_event(watch, "the delivery's connection was lost")
        peer.refuses_opens = None
        assert (await receiver.receive(timeout=10)).body == 0


async def test_an_accept_that_is_lost_on_its_way_has_no_event() -> None:
    async with primary() as peer, receiving(AsyncAPI(), peer) as (_, receiver, (one,), watch):
        async with one:
            pass
        peer.drop()  # before the peer reads the outcome
        async with await receiver.receive(timeout=10) as again:
            assert again.body == 0
        await settled_as(peer, OutcomeState.ACCEPTED)
        assert watch.of(DeliveryStale) == []


async def test_a_connection_that_is_lost_while_another_thread_sends_the_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with primary() as peer, receiving(BlockingAPI(), peer) as (_, receiver, (one,), _):
        loop, thread = asyncio.get_running_loop(), one.inner._thread
        post = thread.post

        async def lose() -> None:
            peer.drop()
            await peer.until(lambda: len(peer.attaches) == 2)

        def post_late(*arguments: Any) -> None:
            asyncio.run_coroutine_threadsafe(lose(), loop).result(timeout=10)
            post(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(thread, "post", post_late)
            async with one:
                pass
        async with await receiver.receive(timeout=10) as again:
            assert again.body == 0
        await settled_as(peer, OutcomeState.ACCEPTED)


async def test_the_error_of_the_work_is_not_hidden_by_a_stale_delivery(api: API) -> None:
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), watch):

        async def lose() -> None:
            peer.drop()
            await receiver.receive(timeout=10)

        with pytest.raises(WorkError) as caught:
            await work(one.processing(on_error="reject"), lose)
        assert caught.value.__context__ is None
        await only_stale_event(watch, LOST)


@pytest.mark.parametrize("settle", ["accept", "reject", "release", "modify"])
async def test_settled_too_late_by_hand(api: API, settle: str) -> None:
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), watch):
        async with one:
            peer.drop()
            await receiver.receive(timeout=10)
            await getattr(one, settle)()
            pytest.fail("it is stale")
        await only_stale_event(watch, LOST)


@pytest.mark.parametrize("end", ["close", "detach"])
async def test_a_receiver_that_is_closed_in_the_block(api: API, end: str) -> None:
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), watch):
        async with one:
            await getattr(receiver, end)()
        await only_stale_event(watch, "the receiver for 'q' was closed")


async def test_a_receiver_that_the_peer_detaches_in_the_block(api: API) -> None:
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), watch):
        async with one:
            peer.detach(Condition("amqp:resource-deleted", "the queue is deleted"))
            with pytest.raises(LinkClosed):
                await receiver.receive(timeout=10)
        await only_stale_event(watch, "the queue is deleted")


@pytest.mark.parametrize("confirm", [False, True])
async def test_a_connection_that_is_closed_in_the_block(api: API, *, confirm: bool) -> None:
    """``Closed`` stays the last event."""
    async with primary() as peer, receiving(api, peer, 2, confirm=confirm) as (connection, _, both, watch):
        one, other = both

        async def close() -> None:
            async with other:
                await connection.close()

        with pytest.raises(WorkError):
            await work(one, close)
        await watch.until(Closed)
        assert watch.of(DeliveryStale) == []


async def test_a_connection_that_gives_up_in_the_block(api: API) -> None:
    async with primary() as peer, receiving(api, peer, deadline=0.2) as (_, _, (one,), watch):
        async with one:
            peer.refuses_opens = Condition("amqp:internal-error", "never")
            peer.drop()
            await watch.until(GaveUp)
        assert watch.of(DeliveryStale) == []


@pytest.mark.parametrize("error", [None, WorkError()])
async def test_a_factory_that_ends_just_when_the_block_does(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    async with primary() as peer, receiving(BlockingAPI(), peer) as (_, _, (one,), _):

        def ended(*_: object) -> None:
            raise ConnectionClosed("the factory is closed")

        with monkeypatch.context() as patch:
            patch.setattr(one.inner._thread, "post", ended)
            await one.__aenter__()
            assert not await one.__aexit__(type(error), error, None)


# -- confirmed accepts ------------------------------------------------------------------------


async def test_the_block_of_a_receiver_that_confirms_waits_for_the_confirmation(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2, confirm=True) as (_, _, deliveries, watch):
        for one in deliveries:
            await one.__aenter__()
            ending = asyncio.ensure_future(one.__aexit__(None, None, None))
            await peer.until(lambda: peer.unconfirmed)
            assert not ending.done()
            peer.confirm()
            assert not await ending
            peer.unconfirmed.clear()
        assert watch.of(DeliveryStale) == []


async def test_an_exception_waits_for_no_confirmation(api: API) -> None:
    async with primary() as peer, receiving(api, peer, confirm=True) as (_, _, (one,), _):
        with pytest.raises(WorkError):
            async with one:
                raise WorkError
        await settled_as(peer, OutcomeState.RELEASED)  # which the peer has not confirmed


async def test_a_confirmation_outlives_the_connection_that_it_was_asked_on(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 3, confirm=True) as (_, _, deliveries, watch):
        tasks = []
        for number, one in enumerate(deliveries, 1):
            await one.__aenter__()
            tasks.append(asyncio.ensure_future(one.__aexit__(None, None, None)))
            await peer.until(lambda number=number: len(peer.unconfirmed) == number)
        peer.resumes = {(0).to_bytes(8, "little"): OutcomeState.ACCEPTED.value}
        peer.drop()
        assert await asyncio.gather(*tasks) == [False, False, False]
        events = await watch.until(DeliveryStale, 2)
        assert all("does not have it as accepted" in each.reason for each in events)
        assert len(watch.of(DeliveryStale)) == 2


async def test_an_accept_that_the_primary_answers_with_something_else(api: API) -> None:
    async with primary() as peer, receiving(api, peer, confirm=True) as (_, _, (one,), watch):
        await one.__aenter__()
        ending = asyncio.ensure_future(one.__aexit__(None, None, None))
        await peer.until(lambda: peer.unconfirmed)
        peer.confirm(OutcomeState.RELEASED)
        assert not await ending
        await only_stale_event(watch, "settled it as released")


async def test_what_is_not_confirmed_in_time_is_asked_for_again_by_hand(api: API) -> None:
    async with primary() as peer, receiving(api, peer, confirm=True, call_timeout=0.02) as (_, _, both, _):
        (one,) = both
        with pytest.raises(ConfirmTimeout, match=r"within 0.02 s"):
            async with one:
                pass
        with pytest.raises(AlreadySettled):
            async with one:
                pytest.fail("the work was done twice")
        again = asyncio.ensure_future(one.accept(confirm=True, timeout=10))
        peer.confirm()
        await again
        await settled_as(peer, OutcomeState.ACCEPTED)


async def test_the_timeout_is_that_of_the_block(api: API) -> None:
    async with primary() as peer, receiving(api, peer, confirm=True) as (_, _, (one,), _):
        with pytest.raises(ConfirmTimeout, match=r"within 0.01 s"):
            async with one.processing(timeout=0.01):
                pass


async def test_a_wait_for_the_confirmation_that_is_cancelled() -> None:
    async with primary() as peer, receiving(AsyncAPI(), peer, confirm=True) as (_, _, (one,), watch):
        await one.__aenter__()
        ending = asyncio.ensure_future(one.__aexit__(None, None, None))
        await peer.until(lambda: peer.unconfirmed)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        again = asyncio.ensure_future(one.accept(confirm=True))
        peer.confirm()
        await again
        assert watch.of(DeliveryStale) == []


@pytest.mark.parametrize("end", ["receiver", "connection"])
async def test_the_end_of_a_receiver_leaves_it_unknown_whether_the_accept_took_effect(
    api: API, end: str
) -> None:
    async with primary() as peer, receiving(api, peer, confirm=True) as (connection, receiver, both, watch):
        (one,) = both
        await one.__aenter__()
        ending = asyncio.ensure_future(one.__aexit__(None, None, None))
        await peer.until(lambda: peer.unconfirmed)
        await (receiver if end == "receiver" else connection).close()
        with pytest.raises(LinkClosed if end == "receiver" else ConnectionClosed):
            await ending
        assert watch.of(DeliveryStale) == []


async def test_stale_before_it_was_accepted_on_a_receiver_that_confirms(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2, confirm=True) as (_, receiver, both, watch):
        one, other = both
        async with one:
            peer.drop()
            await receiver.receive_many(2, timeout=10, min_count=2)
        async with other:
            await other.accept(confirm=True)
            pytest.fail("it is stale")
        events = await watch.until(DeliveryStale, 2)
        assert [each.reason for each in events] == [LOST, LOST]


async def test_a_confirmation_asked_for_by_hand_in_the_block(api: API) -> None:
    async with primary() as peer, receiving(api, peer, 2, confirm=True) as (_, _, (one, other), watch):
        async with one:
            confirmed = asyncio.ensure_future(one.accept(confirm=True))
            await peer.until(lambda: peer.unconfirmed)
            peer.confirm()
            await confirmed
        peer.unconfirmed.clear()
        async with other:
            confirmed = asyncio.ensure_future(other.accept(confirm=True))
            await peer.until(lambda: peer.unconfirmed)
            peer.drop()
            await confirmed
            pytest.fail("it is not confirmed")
        await only_stale_event(watch, "may come again")


# -- around it --------------------------------------------------------------------------------


async def test_another_event_loop_is_refused_before_the_block_begins() -> None:
    async with primary() as peer, receiving(AsyncAPI(), peer) as (_, _, (one,), _):

        async def elsewhere() -> None:
            async with one:
                pytest.fail("the work was done in vain")

        with pytest.raises(WrongThread):
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert not one.settled


def test_a_fork_is_refused_before_the_block_begins() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        receiver = connection.create_receiver("q")
        peer.put("q", 1)
        delivery = receiver.receive(timeout=10)

        def child() -> int:
            try:
                with delivery:
                    return 1
            except WrongThread:
                return 7

        pid = os.fork()
        if not pid:
            os._exit(child() or 2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        with delivery:
            pass
        assert delivery.settled


def test_a_callback_on_the_thread_of_the_loop_may_have_a_block() -> None:
    with in_thread(primary()) as peer, haclient.connect(url(peer)) as connection:
        receiver = connection.create_receiver("q")
        peer.put("q", 1)
        delivery = receiver.receive(timeout=10)
        settled = threading.Event()

        def settle(_: object) -> None:
            with delivery:
                pass
            settled.set()

        connection.create_sender("results").submit("done").add_done_callback(settle)
        assert settled.wait(10)
        connection.close()
        assert [each and each.state for each in peer.outcomes] == [OutcomeState.ACCEPTED]


def test_what_a_consumer_that_dies_had_in_hand_is_released_before_it_closes() -> None:
    with in_thread(primary()) as peer:

        def consume() -> None:
            with haclient.connect(url(peer)) as connection, connection.create_receiver("q") as receiver:
                for delivery in receiver:
                    with delivery:
                        raise WorkError

        peer.put("q", 1)
        with pytest.raises(WorkError):
            consume()
        assert [each and each.state for each in peer.outcomes] == [OutcomeState.RELEASED]


async def test_the_same_for_an_asyncio_consumer() -> None:
    async with primary() as peer:

        async def consume() -> None:
            async with aio.connect(url(peer)) as connection:
                async for delivery in await connection.create_receiver("q"):
                    async with delivery:
                        raise WorkError

        peer.put("q", 1)
        with pytest.raises(WorkError):
            await consume()
        await settled_as(peer, OutcomeState.RELEASED)


async def test_the_event_in_the_log_and_in_words(api: API, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "haclient")
    async with primary() as peer, receiving(api, peer) as (_, receiver, (one,), watch):
        async with one:
            peer.drop()
            await receiver.receive(timeout=10)
        event = await only_stale_event(watch, LOST)
    assert name_of(event) == "delivery-stale"
    assert describe(event) == f"{event.link} to q: {LOST}"
    assert f"a delivery from 'q' was not settled: {LOST}" in caplog.text
