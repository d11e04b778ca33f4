"""Errors and log lines of proton's API are printable, whatever a peer puts into its conditions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import proton
import pytest
from proton import Message
from proton.handlers import MessagingHandler

from haclient.reactor import Container
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection, LinkDetached
from tests.cli.hostile import EVIL, assert_printable
from tests.dropin.waiting import on_its_thread
from tests.peers import url
from tests.peers.primary import Primary, primary

CONDITION = proton.Condition(f"amqp:{EVIL}", EVIL)


def refused(peer: Primary, connection: BlockingConnection) -> None:
    peer.refuses["orders"] = CONDITION
    connection.create_sender("orders")


def detached(peer: Primary, connection: BlockingConnection) -> None:
    receiver = connection.create_receiver("orders")
    on_its_thread(peer, peer.detach, CONDITION)
    receiver.receive()


def closed(peer: Primary, connection: BlockingConnection) -> None:
    sender = connection.create_sender("orders")
    peer.refuses_opens, peer.outcome = CONDITION, None
    on_its_thread(peer, peer.close, CONDITION)
    sender.send(Message(body="one"))


@pytest.mark.parametrize("case", [refused, detached, closed])
@pytest.mark.parametrize("reconnect", [None, False], ids=["failover", "once"])
def test_the_text_of_an_error_is_printable(
    case: Callable[[Primary, BlockingConnection], None], reconnect: bool | None
) -> None:
    with in_thread(primary(container_id=EVIL)) as peer:
        connection = BlockingConnection(url(peer, deadline=0.5), timeout=2, reconnect=reconnect)
        with pytest.raises(proton.ProtonException) as caught:
            case(peer, connection)
        connection.close()
    assert_printable(str(caught.value))
    if case in {refused, detached}:
        assert isinstance(caught.value, LinkDetached)
        assert caught.value.condition == CONDITION.name.partition("\0")[0]  # as the peer sent it
        assert "FORGED" in str(caught.value)


@pytest.mark.parametrize("end", [Primary.detach, Primary.end_sessions, Primary.close])
async def test_what_protons_handlers_log_is_printable(
    end: Callable[[Primary, proton.Condition], None], caplog: pytest.LogCaptureFixture
) -> None:
    class Program(MessagingHandler):
        def on_link_opened(self, event: Any) -> None:
            end(peer, CONDITION)

        def on_transport_closed(self, event: Any) -> None:
            event.container.stop()

        on_link_closed = on_session_closed = on_transport_closed

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(url(peer), reconnect=False)
            event.container.create_receiver(connection, "orders")

    async with primary() as peer:
        with caplog.at_level(logging.DEBUG, "proton"):
            await asyncio.wait_for(Container(Program()).run_async(), 30)
    logged = [each.getMessage() for each in caplog.records if each.name == "proton"]
    assert any("FORGED" in text for text in logged)
    for text in logged:
        assert_printable(text)
