"""A planned reconnect: calls that are made while it waits neither lose nor add credit or messages."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Condition

from haclient import aio
from haclient.core.attempt import ConnectParams
from haclient.events import Disconnected, Event, LossKind, Reconnected
from haclient.testing.peers.listening import url
from tests.peers.primary import Primary, primary

# A call on a receiver with credit=0: so much credit, a drain, or a receive that is cancelled.
CALLS = st.lists(st.integers(1, 5) | st.sampled_from(["drain", "cancel"]), max_size=4)


def renewal(connection: Any, seconds: float = 30.0) -> asyncio.Task[str]:
    """Log in again, as for a new token, where the broker has no ``$cbs``.  The end of the session ends it."""
    core = connection._core
    params = ConnectParams(replace(core._engine.settings, password="a new token"))
    core._renewal._task = asyncio.create_task(core._renew(params, seconds))
    return core._renewal._task


def connect(peer: Primary, events: list[Event] | None = None, **options: object) -> Any:
    return aio.connect(url(peer, **options), on_event=([] if events is None else events).append)


async def held(receiver: Any) -> None:
    """Wait until the receiver is held."""
    async with asyncio.timeout(20):
        while not receiver._core._is_held:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def apply(receiver: Any, calls: list[int | str], credit: int) -> int:
    """Make the calls; return the credit after them."""
    for call in calls:
        if call == "drain":
            await receiver.drain()
            credit = 0
        elif call == "cancel":
            receiving = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.wait([receiving])
        else:
            await receiver.add_credit(call)
            credit += int(call)
    return credit


@settings(max_examples=60, deadline=None)
@given(CALLS, CALLS, CALLS)
def test_credit_of_the_application_is_neither_lost_nor_doubled(
    before: list[int | str], during: list[int | str], after: list[int | str]
) -> None:
    async def story() -> tuple[int, int]:
        async with primary() as peer, connect(peer) as connection:
            receiver = await connection.create_receiver("q", credit=0)
            await receiver.add_credit(1)
            peer.put("q", "in hand")
            delivery = await receiver.receive(timeout=10)
            credit = await apply(receiver, before, 0)
            renewing = renewal(connection)
            await held(receiver)
            credit = await apply(receiver, during, credit)
            await delivery.accept()
            await asyncio.wait([renewing])
            credit = await apply(receiver, after, credit)
            if credit:
                await peer.until(lambda: peer.credit and peer.engines)
            peer.put("q", *range(80))
            got = 0
            while got < credit:
                await (await receiver.receive(timeout=10)).accept()
                got += 1
            await peer.until(lambda: len(peer.outcomes) == 1 + got)
            return credit, 80 - len(peer.queues["q"])

    credit, delivered = asyncio.run(story())
    assert delivered == credit


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.integers(1, 3))
def test_a_message_whose_call_is_cancelled_comes_again_once(turns: int, messages: int) -> None:
    """The call may have taken it, given it back, or neither."""

    async def story() -> list[Any]:
        async with primary() as peer, connect(peer) as connection:
            receiver = await connection.create_receiver("q")
            calls = [asyncio.create_task(receiver.receive()) for _ in range(messages)]
            await peer.until(lambda: peer.credit)
            peer.put("q", *range(messages))
            async with asyncio.timeout(20):
                while not receiver._core.inbox:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            renewing = renewal(connection)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            taken = [call.result() for call in calls if not call.cancelled()]
            found = [delivery.message.body for delivery in taken]
            for delivery in taken:
                await delivery.accept()
            await asyncio.wait([renewing])
            while len(found) < messages:
                delivery = await receiver.receive(timeout=10)
                found.append(delivery.message.body)
                await delivery.accept()
            await peer.until(lambda: not peer.unsettled)
            assert not peer.queues["q"]
            return found

    assert sorted(asyncio.run(story())) == list(range(messages))


async def test_a_receiver_that_grants_its_credit_has_its_window_again() -> None:
    async with primary() as peer, connect(peer) as connection:
        receiver, sender = (
            await connection.create_receiver("q", credit=7),
            await connection.create_sender("s"),
        )
        for _ in range(3):
            peer.put("q", "in hand")
            delivery = await receiver.receive(timeout=10)
            renewing = renewal(connection)
            await held(receiver)
            await delivery.accept()
            await asyncio.wait([renewing])
        peer.put("q", *range(20))
        await peer.until(lambda: peer.unsettled == 7)
        await sender.send("a round trip", timeout=10)
        assert peer.unsettled == 7


async def test_a_message_that_was_sent_settled_waits_for_its_call() -> None:
    """The broker would not send it again, so the session does not end before."""
    events = list[Event]()
    async with primary(sends_settled=True) as peer, connect(peer, events) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", *range(5))
        async with asyncio.timeout(20):
            while len(receiver._core.inbox) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0)
        renewing = renewal(connection)
        await held(receiver)
        for number in range(5):
            assert not [event for event in events if isinstance(event, Disconnected)]
            assert (await receiver.receive(timeout=10)).message.body == number
        await asyncio.wait([renewing])
    assert [event.kind for event in events if isinstance(event, Disconnected)] == [LossKind.RENEWAL]


@pytest.mark.parametrize("unsettled", ["sent", "received"])
async def test_one_unsettled_message_holds_the_others_for_the_given_time_alone(
    unsettled: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the connection logs in, and the message comes again."""
    events = list[Event]()
    async with primary(outcome=None) as peer, connect(peer, events) as connection:
        sender, receiver = await connection.create_sender("s"), await connection.create_receiver("r")
        if unsettled == "sent":
            sending = asyncio.create_task(sender.send("one", timeout=30))
            await peer.until(lambda: peer.received)
        else:
            peer.put("r", "one")
            kept = await receiver.receive(timeout=10)
            assert kept.message.body == "one"
        await asyncio.wait([renewal(connection, 0.2)])
        assert "deliveries are unsettled after 0 s" in caplog.text
        if unsettled == "sent":
            await peer.until(lambda: peer.copies)
            sending.cancel()
        else:
            assert (await receiver.receive(timeout=10)).message.body == "one"
    assert [event.kind for event in events if isinstance(event, Disconnected)] == [LossKind.RENEWAL]
    assert [event.planned for event in events if isinstance(event, Reconnected)] == [True]


async def test_a_primary_that_is_lost_while_the_connection_is_held_is_an_ordinary_loss() -> None:
    events = list[Event]()
    async with primary() as peer, connect(peer, events, backoff_base=0.01) as connection:
        receiver = await connection.create_receiver("r")
        peer.put("r", "one")
        assert (await receiver.receive(timeout=10)).message.body == "one"
        renewing = renewal(connection)
        await held(receiver)
        peer.drop()
        await asyncio.wait([renewing])
        assert (await receiver.receive(timeout=10)).message.body == "one"
    assert LossKind.RENEWAL not in [event.kind for event in events if isinstance(event, Disconnected)]


async def test_a_close_by_the_peer_with_a_reason_is_no_renewal() -> None:
    """It answers the client's Close with a condition of its own, such as a redirect."""
    events = list[Event]()
    condition = Condition("amqp:connection:forced", "the member shuts down")
    async with primary() as peer, connect(peer, events, backoff_base=0.01) as connection:
        receiver = await connection.create_receiver("r")
        peer.put("r", "one")
        delivery = await receiver.receive(timeout=10)
        renewing = renewal(connection)
        await held(receiver)
        await delivery.accept()
        peer.close(condition)
        await asyncio.wait([renewing])
        peer.put("r", "two")
        assert (await receiver.receive(timeout=10)).message.body == "two"
    lost = [event for event in events if isinstance(event, Disconnected)]
    assert [event.condition for event in lost] == ["amqp:connection:forced"]


async def test_a_connection_that_is_closed_while_it_is_held_ends_at_once() -> None:
    async with primary() as peer:
        connection = await connect(peer)
        receiver = await connection.create_receiver("r")
        peer.put("r", "one")
        delivery = await receiver.receive(timeout=10)
        renewing, began = renewal(connection), time.monotonic()
        await held(receiver)
        await connection.close()
        assert time.monotonic() - began < 20  # not the 30 s of the hold
        assert delivery.message.body == "one"
        await asyncio.wait([renewing])
