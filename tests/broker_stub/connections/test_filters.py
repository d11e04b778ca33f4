"""Selectors of receivers, used by proton's own client."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Described, Message, Terminus, symbol, ulong
from proton.reactor import Selector
from proton.utils import BlockingConnection, LinkDetached

from broker_stub.connections.filters import SELECTOR
from tests.broker_stub.attach_options import Asks, Filter, value
from tests.broker_stub.clients import blocking, running


@pytest.mark.parametrize("descriptor", [symbol(SELECTOR[0]), ulong(SELECTOR[1])])
async def test_a_receiver_gets_what_its_selector_selects_and_another_the_rest(descriptor: Any) -> None:
    def use(connection: BlockingConnection) -> None:
        asked = {"jms-selector": Described(descriptor, "colour = 'red'")}
        red = connection.create_receiver("q", credit=10, name="red", options=Filter(asked))
        assert value(red.link.remote_source.filter) == asked
        sender = connection.create_sender("q")
        for number in range(10):
            sender.send(Message(body=number, properties={"colour": "red" if number % 2 else "blue"}))
        for number in range(1, 10, 2):
            assert red.receive(timeout=5).body == number
            red.accept()
        rest = connection.create_receiver("q", credit=10, name="rest")
        for number in range(0, 10, 2):
            assert rest.receive(timeout=5).body == number

    async with running() as broker:
        await blocking(broker, use)


async def test_a_browser_sees_what_its_selector_selects() -> None:
    def use(connection: BlockingConnection) -> None:
        sender = connection.create_sender("q")
        for number in range(10):
            sender.send(Message(body=number, properties={"n": number}))
        options = [Selector("n > 6"), Asks(distribution_mode=Terminus.DIST_MODE_COPY)]
        browser = connection.create_receiver("q", credit=10, name="browser", options=options)
        assert [browser.receive(timeout=5).body for _ in range(3)] == [7, 8, 9]
        assert broker.addresses.queue("q").depth == 10

    async with running() as broker:
        await blocking(broker, use)


@pytest.mark.parametrize(
    ("selector", "why"),
    [("colour =", "no selector: 'the end' where a value is expected"), (5, "a selector is a string")],
)
async def test_a_wrong_selector_is_refused_with_a_reason(selector: Any, why: str) -> None:
    def use(connection: BlockingConnection) -> None:
        asked = Filter({"s": Described(symbol(SELECTOR[0]), selector)})
        with pytest.raises(LinkDetached, match=why) as caught:
            connection.create_receiver("q", options=asked)
        assert "amqp:invalid-field" in str(caught.value)
        assert not len(broker.addresses), "and makes no queue"

    async with running() as broker:
        await blocking(broker, use)


async def test_two_selectors_are_refused() -> None:
    def use(connection: BlockingConnection) -> None:
        each = Described(symbol(SELECTOR[0]), "a = 1")
        with pytest.raises(LinkDetached, match="several selectors"):
            connection.create_receiver("q", options=Filter({"a": each, "b": each}))

    async with running() as broker:
        await blocking(broker, use)


async def test_a_filter_that_is_not_known_is_left_out_of_the_answer() -> None:
    def use(connection: BlockingConnection) -> None:
        known = Described(symbol(SELECTOR[0]), "n = 1")
        asked = Filter({"vendor": Described(symbol("vendor:filter:list"), ["x"]), "mine": known, "bare": 5})
        receiver = connection.create_receiver("q", options=asked)
        assert value(receiver.link.remote_source.filter) == {"mine": known}

    async with running() as broker:
        await blocking(broker, use)
