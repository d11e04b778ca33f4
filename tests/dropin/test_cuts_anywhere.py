"""Cuts anywhere in the byte stream: every message arrives once, whole and in its place."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler

from haclient.reactor import Container
from haclient.utils import BlockingConnection
from tests.failover.forwarder import Cuts, Forwarder
from tests.members import Member

QUEUE = "numbers"
CUTS = 20
FAST: dict[str, Any] = {"backoff_base": 0.002, "backoff_max": 0.02}
PATIENCE = 60.0


class Sending(MessagingHandler):
    """Sends all that credit allows, and closes when everything was accepted."""

    def __init__(self, address: str, messages: list[Message]) -> None:
        super().__init__()
        self.address, self.messages = address, messages
        self.sent: list[Any] = []
        self.accepted: list[Any] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.address, **FAST)
        event.container.create_sender(connection, QUEUE)

    def on_sendable(self, event: Any) -> None:
        # A small window makes sure that a cut on the way back is not the last one.
        while event.sender.credit and len(self.sent) < min(len(self.messages), len(self.accepted) + 50):
            self.sent.append(event.sender.send(self.messages[len(self.sent)]))

    def on_accepted(self, event: Any) -> None:
        self.accepted.append(event.delivery)
        if len(self.accepted) == len(self.messages):
            event.connection.close()
        else:
            self.on_sendable(event)


class Receiving(MessagingHandler):
    """Receives until it has seen every number."""

    def __init__(self, address: str, count: int) -> None:
        super().__init__()
        self.address = address
        self.left = set(range(count))
        self.bodies: dict[int, Any] = {}

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.address, **FAST)
        event.container.create_receiver(connection, QUEUE)

    def on_message(self, event: Any) -> None:
        self.bodies[event.message.id] = event.message.body
        self.left.discard(event.message.id)
        if not self.left:
            event.connection.close()


@pytest.fixture
def cuts() -> Cuts:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it when the test fails
    return Cuts(random.Random(seed), CUTS, span=200_000)


def messages(cuts: Cuts, count: int) -> list[Message]:
    """Yield messages from a part of a frame to three frames."""
    return [Message(id=n, body=f"{n:06}" * cuts.rng.choice([1, 10, 1000, 35_000])) for n in range(count)]


async def run(handler: MessagingHandler) -> None:
    async with asyncio.timeout(PATIENCE):
        await Container(handler).run_async()


async def test_of_a_container_that_sends(broker: Member, cuts: Cuts) -> None:
    wanted = messages(cuts, 300)
    with Forwarder(broker.address, cuts=cuts) as forwarder:
        handler = Sending(f"127.0.0.1:{forwarder.port}", wanted)
        await run(handler)
    arrived = await asyncio.to_thread(broker.messages, QUEUE)
    assert [message.id for message in arrived] == [message.id for message in wanted]
    assert [message.body for message in arrived] == [message.body for message in wanted]
    assert len(handler.accepted) == len(handler.sent) == len(wanted)
    assert set(handler.accepted) == set(handler.sent)
    assert len(cuts.established) >= CUTS


async def test_of_a_container_that_receives(broker: Member, cuts: Cuts) -> None:
    wanted = messages(cuts, 300)
    await run(Sending(broker.address, wanted))
    with Forwarder(broker.address, cuts=cuts) as forwarder:
        handler = Receiving(f"127.0.0.1:{forwarder.port}", len(wanted))
        await run(handler)
    assert handler.bodies == {message.id: message.body for message in wanted}
    assert len(cuts.established) >= CUTS


def test_of_blocking_calls(broker: Member, cuts: Cuts) -> None:
    wanted = messages(cuts, 300)
    with Forwarder(broker.address, cuts=cuts) as forwarder:
        address = f"127.0.0.1:{forwarder.port}"
        with BlockingConnection(address, timeout=PATIENCE, **FAST) as connection:
            sender = connection.create_sender(QUEUE)
            for message in wanted:
                sender.send(message)
    arrived = broker.messages(QUEUE)
    assert [message.id for message in arrived] == [message.id for message in wanted]
    assert [message.body for message in arrived] == [message.body for message in wanted]
