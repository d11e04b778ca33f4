"""Sender and receiver links between two engines."""

from __future__ import annotations

import proton
import pytest
from cproton_ffi import lib

from haclient.engine import links
from haclient.engine.links import SenderLink
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState
from tests.engine.pair import Pair, pair

OUTCOMES = [
    ACCEPTED,
    RELEASED,
    Outcome(OutcomeState.REJECTED),
    Outcome(OutcomeState.REJECTED, "app:bad", "not a number"),
    Outcome(OutcomeState.MODIFIED, delivery_failed=True),
    Outcome(OutcomeState.MODIFIED, undeliverable_here=True),
    Outcome(OutcomeState.MODIFIED, delivery_failed=True, undeliverable_here=True),
    Outcome(OutcomeState.MODIFIED),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
@pytest.mark.parametrize("from_client", [True, False], ids=["sent", "received"])
async def test_every_outcome_arrives_with_its_fields(outcome: Outcome, from_client: bool) -> None:
    async with pair() as both:
        if from_client:
            sender, _ = await both.sender()
            sending, receiving = both.client, both.server
        else:
            _, sender = await both.receiver()
            sending, receiving = both.server, both.client
        token = object()
        sender.send(b"data", token)
        await receiving.until(lambda: receiving.deliveries)
        link, delivery, data = receiving.deliveries[0]
        assert data == b"data"
        assert len(sender.unsettled) == 1
        assert link.settle(delivery, outcome)
        await sending.until(lambda: sending.outcomes)
        assert sending.outcomes == [(token, outcome)]
        assert not sender.unsettled
        assert not link.settle(delivery, outcome)  # the second time there is nothing to settle


async def test_outcomes_of_many_deliveries_reach_their_own_tokens() -> None:
    async with pair() as both:
        sender, _ = await both.sender(grants=100)
        for number in range(100):
            sender.send(b"%d" % number, number)
        await both.server.until(lambda: len(both.server.deliveries) == 100)
        # Settled backwards, every third rejected: proton settles ranges, which must include no other
        # delivery.
        for number, (link, delivery, data) in reversed(list(enumerate(both.server.deliveries))):
            assert data == b"%d" % number
            link.settle(
                delivery, Outcome(OutcomeState.REJECTED, f"app:{number}") if number % 3 == 0 else ACCEPTED
            )
        await both.client.until(lambda: len(both.client.outcomes) == 100)
        for token, outcome in both.client.outcomes:
            assert outcome is not None
            assert outcome.condition == (f"app:{token}" if token % 3 == 0 else None)


async def test_a_message_that_is_sent_settled_asks_for_nothing() -> None:
    async with pair() as both:
        sender, _ = await both.sender()
        sender.send(b"one", "token", settled=True)
        sender.send(b"two", "token")
        assert len(sender.unsettled) == 1
        await both.server.until(lambda: len(both.server.deliveries) == 2)
        (_, first, _), (_, second, _) = both.server.deliveries
        assert first is None
        assert second is not None
        assert both.client.outcomes == []


async def test_settling_without_an_outcome_says_that_nobody_knows() -> None:
    async with pair() as both:
        sender, _ = await both.sender()
        sender.send(b"one", "token")
        await both.server.until(lambda: both.server.deliveries)
        link, delivery, _ = both.server.deliveries[0]
        lib.pn_delivery_settle(delivery)
        link.unsettled.discard(delivery)
        link._engine.wake()
        await both.client.until(lambda: both.client.outcomes)
        assert both.client.outcomes == [("token", None)]


async def test_a_forgotten_delivery_has_no_outcome() -> None:
    async with pair() as both:
        sender, _ = await both.sender()
        forgotten = sender.send(b"forgotten", "forgotten")
        sender.send(b"kept", "kept")
        await both.server.until(lambda: len(both.server.deliveries) == 2)
        sender.forget(forgotten)
        sender.forget(forgotten)
        for link, delivery, _ in both.server.deliveries:
            link.settle(delivery)
        await both.client.until(lambda: both.client.outcomes)
        assert both.client.outcomes == [("kept", ACCEPTED)]


async def test_a_forgotten_delivery_is_settled_after_the_peer_has_settled_it() -> None:
    """Broker-J drops the connection if its sender settles first."""
    async with pair() as both:
        sender, _ = await both.sender()
        forgotten = sender.send(b"forgotten", "forgotten")
        await both.server.until(lambda: both.server.deliveries)
        link, delivery, _ = both.server.deliveries[0]
        sender.forget(forgotten)
        await _send_two(both, sender)
        assert not lib.pn_delivery_settled(delivery)
        link.settle(delivery)
        link.settle(both.server.deliveries[1][1])
        await both.client.until(lambda: both.client.outcomes)
        assert both.client.outcomes == [("first", ACCEPTED)]
        assert not sender._forgotten


async def _send_two(both: Pair, sender: SenderLink) -> None:
    """Send two messages and wait: a Disposition may follow the first Transfer, but not the second."""
    before = len(both.server.deliveries)
    for number, token in enumerate(("first", "second"), 1):
        sender.send(b"kept", token)
        await both.server.until(lambda: len(both.server.deliveries) == before + number)  # noqa: B023


async def test_of_many_forgotten_deliveries_the_oldest_are_settled_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "_MOST_FORGOTTEN", 3)
    async with pair() as both:
        sender, _ = await both.sender()
        sent = [sender.send(b"x", number) for number in range(5)]
        await both.server.until(lambda: len(both.server.deliveries) == 5)
        for delivery in sent:
            sender.forget(delivery)
        assert len(sender._forgotten) == 3
        await _send_two(both, sender)
        settled = [bool(lib.pn_delivery_settled(each)) for _, each, _ in both.server.deliveries[:5]]
        assert settled == [True, True, False, False, False]


async def test_credit_is_counted_down_and_granted_again() -> None:
    async with pair() as both:
        sender, receiver = await both.sender(grants=3)
        for number in range(3):
            sender.send(b"x", number)
        assert sender.credit == 0
        await both.server.until(lambda: len(both.server.deliveries) == 3)
        assert receiver.credit == 0
        receiver.grant(2)
        await both.client.until(lambda: sender.credit == 2)


async def test_a_drained_sender_gives_its_credit_back() -> None:
    async with pair() as both:
        sender, receiver = await both.sender(grants=5)
        sender.send(b"x", 1)
        receiver.endpoint.drain_mode = True
        receiver.endpoint.drain(0)
        receiver._engine.wake()
        await both.client.until(lambda: both.client.drained)
        assert both.client.drained == [4]
        assert sender.credit == 0
        await both.server.until(lambda: both.server.deliveries)


@pytest.mark.parametrize("condition", [None, proton.Condition("amqp:link:detach-forced", "go away")])
@pytest.mark.parametrize("by_client", [True, False])
async def test_a_detached_link_dies_on_both_sides(
    condition: proton.Condition | None, by_client: bool
) -> None:
    async with pair() as both:
        sender, receiver = await both.sender()
        sender.send(b"x", "unsettled")
        await both.server.until(lambda: both.server.deliveries)
        near, far, owner = (sender, receiver, both.server) if by_client else (receiver, sender, both.client)
        near.close(condition)
        await owner.until(lambda: owner.links_closed)
        ((closed, why),) = owner.links_closed
        assert closed is far
        assert (why and (why.name, why.description)) == (
            condition and (condition.name, condition.description)
        )
        # Calls on a dead link do not reach proton.
        assert far.dead
        assert far.credit == 0
        far.close()
        if isinstance(far, SenderLink):
            assert not far.drain
            far.drained()
        else:
            far.grant(1)
            assert not far.settle(both.server.deliveries[0][1])
        again, _ = await both.sender()
        assert again.credit == 10


async def test_a_refused_link_is_closed_with_the_reason() -> None:
    async with pair() as both:
        both.server.refusal = proton.Condition("amqp:not-found", "no such node")
        assert both.client.engine is not None
        assert both.client.session is not None
        link = both.client.engine.sender(both.client.session, "s", both.client)
        both.client.engine.attach(link)
        await both.client.until(lambda: both.client.links_closed)
        ((closed, why),) = both.client.links_closed
        assert closed is link
        assert why is not None
        assert why.name == "amqp:not-found"


async def test_links_die_with_their_connection() -> None:
    async with pair() as both:
        sender, receiver = await both.sender()
        token = object()
        delivery = sender.send(b"x", token)
        await both.server.until(lambda: both.server.deliveries)
        assert both.client.engine is not None
        both.client.engine.abort()
        await both.server.until(lambda: both.server.close_reasons)
        for link in (sender, receiver):
            assert link.dead
            assert link.credit == 0
            link.close()
        sender.forget(delivery)
        assert not receiver.settle(both.server.deliveries[0][1])
        assert both.client.outcomes == []
