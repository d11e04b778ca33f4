"""A Detach that keeps the terminus is answered with another one; a durable terminus is kept."""

from __future__ import annotations

import re

import proton
import pytest

from haclient.engine.links import Link
from tests.engine.pair import Pair, pair

Captured = pytest.CaptureFixture[str]


def trace(both: Pair) -> None:
    """Print the client's frames to standard error."""
    assert both.client.engine is not None
    both.client.engine.transport.trace(proton.Transport.TRACE_FRM)


def detaches_sent(capfd: Captured) -> list[bool]:
    """Return for each Detach of the client whether it closes the link."""
    found = re.findall(r"-> @detach\(22\) \[(.*)\]", capfd.readouterr().err)
    return ["closed=true" in fields for fields in found]


@pytest.mark.parametrize("closed", [False, True], ids=["suspended", "closed"])
@pytest.mark.parametrize("which", ["sender", "receiver"])
async def test_the_answer_closes_the_link_only_when_the_peer_did(
    capfd: Captured, which: str, *, closed: bool
) -> None:
    """A closing Detach destroys the terminus: a suspended durable subscription would be deleted."""
    async with pair() as both:
        trace(both)
        _, made = await (both.sender() if which == "sender" else both.receiver())
        assert both.server.engine is not None
        if closed:
            made.endpoint.close()
        else:
            made.endpoint.detach()
        both.server.engine.wake()
        await both.client.until(lambda: both.client.links_closed)
        await both.server.until(lambda: both.server.links_closed)
    assert detaches_sent(capfd) == [closed]


def make_durable(link: Link) -> None:
    link.endpoint.source.durability = proton.Terminus.DELIVERIES


def make_lasting(link: Link) -> None:
    link.endpoint.source.expiry_policy = proton.Terminus.EXPIRE_NEVER


def make_target_durable(link: Link) -> None:
    link.endpoint.target.durability = proton.Terminus.CONFIGURATION


def leave_plain(_: Link) -> None:
    """End the terminus with its link."""


@pytest.mark.parametrize(
    ("configure", "closed"),
    [(make_durable, False), (make_lasting, False), (make_target_durable, True), (leave_plain, True)],
)
async def test_closing_a_receiver_keeps_a_durable_subscription(
    capfd: Captured, configure: object, *, closed: bool
) -> None:
    assert callable(configure)
    async with pair() as both:
        trace(both)
        client = both.client
        assert client.engine is not None
        assert client.session is not None
        link = client.engine.receiver(client.session, "subscription", client)
        link.endpoint.source.address = "topic"
        configure(link)
        client.engine.attach(link)
        await client.until(lambda: client.links_opened)
        link.close()
        await client.until(lambda: client.links_closed)
    assert detaches_sent(capfd) == [closed]


async def test_a_receiver_that_fails_keeps_its_durable_subscription_too(capfd: Captured) -> None:
    """Proton sends no reason in a Detach that is not closing: the subscription matters more."""
    async with pair() as both:
        trace(both)
        client = both.client
        assert client.engine is not None
        assert client.session is not None
        link = client.engine.receiver(client.session, "subscription", client)
        make_durable(link)
        client.engine.attach(link)
        await client.until(lambda: client.links_opened)
        link.close(proton.Condition("amqp:link:message-size-exceeded", "too large"))
        await client.until(lambda: client.links_closed)
    assert detaches_sent(capfd) == [False]
