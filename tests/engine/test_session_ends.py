"""An End from the peer: the links that it refuses, and the links that survive the lost connection."""

from __future__ import annotations

import gc

import proton
import pytest

from haclient.engine.links import SenderLink
from tests.engine.pair import Pair, pair

MANY = 300


def attach(both: Pair, name: str) -> SenderLink:
    """Attach a sender without waiting for the answer."""
    assert both.client.engine is not None
    assert both.client.session is not None
    link = both.client.engine.sender(both.client.session, name, both.client)
    link.endpoint.target.address = name
    both.client.engine.attach(link)
    return link


async def end(both: Pair, condition: proton.Condition | None) -> None:
    """End the session from the server; the client then ends its connection."""
    assert both.server.session is not None
    assert both.server.engine is not None
    if condition is not None:
        both.server.session.condition = condition
    both.server.session.close()
    both.server.engine.wake()
    await both.client.until(lambda: both.client.close_reasons)


async def test_it_refuses_the_first_link_without_an_answer_and_no_other() -> None:
    """RabbitMQ's AMQP 1.0 plugin answers an Attach that it refuses with an End."""
    async with pair() as both:
        good, _ = await both.sender()
        wrong = attach(both, "wrong")
        late = attach(both, "late")
        await end(both, proton.Condition("amqp:not-found", "no queue 'wrong'"))
        ((link, why),) = both.client.links_closed
        assert link is wrong
        assert str(why) == "Condition('amqp:not-found', \"no queue 'wrong'\")"
        assert all(each.dead for each in (good, wrong, late))
        assert str(both.client.close_reasons[0]) == "amqp:not-found: no queue 'wrong'"


@pytest.mark.parametrize("name", [None, "amqp:internal-error", "amqp:resource-limit-exceeded"])
async def test_trouble_of_the_peer_refuses_no_link(name: str | None) -> None:
    async with pair() as both:
        await both.sender()
        attach(both, "late")
        await end(both, name and proton.Condition(name))
        assert both.client.links_closed == []


async def test_a_fault_of_the_application_closes_every_link() -> None:
    async with pair() as both:
        good, _ = await both.sender()
        await end(both, proton.Condition("amqp:invalid-field"))
        ((link, why),) = both.client.links_closed
        assert link is good
        assert why is not None
        assert why.name == "amqp:invalid-field"


@pytest.mark.parametrize("attached_by", ["sender", "receiver"])
async def test_a_link_may_be_kept_longer_than_the_session_that_ended_with_it(attached_by: str) -> None:
    """proton freed the link twice if its last reference went after those to its session."""
    async with pair() as both:
        engine = both.client.engine
        assert engine is not None
        for number in range(
            MANY
        ):  # Begin, Attach and End arrive at once, so that no Attach is answered before
            session = engine.sessions.begin_apart(engine)
            assert session is not None
            engine.attach(getattr(engine, attached_by)(session, str(number), both.client))
            engine.sessions.leave(engine, session)
        await both.server.until(lambda: len(both.server.links_closed) >= MANY)
        assert all(link.dead for link in both.server.links)
        both.server.links.clear()
        both.server.links_closed.clear()
        gc.collect()
    async with pair() as another:
        await another.sender()
