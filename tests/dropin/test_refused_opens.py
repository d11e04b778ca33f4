"""Members that refuse every Open for a while: programs written for proton go on."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Condition, ConnectionException, Message, symbol

from haclient.testing.peers.listening import url
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.dropin.recorder import FAST, PATIENCE, Recorder, receiving, running, sending
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.primary import Primary, primary

UNKNOWN = Condition("amqp:not-found", "Unknown hostname in connection open")
HELD = Condition("amqp:invalid-field", "held by 10.9.9.9", {symbol("invalid-field"): symbol("container-id")})


def elects(*members: Primary) -> None:
    """The master dies, and no member serves for now."""
    for member in members:
        member.refuses_opens = UNKNOWN
        member.drop()


async def test_an_election_is_a_pause() -> None:
    """The receiver goes on at the new master, and the container reports no error."""
    async with primary() as old, primary(refuses_opens=UNKNOWN) as new:
        new.put("orders", "after")

        def close(event: Any) -> None:
            event.connection.close()

        said: list[str] = []
        handler = Recorder(
            receiving(old, new),
            message=close,
            transport_error=lambda event: said.append(str(event.transport.condition)),
        )
        async with running(handler):
            await handler.until("link_opened")
            elects(old, new)
            await new.until(lambda: new.refused >= 10)
            await old.until(lambda: old.refused >= 10)
            new.refuses_opens = None
            await handler.until("message")
        assert "connection_error" not in handler.seen
        assert not [each for each in said if "amqp:not-found" in each]


async def test_a_refusal_that_lasts_is_reported_once() -> None:
    """The usual callback gets it, with the answer of the members."""
    async with primary() as old, primary(refuses_opens=UNKNOWN) as new:
        said: list[str] = []
        handler = Recorder(
            sending(old, new, refusal_timeout=0.3),
            transport_error=lambda event: said.append(str(event.transport.condition)),
        )
        async with running(handler):
            await handler.until("sendable")
            elects(old, new)
    assert len([each for each in said if "amqp:not-found" in each]) == 1
    assert old.refused >= 3


async def test_a_container_id_that_is_in_use_is_asked_for_until_it_is_free() -> None:
    """The first connect has no deadline, as with proton."""
    async with primary(refuses_opens=HELD) as peer:
        handler = Recorder(sending(peer), sendable=lambda event: event.connection.close())
        async with running(handler):
            await peer.until(lambda: peer.refused >= 50)
            peer.refuses_opens = None
        assert "sendable" in handler.seen


def test_a_blocking_call_waits_for_the_election() -> None:
    with in_thread(primary()) as old, in_thread(primary(refuses_opens=UNKNOWN)) as new:
        with BlockingConnection(url(old, new), timeout=PATIENCE, **FAST) as connection:
            sender = connection.create_sender("orders")
            sender.send(Message(body="before"))
            new.refuses_opens = UNKNOWN
            on_its_thread(old, elects, old)
            wait_until(lambda: new.refused >= 10)
            new.refuses_opens = None
            sender.send(Message(body="after"))
        assert new.bodies == ["after"]


def test_a_wrong_name_is_reported_to_the_blocking_caller() -> None:
    with in_thread(primary(refuses_opens=UNKNOWN)) as peer:
        with pytest.raises(ConnectionException, match="amqp:not-found"):
            BlockingConnection(url(peer), timeout=PATIENCE, **FAST)
        assert peer.refused >= 3
