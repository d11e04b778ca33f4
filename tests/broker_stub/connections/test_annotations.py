"""Annotations of a *modified* outcome, over a socket: from proton's client, its drop-in and a bare one."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import proton
import pytest
from proton import Message, symbol
from proton.reactor import Copy
from proton.utils import BlockingConnection

from haclient import utils
from haclient.outcome import Outcome, OutcomeState
from tests.broker_stub.clients import Client, running


def modified(values: dict[str, Any]) -> Outcome:
    data = proton.Data()
    data.put_object({symbol(key): value for key, value in values.items()})
    return Outcome(OutcomeState.MODIFIED, annotations=bytes(data.encode()))


def of(message: Message) -> dict[str, Any]:
    return {str(key): value for key, value in (message.annotations or {}).items()}


class Confirming(Client):
    def confirmed(self, link: Any, token: Any, outcome: Outcome | None) -> None:
        self.outcomes.put_nowait(outcome)


@pytest.mark.parametrize("connect", [BlockingConnection, utils.BlockingConnection], ids=["proton", "drop-in"])
async def test_a_client_adds_annotations_and_finds_them_again_beside_the_sender_s(connect: Any) -> None:
    def use(connection: BlockingConnection) -> list[dict[str, Any]]:
        sent = Message(body="x", annotations={symbol("x-mine"): 1, symbol("x-both"): "sender"})
        connection.create_sender("q").send(sent)
        receiver = connection.create_receiver("q", credit=1)
        found = []
        for attempt in range(3):
            found.append(of(receiver.receive(timeout=5)))
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.annotations = {symbol("x-both"): "consumer", symbol("x-attempt"): attempt}
            delivery.update(proton.Delivery.MODIFIED)
            delivery.settle()
        browser = connection.create_receiver("q", credit=1, name="b", options=Copy())
        receiver.close()
        return [*found, of(browser.receive(timeout=5))]

    async with running() as broker:

        def run() -> list[dict[str, Any]]:
            with closing(connect(str(broker.address), timeout=5)) as connection:
                return use(connection)

        first, second, third, browsed = await asyncio.to_thread(run)
        assert first == {"x-mine": 1, "x-both": "sender"}
        assert second == {"x-mine": 1, "x-both": "consumer", "x-attempt": 0}
        assert third == {"x-mine": 1, "x-both": "consumer", "x-attempt": 1}
        assert browsed == {"x-mine": 1, "x-both": "consumer", "x-attempt": 2}


@pytest.mark.parametrize("confirmed", [False, True])
async def test_they_come_with_the_next_delivery_on_the_same_link(*, confirmed: bool) -> None:
    async with running() as broker:
        client = await Confirming().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x", ttl=60.0))
        receiver = client.engine.receiver(client.session, "r", client)
        receiver.endpoint.source.address = "q"
        if confirmed:
            receiver.request_confirmations()
        client.engine.attach(receiver)
        (await client.answered(receiver)).grant(2)
        outcome = modified({"x-why": "busy", "x-list": [1, [2], {"a": None}]})
        message = await client.receive(None if confirmed else outcome)
        assert of(message) == {}
        if confirmed:
            [delivery] = receiver.unsettled
            receiver.update(delivery, outcome, None)
        message = await client.receive()
        assert of(message) == {"x-why": "busy", "x-list": [1, [2], {"a": None}]}
        assert message.ttl > 50
        await client.close()


async def test_an_outcome_with_too_many_of_them_returns_the_message_as_it_was() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), Message(body="x"))
        receiver = await client.attach("receiver", "r", "q")
        for given, expected in (("a", {}), ("b" * 5000, {"x-a": "a"}), ("c", {"x-a": "a"})):
            receiver.grant(1)
            assert of(await client.receive(modified({"x-a": given}))) == expected
        receiver.grant(1)
        assert of(await client.receive()) == {"x-a": "c"}
        await client.close()
