"""Selectors, filters and capabilities of receivers, over both APIs."""

from __future__ import annotations

import asyncio
import datetime
from decimal import Decimal
from typing import Any

import pytest
from proton import Described, Terminus, symbol, ulong

from haclient.errors import FilterNotSupported
from tests.peers import primary
from tests.peers.apis import API, connected, on_thread

SELECTOR = "apache.org:selector-filter:string"
ONLY_RED = "colour = 'red'"


async def test_a_selector_reaches_the_source_as_brokers_read_it(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        await connection.create_receiver("q", selector=ONLY_RED)
        assert peer.sources[0].filters == {SELECTOR: Described(symbol(SELECTOR), ONLY_RED)}
        assert isinstance(peer.sources[0].filters[SELECTOR].descriptor, symbol)


async def test_filters_are_described_by_their_name_unless_the_application_does(api: API) -> None:
    no_local = Described(ulong(0x0000468C00000003), [])
    async with primary() as peer, connected(api, peer) as connection:
        await connection.create_receiver(
            "q", filters={"rabbitmq:stream-offset-spec": "first", "no-local": no_local}
        )
        assert peer.sources[0].filters == {
            "rabbitmq:stream-offset-spec": Described(symbol("rabbitmq:stream-offset-spec"), "first"),
            "no-local": no_local,
        }


async def test_capabilities_reach_the_source(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        await connection.create_receiver("q", capabilities=("queue",))
        await connection.create_receiver("q", capabilities=["queue", "shared"])
        await connection.create_receiver("q")
        assert [each.capabilities for each in peer.sources] == [("queue",), ("queue", "shared"), ()]
        assert [each.durability for each in peer.sources] == [Terminus.NONDURABLE] * 3


async def test_a_filter_that_the_peer_ignores_is_an_error_and_the_link_is_closed(api: API) -> None:
    async with primary(filters="ignore") as peer, connected(api, peer) as connection:
        peer.put("q", 1)
        with pytest.raises(FilterNotSupported) as caught:
            await connection.create_receiver("q", selector=ONLY_RED, filters={"other": 1}, name="mine")
        assert caught.value.filters == ("other", SELECTOR)
        assert str(caught.value) == (
            f"the primary does not filter the messages of 'q': it ignores 'other', '{SELECTOR}'; "
            "strict=False goes on"
        )
        await peer.until(lambda: peer.detached == [("mine", True)])
        assert peer.credit == [], "no message was asked for before the answer"
        assert list(peer.queues["q"]), "none was delivered"
        await (await connection.create_receiver("q", name="mine")).receive(timeout=5)


async def test_a_filter_that_the_peer_replaces_is_an_error(api: API) -> None:
    async with primary(filters="change") as peer, connected(api, peer) as connection:
        with pytest.raises(FilterNotSupported, match=f"it answers '{SELECTOR}' with 'other'") as caught:
            await connection.create_receiver("q", selector=ONLY_RED)
        assert caught.value.filters == (SELECTOR,)


async def test_who_is_not_strict_goes_on(api: API) -> None:
    async with primary(filters="ignore") as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", selector=ONLY_RED, strict=False)
        peer.put("q", 1)
        assert (await receiver.receive(timeout=5)).message.body == 1


async def test_after_a_failover_to_a_peer_that_ignores_it_the_receiver_is_closed(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", selector=ONLY_RED)
        peer.put("q", 1)
        await (await receiver.receive(timeout=5)).accept()
        waiting = asyncio.ensure_future(receiver.receive())
        peer.filters = "ignore"
        peer.put("q", *range(2, 9))
        await peer.until(lambda: peer.unsettled)
        await waiting
        waiting = asyncio.ensure_future(receiver.receive_many(100, min_count=50))
        peer.drop()
        with pytest.raises(FilterNotSupported):
            await asyncio.wait_for(waiting, 10)
        with pytest.raises(FilterNotSupported):
            await receiver.receive()
        assert not peer.unsettled


async def test_an_iteration_ends_with_that_error(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", selector=ONLY_RED)
        peer.filters = "ignore"
        peer.drop()
        following = receiver.__anext__() if api.name == "aio" else on_thread(receiver.inner.__next__)
        with pytest.raises(FilterNotSupported):
            await asyncio.wait_for(following, 10)


async def test_who_is_not_strict_goes_on_after_a_failover(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", selector=ONLY_RED, strict=False)
        peer.filters = "ignore"
        peer.drop()
        peer.put("q", 1)
        assert (await receiver.receive(timeout=5)).message.body == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"selector": ""}, ValueError, "a selector is not empty"),
        ({"selector": "  "}, ValueError, "a selector is not empty"),
        ({"selector": b"a"}, TypeError, "selector: expected text or None, not bytes"),
        ({"selector": "a = 1", "filters": {SELECTOR: "b = 1"}}, ValueError, "give one of them"),
        ({"filters": {"x": None}}, TypeError, "the filter 'x' has no value"),
        ({"filters": {"x": Decimal(1)}}, TypeError, "AMQP cannot carry the filter 'x'"),
        (
            {"filters": {"x": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}},
            TypeError,
            "AMQP cannot carry the filter 'x'",
        ),
        ({"filters": {"x": 2**70}}, TypeError, "AMQP cannot carry the filter 'x'"),
        ({"filters": {1: "a"}}, TypeError, "name of a filter is a string of ASCII characters, not 1"),
        ({"filters": {"ä": "a"}}, TypeError, "name of a filter is a string of ASCII characters, not 'ä'"),
        ({"capabilities": "queue"}, TypeError, "capabilities: expected a list of text, not str"),
        ({"capabilities": [1]}, TypeError, "capabilities: expected text, not int"),
    ],
    ids=str,
)
async def test_what_cannot_be_asked_for_is_refused(
    api: API, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        with pytest.raises(error, match=text):
            await connection.create_receiver("q", **arguments)
        assert peer.sources == []
