"""Drains, selectors and subscriptions of our broker; over both APIs."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from haclient.errors import FilterNotSupported, LinkRefused
from tests.members import Members
from tests.peers.apis import API


def bodies(deliveries: list[Any]) -> list[Any]:
    return [each.message.body for each in deliveries]


async def test_a_selector_holds_and_another_filter_does_not(api: API, members: Members) -> None:
    connection = await api.connect(f"amqp://{members.start('alone', role='primary').address}")
    red = await connection.create_receiver("q", selector="colour = 'red'")
    sender = await connection.create_sender("q")
    for number in range(6):
        await sender.send(Message(body=number, properties={"colour": "red" if number % 2 else "blue"}))
    assert bodies(await red.receive_many(3, min_count=3, timeout=10)) == [1, 3, 5]
    await red.drain(timeout=10)
    with pytest.raises(FilterNotSupported, match="ignores 'vendor'"):
        await connection.create_receiver("q", filters={"vendor": "x"})
    with pytest.raises(LinkRefused, match="no selector: 'the end' where a value is expected"):
        await connection.create_receiver("q", selector="colour =")
    await connection.close()


async def test_a_drain_of_an_empty_queue_and_of_a_full_one(api: API, members: Members) -> None:
    connection = await api.connect(f"amqp://{members.start('alone', role='primary').address}")
    receiver = await connection.create_receiver("q", credit=10)
    await receiver.drain(timeout=10)
    sender = await connection.create_sender("q")
    for number in range(25):
        await sender.send(Message(body=number))
    assert await receiver.receive_many(1, timeout=0) == []
    got = await receiver.receive_many(10, min_count=10, timeout=10)
    await receiver.drain(timeout=10)
    while batch := await receiver.receive_many(10, timeout=0):
        got += batch
    assert bodies(got) == list(range(len(got)))
    assert await receiver.accept_many(got) == []
    await receiver.close()
    rest = await connection.create_receiver("q", credit=0)
    await rest.drain(timeout=10)
    await rest.add_credit(100)
    await rest.drain(timeout=10)
    assert bodies(await rest.receive_many(100, timeout=0)) == list(range(len(got), 25))
    await connection.close()


async def test_a_drain_while_browsing(api: API, members: Members) -> None:
    connection = await api.connect(f"amqp://{members.start('alone', role='primary').address}")
    sender = await connection.create_sender("q")
    for number in range(5):
        await sender.send(Message(body=number))
    for credit in (3, 10):
        browser = await connection.create_receiver("q", browse=True, credit=credit)
        await browser.drain(timeout=10)
        assert bodies(await browser.receive_many(100, timeout=0)) == list(range(min(credit, 5)))
        await browser.close()
    await connection.close()


async def test_a_subscription_to_a_queue_is_refused(api: API, members: Members) -> None:
    """Two receivers that subscribe must not share the messages of a queue."""
    member = members.start("alone", role="primary")
    connection = await api.connect(f"amqp://{member.address}?client_id=me")
    for options in ({}, {"name": "audit", "durable": True}, {"name": "audit", "shared": True}):
        with pytest.raises(LinkRefused, match="'prices' is no exchange, and a queue has no subscriptions"):
            await connection.subscribe("prices", **options)
    with pytest.raises(LinkRefused, match="there is no subscription"):
        await connection.unsubscribe("audit")
    await connection.close()
    assert "prices" not in [queue["name"] for queue in member.status().facts["queues"]]


async def test_durable_and_shared_subscriptions(api: API, members: Members) -> None:
    member = members.start("alone", role="primary")
    member.ask(lambda admin: admin.create("haclient.exchange", "prices", type="fanout"))
    connection = await api.connect(f"amqp://{member.address}?client_id=me")
    durable = await connection.subscribe("prices", name="audit", durable=True)
    team = [await connection.subscribe("prices", name="team", shared=True) for _ in range(2)]
    await durable.close()
    sender = await connection.create_sender("prices")
    for number in range(4):
        await sender.send(number)
    shared = [bodies(await receiver.receive_many(4, timeout=10)) for receiver in team]
    assert sorted(body for some in shared for body in some) == list(range(4))
    again = await connection.subscribe("prices", name="audit", durable=True)
    assert bodies(await again.receive_many(4, min_count=4, timeout=10)) == list(range(4))
    other = await api.connect(f"amqp://{member.address}?client_id=me")
    with pytest.raises(LinkRefused, match="is in use"):
        await other.unsubscribe("audit")
    await other.close()
    for receiver in (again, *team):
        await receiver.close()
    await connection.unsubscribe("audit")
    await connection.close()
    assert not [each for each in member.status().facts["queues"] if each["name"].startswith("subscription/")]


async def test_a_subscription_whose_accepts_are_confirmed(api: API, members: Members) -> None:
    member = members.start("alone", role="primary")
    member.ask(lambda admin: admin.create("haclient.exchange", "prices", type="fanout"))
    connection = await api.connect(f"amqp://{member.address}?client_id=me")
    durable = await connection.subscribe("prices", name="audit", durable=True, confirm=True)
    team = [await connection.subscribe("prices", name="team", shared=True, confirm=True) for _ in range(2)]
    sender = await connection.create_sender("prices")
    for number in range(4):
        await sender.send(number)
    for receiver, count in ((durable, 4), (team[0], 2), (team[1], 2)):
        await receiver.accept_many(
            await receiver.receive_many(count, min_count=count, timeout=10), confirm=True
        )
    depths = {queue["name"]: queue["depth"] for queue in member.status().facts["queues"]}
    assert [depth for name, depth in depths.items() if name.startswith("subscription/")] == [0, 0]
    await connection.close()


async def test_each_subscription_of_an_exchange_gets_every_message(api: API, members: Members) -> None:
    member = members.start("alone", role="primary")
    member.ask(lambda admin: admin.create("haclient.exchange", "prices", type="fanout"))
    connection = await api.connect(f"amqp://{member.address}")
    subscriptions = [await connection.subscribe("prices") for _ in range(2)]
    await (await connection.create_sender("prices")).send("one")
    for receiver in subscriptions:
        assert (await receiver.receive(timeout=10)).body == "one"
    await connection.close()
