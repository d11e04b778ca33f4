"""The state that senders and receivers keep over a loss, and the state that they must drop."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import proton
import pytest

from haclient import Message, State
from haclient.core.quirks import workarounds
from haclient.errors import (
    AlreadySettled,
    DeliveryUnknown,
    LinkClosed,
    LinkRefused,
    MessageNotAccepted,
    StaleDelivery,
)
from haclient.events import BackingOff, Disconnected, Reconnected
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from haclient.testing.proxy import proxy
from tests.peers import BEHAVIOURS, Peer, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

FOUR_MB = 4 * 1024 * 1024
FAST = {"backoff_base": 0.001, "backoff_max": 0.01}


# -- senders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut_at", [10_000, 2_000_000, FOUR_MB - 1000])
async def test_a_large_message_that_is_cut_in_mid_transfer_arrives_whole_and_once(
    api: API, cut_at: int
) -> None:
    body = os.urandom(FOUR_MB)
    async with primary() as peer, proxy(peer) as way:
        connection = await api.connect(url(way, **FAST))
        sender = await connection.create_sender("q")
        way.cut_after(cut_at)
        assert (await sender.send(Message(body=body), timeout=20)).accepted
        assert way.made == 1
        assert peer.bodies == [body]
        assert peer.copies == 0
        await connection.close()


async def test_pipelined_messages_arrive_once_and_in_order_over_many_cuts(api: API) -> None:
    async with primary() as peer, proxy(peer, cuts=[20_000] * 5) as way:
        connection = await api.connect(url(way, **FAST))
        sender = await connection.create_sender("q")
        futures = [await sender.submit(Message(body=[number, b"x" * 200])) for number in range(1000)]
        outcomes = await asyncio.wait_for(asyncio.gather(*futures), 20)
        assert all(outcome.accepted for outcome in outcomes)
        assert [number for number, _ in peer.bodies] == list(range(1000))
        assert way.made == 5
        await connection.close()


async def test_a_message_settled_by_nobody_is_sent_again_with_the_same_id(api: API) -> None:
    watch = Watch()
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        sending = asyncio.ensure_future(sender.send(Message(body="unsettled")))
        await peer.until(lambda: peer.received)
        peer.outcome = ACCEPTED
        peer.drop()
        assert (await asyncio.wait_for(sending, 10)).accepted
        assert peer.bodies == ["unsettled"]
        assert peer.copies == 1
        (lost,) = await watch.until(Disconnected)
        (reconnected,) = await watch.until(Reconnected)
        assert (lost.unsettled, reconnected.replayed) == (1, 1)
        await connection.close()


async def test_at_most_once_gives_up_what_was_on_the_wire_and_sends_the_rest(api: API) -> None:
    async with primary(outcome=None, grants=2) as peer:
        connection = await api.connect(url(peer, delivery="at-most-once", **FAST))
        sender = await connection.create_sender("q")
        futures = [await sender.submit(Message(body=number)) for number in range(4)]
        await peer.until(lambda: len(peer.received) == 2)
        peer.outcome = ACCEPTED
        peer.drop()
        for future in futures[:2]:
            with pytest.raises(DeliveryUnknown) as caught:
                await asyncio.wait_for(future, 10)
            assert caught.value.delivered is None
            assert not caught.value.safe_to_retry
        assert all(outcome.accepted for outcome in await asyncio.wait_for(asyncio.gather(*futures[2:]), 10))
        assert peer.bodies == [0, 1, 2, 3]
        assert peer.copies == 0
        await connection.close()


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(OutcomeState.REJECTED, "app:bad", "not a number"),
        RELEASED,
        Outcome(OutcomeState.MODIFIED, delivery_failed=True),
    ],
    ids=lambda outcome: outcome.state.name.lower(),
)
async def test_an_outcome_other_than_accepted_is_an_error_that_carries_it(api: API, outcome: Outcome) -> None:
    async with primary(outcome=outcome) as peer:
        connection = await api.connect(url(peer))
        sender = await connection.create_sender("q")
        with pytest.raises(MessageNotAccepted) as caught:
            await sender.send(Message())
        assert caught.value.outcome == outcome
        assert outcome.state.name.lower() in str(caught.value)
        await connection.close()


# -- receivers --------------------------------------------------------------------------------


async def test_a_large_message_that_is_cut_in_transit_arrives_whole_and_once(api: API) -> None:
    body = os.urandom(FOUR_MB)
    async with primary() as peer, proxy(peer) as way:
        connection = await api.connect(url(way, **FAST))
        receiver = await connection.create_receiver("q")
        way.cut_after(FOUR_MB // 2)
        peer.put("q", body, "after")
        for expected in (body, "after"):
            delivery = await receiver.receive(timeout=20)
            assert delivery.message.body == expected
            await delivery.accept()
        assert way.made == 1
        await peer.until(lambda: peer.outcomes == [ACCEPTED, ACCEPTED])
        await connection.close()


@pytest.mark.parametrize("how", ["accept", "reject", "release", "modify"])
async def test_settling_a_stale_delivery_raises_and_sends_nothing(api: API, how: str) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver = await connection.create_receiver("q", credit=1)
        peer.put("q", "one")
        stale = await receiver.receive(timeout=10)
        peer.drop()
        with pytest.raises(StaleDelivery):
            await settled_after(watch, stale, how)
        again = await receiver.receive(timeout=10)
        assert again.message.body == stale.message.body == "one"
        with pytest.raises(StaleDelivery):
            await stale.accept()
        await again.accept()
        with pytest.raises(AlreadySettled):
            await again.accept()
        # The connection carries both in order: no message came before this one.
        await peer.until(lambda: peer.outcomes)
        assert peer.outcomes == [ACCEPTED]
        await connection.close()


async def settled_after(watch: Watch, delivery: Any, how: str) -> None:
    await watch.until(Disconnected)
    await getattr(delivery, how)()


async def test_prefetched_messages_are_delivered_again_and_only_once(api: API) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver = await connection.create_receiver("q", credit=5)
        peer.put("q", *range(10))
        first = await receiver.receive(timeout=10)
        assert first.message.body == 0
        await first.accept()
        await peer.until(lambda: peer.outcomes)
        peer.drop()
        await watch.until(Reconnected)
        bodies = []
        for _ in range(9):
            delivery = await receiver.receive(timeout=10)
            bodies.append(delivery.message.body)
            await delivery.accept()
        assert bodies == list(range(1, 10))
        await peer.until(lambda: len(peer.outcomes) == 10)
        assert not peer.queues["q"]
        await connection.close()


@pytest.mark.parametrize("granted", [1, 10])
async def test_rabbitmq_gets_the_credit_again_and_again(
    api: API, granted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ forgets credit when a queue moves to another node; the Flow repeats it, and adds none."""
    monkeypatch.setattr(workarounds, "_INTERVAL", 0.01)
    async with primary(properties={"product": "RabbitMQ"}) as peer:
        connection = await api.connect(url(peer, **FAST))
        receiver = await connection.create_receiver("q", credit=granted)
        await peer.until(lambda: peer.credit.count(granted) >= 3)
        assert max(peer.credit) == granted
        peer.put("q", *range(20))
        for number in range(20):
            delivery = await receiver.receive(timeout=10)
            assert delivery.message.body == number
            await delivery.accept()
        peer.credit.clear()
        await peer.until(lambda: peer.credit.count(granted) >= 3)
        assert max(peer.credit) == granted
        await connection.close()


async def test_other_brokers_get_the_credit_once(api: API, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workarounds, "_INTERVAL", 0.0)
    async with primary(properties={"product": "another"}) as peer:
        connection = await api.connect(url(peer, **FAST))
        receiver = await connection.create_receiver("q", credit=10)
        peer.put("q", "one")
        assert (await receiver.receive(timeout=10)).message.body == "one"
        assert peer.credit.count(10) == 1
        await connection.close()


async def test_credit_after_ten_reconnects_is_what_was_granted(api: API) -> None:
    watch = Watch()
    granted = 7
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver = await connection.create_receiver("q", credit=granted)
        await peer.until(lambda: peer.credit == [granted])
        for number in range(10):
            # Some are received and some wait in the inbox, so that credit was used and given again.
            peer.put("q", *range(5))
            for _ in range(3 + number % 3):
                await (await receiver.receive(timeout=10)).accept()
            peer.credit.clear()
            peer.drop()
            await watch.until(Reconnected, count=number + 1)
            await peer.until(lambda: peer.credit)
            assert peer.credit[0] == granted
            assert max(peer.credit) == granted
        peer.put("q", *range(100))
        await peer.until(lambda: peer.unsettled == granted)
        sender = await connection.create_sender("another")
        await sender.send(Message())  # a round trip, in which any additional credit would be used
        assert peer.unsettled == granted
        await connection.close()


# -- links that a peer ends -------------------------------------------------------------------


async def test_a_refused_link_says_why_and_the_connection_goes_on(api: API) -> None:
    refusal = proton.Condition("amqp:not-found", "no node 'nowhere'")
    async with primary(refuses={"nowhere": refusal}) as peer:
        connection = await api.connect(url(peer))
        for create in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkRefused, match="no node 'nowhere'") as caught:
                await create("nowhere")
            assert caught.value.condition == "amqp:not-found"
        assert connection.state is State.CONNECTED
        sender = await connection.create_sender("q")
        assert (await sender.send(Message())).accepted
        await connection.close()


async def test_a_link_that_the_new_primary_refuses_fails_alone(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST))
        gone, kept = await connection.create_sender("gone"), await connection.create_sender("kept")
        receiver = await connection.create_receiver("gone")
        receiving = asyncio.ensure_future(receiver.receive())
        peer.refuses["gone"] = proton.Condition("amqp:resource-deleted", "the queue was deleted")
        peer.drop()
        assert (await kept.send(Message(), timeout=10)).accepted
        for waiting in (receiving, gone.send(Message())):
            with pytest.raises(LinkClosed, match="the queue was deleted") as caught:
                await asyncio.wait_for(waiting, 10)
            assert caught.value.condition == "amqp:resource-deleted"
        assert connection.state is State.CONNECTED
        await connection.close()


async def test_a_detached_link_ends_every_call_that_waits_on_it(api: API) -> None:
    async with primary(grants=0) as peer:
        connection = await api.connect(url(peer))
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        unsent = await sender.submit(Message())
        receiving = asyncio.ensure_future(receiver.receive())
        peer.detach(proton.Condition("amqp:resource-deleted", "the queue was deleted"))
        for waiting in (unsent, receiving):
            with pytest.raises(LinkClosed, match="was deleted") as caught:
                await asyncio.wait_for(waiting, 10)
            assert caught.value.delivered is False
        await connection.create_sender("q")
        await connection.close()


# -- connections ------------------------------------------------------------------------------


async def test_a_pushed_member_is_where_the_client_goes_when_the_primary_dies(api: API) -> None:
    watch = Watch()
    async with primary() as successor:
        pushed = [{proton.symbol("network-host"): successor.host, proton.symbol("port"): successor.port}]
        facts = {"failover-server-list": pushed, "haclient:generation": 3, "haclient:cluster": "c"}
        successor.properties = {"haclient:generation": 4, "haclient:cluster": "c"}
        async with primary(properties=facts) as first:
            connection = await api.connect(url(first, **FAST), on_event=watch)
            assert connection.generation == 3
            assert connection.endpoint.port == first.port
        await watch.until(Reconnected)
        assert connection.generation == 4
        assert (connection.endpoint.host, connection.endpoint.port) == (successor.host, successor.port)
        await connection.close()


async def test_a_stale_primary_is_not_used_while_a_newer_one_is_known(api: API) -> None:
    watch = Watch()
    old = {"haclient:generation": 1, "haclient:cluster": "c"}
    new = {"haclient:generation": 2, "haclient:cluster": "c"}
    async with primary(properties=old) as stale, primary(properties=new) as good:
        connection = await api.connect(url(good, stale, **FAST), on_event=watch)
        good.drop()
        await watch.until(Reconnected)
        assert connection.endpoint.port == good.port
        good.drop()
        await watch.until(Reconnected, count=2)
        assert connection.generation == 2
        assert len(stale.engines) == 0
        await connection.close()


async def test_the_retry_after_of_a_passive_member_decides_over_the_delay() -> None:
    from haclient import aio
    from haclient.testing.peers.passive import speaking

    condition = proton.Condition("amqp:connection:forced", "come later", {proton.symbol("retry-after"): 123})

    def refuse(engine: Any) -> None:
        engine.open()
        engine.close(condition)

    watch = Watch()
    async with speaking(refuse, hold=True) as peer:
        connecting = asyncio.ensure_future(aio.connect(url(peer), on_event=watch))
        (backing_off, *_) = await watch.until(BackingOff)
        connecting.cancel()
        await asyncio.wait([connecting])
    assert backing_off.retry_after == 0.123
    assert backing_off.delay >= 0.123


async def test_the_names_of_a_url_may_point_to_nobody_until_the_primary_appears(api: API) -> None:
    async with BEHAVIOURS["refused"](Peer("", 0)) as later:
        factory = await api.factory(url(later, **FAST))
        connecting = asyncio.ensure_future(factory.connect())
        await asyncio.sleep(0)
    async with primary(host=later.host, port=later.port) as peer:
        connection = await asyncio.wait_for(connecting, 10)
        assert connection.endpoint.port == peer.port
        await factory.close()
