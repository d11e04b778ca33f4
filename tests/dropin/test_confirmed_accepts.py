"""Confirmed accepts, with proton and with the drop-in: the client settles after the peer."""

from __future__ import annotations

import asyncio
from typing import Any

import proton
import pytest
from proton import reactor as proton_reactor
from proton.handlers import MessagingHandler

from haclient.reactor import Container
from tests.broker_stub.clients import running


class _Second(proton_reactor.LinkOption):
    """Asks for rcv-settle-mode second."""

    def apply(self, link: proton.Link) -> None:
        link.rcv_settle_mode = proton.Link.RCV_SECOND


class _Program(MessagingHandler):
    """Accepts a message without settling it, and settles it when the peer has."""

    def __init__(self, where: str) -> None:
        super().__init__(prefetch=1, auto_accept=False)
        self.called: list[str] = []
        self.where = where

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.where)
        event.container.create_receiver(connection, "orders", options=_Second())

    def on_message(self, event: Any) -> None:
        self.called.append("message")
        event.delivery.update(proton.Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        self.called.append(f"settled {event.delivery.remote_state}")
        event.delivery.settle()
        event.connection.close()


@pytest.mark.parametrize("container", [proton_reactor.Container, Container], ids=["proton", "haclient"])
async def test_an_update_is_confirmed_by_the_settlement_of_the_member(container: Any) -> None:
    async with running() as broker:
        queue = broker.addresses.declare("orders")
        queue.enqueue(bytes(proton.Message(body="one").encode()), lambda _: None, None)
        program = _Program(str(broker.address))
        await asyncio.to_thread(container(program).run)
        assert program.called == ["message", "settled 36"]
        assert (queue.depth, queue.counters.dequeued) == (0, 1)
