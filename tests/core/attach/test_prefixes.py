"""Topics and queues of a peer that marks them by prefixes, as ActiveMQ Classic does."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote, urlsplit

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient import aio
from haclient.core.attach.prefixes import prefixed
from haclient.events import Reconnected
from haclient.testing.peers.listening import url
from tests.peers import primary
from tests.peers.apis import API
from tests.peers.classic import QUEUE_PREFIX, TOPIC_PREFIX, Classic, classic
from tests.peers.watch import Watch

ANNOUNCED = {"topic-prefix": TOPIC_PREFIX, "queue-prefix": QUEUE_PREFIX}
FAST = {"backoff_base": 0.01, "backoff_max": 0.05}


def asked(broker: Classic) -> list[str]:
    """Return the address of each Attach, in order."""
    return [address for address, _ in broker.attaches]


async def test_a_subscription_is_to_the_topic(api: API) -> None:
    async with classic() as broker:
        connection = await api.connect(url(broker, client_id="archive-1"))
        await connection.subscribe("news")
        await connection.subscribe("topic://news")
        await connection.subscribe("news", name="mine", durable=True)
        assert asked(broker) == ["topic://news"] * 3
        await connection.close()


async def test_a_capability_names_the_kind_and_none_leaves_the_address_alone(api: API) -> None:
    async with classic() as broker:
        connection = await api.connect(url(broker))
        sender = await connection.create_sender("news", capabilities=("topic",))
        await connection.create_sender("orders", capabilities=["queue"])
        await connection.create_sender("queue://orders", capabilities=["topic"])
        await connection.create_sender("plain")
        await connection.create_sender("both", capabilities=["topic", "queue"])
        receiver = await connection.create_receiver("news", capabilities=("topic",))
        await connection.create_receiver("orders", capabilities=("queue",))
        senders = ["topic://news", "queue://orders", "queue://orders", "plain", "both"]
        assert asked(broker) == [*senders, "topic://news", "queue://orders"]
        assert (sender.address, receiver.address) == ("news", "news")
        await connection.close()


async def test_each_member_gets_the_address_in_its_own_words() -> None:
    """The connection fails over from one product to another, and back."""
    watch = Watch()
    async with classic() as one, primary() as other:
        connection = await aio.connect(url(one, other, **FAST), on_event=watch)
        receiver = await connection.subscribe("news")
        first, second = (one, other) if one.attaches else (other, one)
        first.refuses_opens = proton.Condition("amqp:connection:forced", "not active")
        first.drop()
        await watch.until(Reconnected)
        await second.until(lambda: second.attaches)
        assert asked(one) == ["topic://news"]
        assert [address for address, _ in other.attaches] == ["news"]
        assert receiver.address == "news"
        await connection.close()


@pytest.mark.parametrize(
    "announced",
    [
        None,
        "",
        7,
        b"topic://",
        ["topic://"],
        {"topic://": 1},
        "a\0b",
        "x" * 81,
        proton.symbol("x" * 30_000),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_prefix_that_can_be_none_is_none(announced: Any) -> None:
    properties = {proton.symbol("topic-prefix"): announced}
    async with classic(properties=properties) as broker, asyncio.timeout(10):
        async with aio.connect(url(broker)) as connection:
            await connection.subscribe("news")
        assert asked(broker) == ["news"]


prefix = st.one_of(
    st.none(),
    st.sampled_from([TOPIC_PREFIX, QUEUE_PREFIX, "/topic/", "t"]),
    st.text(max_size=100),
    st.integers(),
)
KINDS = st.sets(st.sampled_from(["topic", "queue", "shared", "global"]))


@given(st.text(), KINDS, prefix, prefix)
def test_an_address_gets_one_prefix_or_none_and_never_two(
    address: str, kinds: set[str], topic: Any, queue: Any
) -> None:
    properties = {"topic-prefix": topic, "queue-prefix": queue}
    made = prefixed(address, kinds, properties)
    assert made in {address, f"{topic}{address}", f"{queue}{address}"}
    assert prefixed(made, kinds, properties) == made
    if len(kinds & {"topic", "queue"}) != 1:
        assert made == address


@given(st.sampled_from(["news", "a/b", "topic", "topic:/", "TOPIC://x", " topic://x"]))
def test_only_the_prefix_itself_counts_as_one(address: str) -> None:
    assert prefixed(address, ("topic", "shared"), ANNOUNCED) == f"topic://{address}"
    assert prefixed(address, ("queue",), ANNOUNCED) == f"queue://{address}"


@given(st.text(min_size=1).filter(lambda name: not name.startswith("/")))
def test_of_rabbitmq_4_a_queue_has_a_path_with_its_name_in_it(name: str) -> None:
    four = {"product": "RabbitMQ", "version": "4.0.5"}
    address = prefixed(name, ["queue"], four)
    assert urlsplit(address).path == address
    head, queues, quoted = address.split("/")
    assert (head, queues, unquote(quoted)) == ("", "queues", name)
    assert prefixed(address, ["queue"], four) == address
    for capabilities in ([], ["topic"], ["queue", "topic"]):
        assert prefixed(name, capabilities, four) == name
    assert prefixed(name, ["queue"], {"product": "RabbitMQ", "version": "3.10.8"}) == name
