"""Ownership of messages, of proton's pointers and of waiters: no code acts on an object it no longer owns."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import weakref
from collections.abc import Awaitable, Callable

import proton
import pytest
from cproton_ffi import lib
from proton import Message

from haclient import aio, blocking
from haclient.api.deadlines import wait_opened
from haclient.core.message_encoder import OutgoingMessage
from haclient.engine.links import ReceiverLink
from haclient.errors import HaclientError, LinkRefused, ReceiveTimeout, SendTimeout, StaleDelivery
from haclient.outcome import ACCEPTED
from tests.peers import Primary, primary, url
from tests.peers.apis import API, connected
from tests.peers.cutting import cut


def encoded(body: object) -> bytes:
    return bytes(Message(body=body).encode())


async def test_withdrawing_a_settled_message_leaves_the_others_alone() -> None:
    """Proton reuses the memory of a settled delivery for the next message of the link."""
    loop = asyncio.get_running_loop()
    async with primary() as peer, aio.connect(url(peer)) as connection:
        core = (await connection.create_sender("q"))._core
        settled = [core.submit(encoded("first"), loop.create_future()) for _ in range(10)]
        before = {entry.delivery for entry in settled}
        await asyncio.gather(*(entry.waiter for entry in settled))
        others = [core.submit(encoded("other"), loop.create_future()) for _ in range(20)]
        assert before & {entry.delivery for entry in others}, "no pointer is used again"
        for entry in settled:
            core.withdraw(entry)
        outcomes = await asyncio.wait_for(asyncio.gather(*(entry.waiter for entry in others)), 5)
        assert all(outcome.accepted for outcome in outcomes)
        assert all(entry.delivery is None for entry in (*settled, *others))


def commit(peer: Primary) -> None:
    """Commit as Broker-J 10.1.0 does: it ends the connection if the sender has settled the delivery
    meanwhile.
    """
    for engine, links in tuple(peer.engines.items()):
        for link in links:
            assert isinstance(link, ReceiverLink)
            for delivery in tuple(link.unsettled):
                if lib.pn_delivery_settled(delivery):
                    engine.abort()
                    return
                link.settle(delivery, ACCEPTED)


async def test_a_send_that_timed_out_ends_no_connection_of_a_broker_that_commits_it_later(api: API) -> None:
    """A lost connection would mean that all messages on the wire are sent again, and stored twice there."""
    async with primary(outcome=None) as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        with pytest.raises(SendTimeout):
            await sender.send(Message(body="late"), timeout=0.05)
        others = [asyncio.ensure_future(sender.send(Message(body=number))) for number in range(3)]
        await peer.until(lambda: len(peer.received) == 4)
        engines = set(peer.engines)
        commit(peer)
        peer.outcome = ACCEPTED
        for other in others:
            assert (await asyncio.wait_for(other, 20)).accepted
        assert set(peer.engines) == engines
        assert peer.copies == 0


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
async def test_a_message_sent_between_the_end_of_an_engine_and_its_notice_waits_for_the_next(
    delivery: str,
) -> None:
    """A message that was never on a wire is sent even at-most-once, and its outcome is known."""
    async with primary() as peer, aio.connect(url(peer), delivery=delivery, backoff_base=0.001) as connection:
        sender = await connection.create_sender("q")
        await sender.send(Message(body="before"))
        cut(connection)
        assert sender._core._credit > 0, "the sender has not noticed it"
        future = await sender.submit(Message(body="between"))
        assert sender._core.to_replay == 0
        assert (await asyncio.wait_for(future, 5)).accepted
        assert peer.bodies == ["before", "between"]
        assert peer.copies == 0


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
async def test_nothing_is_written_to_a_session_that_the_peer_has_ended(delivery: str) -> None:
    """The message and the End arrive together; the application acts before the connection ends."""
    async with primary() as peer, aio.connect(url(peer), delivery=delivery, backoff_base=0.001) as connection:
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("news")
        await peer.until(lambda: peer.credit)
        peer.put("news", "one")
        peer.end_sessions()
        received = await receiver.receive()
        assert sender._core._credit > 0, "the sender has not noticed it"
        future = await sender.submit(Message(body="afterwards"))
        assert sender._core.to_replay == 0
        with pytest.raises(StaleDelivery):
            await received.accept()
        assert (await asyncio.wait_for(future, 5)).accepted
        await (await asyncio.wait_for(receiver.receive(), 5)).accept()
        await peer.until(lambda: peer.outcomes == [ACCEPTED])
        assert peer.bodies == ["afterwards"]
        assert peer.copies == 0
        assert len(peer.accepted) == 2


@pytest.mark.parametrize("how", ["accept", "reject", "release", "modify"])
async def test_settling_between_the_end_of_an_engine_and_its_notice_is_too_late(how: str) -> None:
    async with primary() as peer, aio.connect(url(peer), backoff_base=0.001) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", "one")
        delivery = await receiver.receive()
        cut(connection)
        with pytest.raises(StaleDelivery):
            await getattr(delivery, how)()
        assert not delivery.settled
        again = await asyncio.wait_for(receiver.receive(), 5)
        await again.accept()
        await peer.until(lambda: peer.outcomes == [ACCEPTED])


async def test_messages_that_are_withdrawn_before_they_are_sent_take_no_memory(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        waiting = await sender.submit(Message(body="waits"))
        ledger = sender._core.ledger
        withdrawn = []
        for _ in range(100):
            with pytest.raises(SendTimeout):
                await sender.send(Message(body=b"x" * 1000), timeout=0.001)
            withdrawn.append(len(ledger.unsent))
        assert max(withdrawn) < 50
        assert sum(len(entry.data) for entry in ledger.unsent) < 1000
        peer.grant(10)
        assert (await waiting).accepted
        assert peer.bodies == ["waits"]
        assert not ledger.unsent
        await connection.close()


async def test_an_entry_that_leaves_the_ledger_drops_its_bytes() -> None:
    loop = asyncio.get_running_loop()
    async with primary(grants=2) as peer, aio.connect(url(peer), delivery="at-most-once") as connection:
        core = (await connection.create_sender("q"))._core
        settled = core.submit(encoded("settled"), loop.create_future())
        await settled.waiter
        peer.outcome = None
        lost = core.submit(encoded("lost"), loop.create_future())
        await peer.until(lambda: peer.bodies == ["settled", "lost"])
        peer.grants = 0
        peer.drop()
        await asyncio.wait([lost.waiter])
        closed = core.submit(encoded("closed"), loop.create_future())
        core.close()
        for entry in (settled, lost, closed):
            assert (entry.data, entry.delivery, entry.waiter.done()) == (b"", None, True)
        assert closed.waiter.exception() is not None
        assert lost.waiter.exception() is not None


@pytest.mark.parametrize("how", ["connection", "link"])
async def test_a_closed_link_that_is_kept_keeps_no_ended_engine(how: str) -> None:
    async with primary() as peer:
        connection = await aio.connect(url(peer))
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        engine = weakref.ref(connection._core._engine)  # type: ignore[arg-type]
        if how == "link":
            await sender.close()
            await receiver.close()
        await connection.close()
        del connection
        await peer.until(lambda: not peer.engines)
        async with asyncio.timeout(10):
            while engine() is not None:
                await asyncio.sleep(0.01)  # the transport ends in a later step of the loop
                gc.collect()
        assert (sender.address, receiver.address) == ("q", "q")


async def test_calls_that_time_out_leave_no_waiter(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer, window=1))
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        await sender.submit(Message(body="fills the window"))
        for _ in range(5):
            with pytest.raises(ReceiveTimeout):
                await receiver.receive(timeout=0.001)
            with pytest.raises(SendTimeout):
                await sender.submit(Message(body="no room"), timeout=0.001)
            with pytest.raises(SendTimeout):
                await sender.flush(timeout=0.001)
        assert not receiver._core._waiting
        assert not sender._core._waiting_for_window
        assert not sender._core._flushing
        await connection.close()


@pytest.mark.parametrize("how", ["cancelled", "not encodable"])
async def test_a_place_in_the_window_that_a_call_does_not_use_is_the_next_ones(how: str) -> None:
    """Two calls wait; the first is woken, and is cancelled before the ledger has its message, or cannot
    encode it.
    """
    async with primary(grants=0) as peer:
        connection = await asyncio.to_thread(blocking.connect, url(peer, window=1))

        def on_encode(outgoing: OutgoingMessage) -> None:
            if outgoing.message.body == "first" and how == "cancelled":
                sender._thread.post(time.sleep, 0.3)  # delays the next post, which is cancelled meanwhile
            elif outgoing.message.body == "first":
                raise ValueError(how)

        def call_and_cancel() -> None:
            with contextlib.suppress(ValueError):
                sender.submit(Message(body="first")).cancel()

        sender = await asyncio.to_thread(connection.create_sender, "q", on_encode=on_encode)
        full = sender.submit(Message(body="fills the window"))
        waiting = []
        for number, call in enumerate((call_and_cancel, lambda: sender.submit(Message(body="second")))):
            waiting.append(asyncio.ensure_future(asyncio.to_thread(call)))
            while len(sender._core._waiting_for_window) <= number:  # noqa: ASYNC110 - they say nothing
                await asyncio.sleep(0.001)
        full.cancel()
        await asyncio.wait_for(asyncio.gather(*waiting), 5)
        peer.grant(1)
        await peer.until(lambda: peer.bodies == ["second"])
        await asyncio.to_thread(connection.close)


async def test_cancelled_futures_leave_the_window_at_once(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer, window=3))
        sender = await connection.create_sender("q")
        futures = [await sender.submit(Message(body=number)) for number in range(3)]
        waiting = asyncio.ensure_future(sender.submit(Message(body="waits for the window")))
        futures[1].cancel()
        future = await asyncio.wait_for(waiting, 5)
        peer.grant(10)
        await asyncio.wait_for(asyncio.gather(futures[0], futures[2], future), 5)
        assert peer.bodies == [0, 2, "waits for the window"]
        await connection.close()


async def test_a_cancelled_future_of_a_message_on_the_wire_keeps_its_place_until_it_is_settled(
    api: API,
) -> None:
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer, backoff_base=0.001))
        sender = await connection.create_sender("q")
        future = await sender.submit(Message(body="on the wire"))
        await peer.until(lambda: peer.received)
        future.cancel()
        with pytest.raises(SendTimeout):
            await sender.flush(timeout=0.01)
        assert sender.unsettled == 1
        peer.outcome = ACCEPTED
        peer.drop()
        await sender.flush(timeout=5)
        assert (peer.bodies, peer.copies) == (["on the wire"], 0)
        await connection.close()


async def test_an_iterator_over_events_that_is_dropped_collects_none(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer, backoff_base=0.001))
        await connection.create_sender("q")
        kept, dropped = connection.events(), connection.events()
        await connection.create_sender("q")  # a round trip: the blocking API has subscribed them
        inner = weakref.ref(getattr(dropped, "_events", dropped))
        del dropped
        gc.collect()
        assert inner() is None
        peer.drop()
        async with asyncio.timeout(5):
            assert type(await anext(kept)).__name__ == "Disconnected"
        await connection.close()
        async with asyncio.timeout(5):
            assert type([event async for event in kept][-1]).__name__ == "Closed"


async def test_every_call_on_a_closed_link_raises_an_error_of_its_own(api: API) -> None:
    """A shared instance would collect the frames of each ``raise``, and mix up the tracebacks of threads."""
    async with primary() as peer:
        connection = await api.connect(url(peer))
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        await sender.close()
        await receiver.close()
        errors = [await error_of(lambda: sender.send(Message())) for _ in range(3)]
        errors += [await error_of(receiver.receive) for _ in range(3)]
        await connection.close()
        errors += [await error_of(lambda: connection.create_sender("q")) for _ in range(3)]
        assert len({id(error) for error in errors}) == len(errors)
        assert [type(error).__name__ for error in errors] == ["LinkClosed"] * 6 + ["ConnectionClosed"] * 3
        for error in errors[:6]:
            assert error.__cause__ is not None
            assert (type(error.__cause__), str(error.__cause__)) == (type(error), str(error))
        firsts = (sender._core.error, receiver._core.error)
        assert all(first.__traceback__ is None for first in firsts)


async def test_all_that_wait_for_a_link_to_open_get_an_error_of_their_own() -> None:
    refusal = proton.Condition("amqp:not-found", "no such node")
    async with primary(refuses={"missing": refusal}) as peer, aio.connect(url(peer)) as connection:
        core = connection._core.links.create_sender("missing")
        calls = (error_of(lambda: wait_opened(connection._core, core, 10)) for _ in range(2))
        first, second = await asyncio.gather(*calls)
        assert first is not second
        assert isinstance(first, LinkRefused)
        assert isinstance(second, LinkRefused)
        assert first.condition == second.condition == "amqp:not-found"
        assert first.__cause__ is second.__cause__ is core.error


async def error_of(call: Callable[[], Awaitable[object]]) -> HaclientError:
    with pytest.raises(HaclientError) as caught:
        await call()
    return caught.value
