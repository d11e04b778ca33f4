"""Exchanges through a real socket."""

from __future__ import annotations

import pytest
from proton import Message

from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.queue_limits import QueueLimits
from haclient.outcome import RELEASED, Outcome, OutcomeState
from tests.broker_stub.clients import Client, LinkRefusedError, running, until


def wire(broker: Broker, kind: ExchangeType, **keys: str) -> None:
    """Bind queues of those names with those keys to the exchange ``ex``."""
    exchange = broker.addresses.declare_exchange("ex", kind)
    for name, key in keys.items():
        broker.addresses.bind(exchange, broker.addresses.declare(name), key)


def depths(broker: Broker) -> dict[str, int]:
    return {queue.name: queue.depth for queue in broker.addresses}


async def test_a_message_comes_into_every_queue_that_its_subject_fits() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.TOPIC, all="#", eu="eu.*", us="us.*")
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "ex")
        outcomes = await client.send(sender, Message(subject="eu.de", body=1), Message(subject="x", body=2))
        assert all(outcome.accepted for outcome in outcomes)
        assert depths(broker) == {"all": 2, "eu": 1, "us": 0}
        await client.close()


async def test_the_key_of_the_address_is_for_messages_without_a_subject() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.DIRECT, a="a", b="b")
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "ex/a")
        assert sender.endpoint.remote_target.address == "ex/a"
        await client.send(sender, Message(body=1), Message(body=2), Message(subject="b", body=3))
        assert depths(broker) == {"a": 2, "b": 1}
        await client.close()


async def test_a_message_that_nobody_is_bound_for_is_released() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.DIRECT, a="a")
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "ex")
        assert await client.send(sender, Message(subject="b")) == [RELEASED]
        await client.send(sender, Message(subject="b"), settled=True)
        [outcome] = await client.send(sender, Message(subject="a"))
        assert outcome.accepted
        assert depths(broker) == {"a": 1}
        await client.close()


async def test_messages_to_a_deleted_exchange_are_rejected() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.FANOUT, a="")
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "ex")
        broker.addresses.delete_exchange(broker.addresses.find_exchange("ex"))
        [outcome] = await client.send(sender, Message())
        assert outcome == Outcome(OutcomeState.REJECTED, "amqp:resource-deleted", "ex is deleted")
        await client.close()


async def test_the_anonymous_relay_routes_by_to_and_subject() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.DIRECT, a="a", b="b")
        client = await Client().connect(broker.address)
        relay = await client.attach("sender", "relay")
        messages = [
            Message(address="ex", subject="a"),
            Message(address="ex/b"),
            Message(address="ex/b", subject="a"),
            Message(address="ex", subject="nowhere"),
        ]
        outcomes = await client.send(relay, *messages)
        assert [outcome.accepted for outcome in outcomes] == [True, True, True, False]
        assert outcomes[-1] == RELEASED
        assert depths(broker) == {"a": 2, "b": 1}
        await client.close()


@pytest.mark.parametrize(
    ("kind", "address", "received"),
    [
        (ExchangeType.TOPIC, "ex", ["a", "b", "a.b"]),
        (ExchangeType.TOPIC, "ex/a.#", ["a", "a.b"]),
        (ExchangeType.FANOUT, "ex", ["a", "b", "a.b"]),
        (ExchangeType.DIRECT, "ex/b", ["b"]),
    ],
)
async def test_a_receiver_from_an_exchange_gets_what_fits_its_key(
    kind: ExchangeType, address: str, received: list[str]
) -> None:
    async with running() as broker:
        wire(broker, kind)
        client = await Client().connect(broker.address)
        receiver = await client.attach("receiver", "r", address)
        assert receiver.endpoint.remote_source.address == address
        receiver.grant(10)
        sender = await client.attach("sender", "s", "ex")
        await client.send(sender, *(Message(subject=subject) for subject in ("a", "b", "a.b")))
        assert [(await client.receive()).subject for _ in received] == received
        assert client.received.empty()
        await client.close()


async def test_a_receiver_from_a_direct_exchange_must_say_its_key() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.DIRECT)
        client = await Client().connect(broker.address)
        with pytest.raises(LinkRefusedError) as refused:
            await client.attach("receiver", "r", "ex")
        assert refused.value.condition == "amqp:invalid-field"
        assert depths(broker) == {}
        await client.close()


@pytest.mark.parametrize("end", ["detach", "close", "die"])
async def test_the_queue_of_a_receiver_from_an_exchange_ends_with_it(end: str) -> None:
    async with running() as broker:
        wire(broker, ExchangeType.FANOUT)
        client = await Client().connect(broker.address)
        receivers = [await client.attach("receiver", name, "ex") for name in ("one", "two")]
        receivers[0].grant(1)
        sender = await Client().connect(broker.address)
        await sender.send(await sender.attach("sender", "s", "ex"), Message(body="x"), Message(body="y"))
        await client.receive(None)
        assert sorted(depths(broker).values()) == [2, 2]
        if end == "detach":
            for receiver in receivers:
                receiver.close()
        elif end == "close":
            await client.close()
        else:
            client.engine.abort()
        await until(lambda: not broker.addresses.bindings)
        assert depths(broker) == {}
        await sender.close()


async def test_senders_to_an_exchange_get_no_credit_while_one_of_its_queues_is_full() -> None:
    async with running(limits=QueueLimits(messages=10)) as broker:
        wire(broker, ExchangeType.TOPIC, slow="#", other="other")
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "slow"), *(Message() for _ in range(10)))
        blocked = await client.attach("sender", "blocked", "ex")
        receiver = await client.attach("receiver", "r", "slow")
        assert blocked.credit == 0
        receiver.grant(10)
        for _ in range(10):
            await client.receive()
        [outcome] = await client.send(blocked, Message(subject="other"))
        assert outcome.accepted
        await client.close()


async def test_a_sender_that_waits_for_room_goes_on_when_the_full_queue_is_deleted() -> None:
    async with running(limits=QueueLimits(messages=10)) as broker:
        wire(broker, ExchangeType.FANOUT, slow="", quick="")
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "slow"), *(Message() for _ in range(10)))
        blocked = await client.attach("sender", "blocked", "ex")
        assert blocked.credit == 0
        broker.addresses.delete(broker.addresses.find_queue("slow"))
        [outcome] = await client.send(blocked, Message())
        assert outcome.accepted
        await client.close()


async def test_a_sender_that_waits_for_room_learns_that_its_queue_is_deleted() -> None:
    async with running(limits=QueueLimits(messages=10)) as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "q"), *(Message() for _ in range(10)))
        blocked = await client.attach("sender", "blocked", "q")
        broker.addresses.delete(broker.addresses.find_queue("q"))
        [outcome] = await client.send(blocked, Message())
        assert outcome.condition == "amqp:resource-deleted"
        await client.close()


async def test_a_subject_that_is_no_text_is_a_malformed_message() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.FANOUT, a="")
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "ex")
        data = bytes(Message(subject="subject", body="x").encode()).replace(b"subject", b"\xff" * 7)
        sender.send(data, None)
        assert (await client.outcomes.get()).condition == "amqp:decode-error"
        await client.close()


async def test_an_address_with_a_slash_is_a_queue_where_no_exchange_has_the_name() -> None:
    async with running() as broker:
        client = await Client().connect(broker.address)
        await client.send(await client.attach("sender", "s", "ex/key"), Message())
        assert depths(broker) == {"ex/key": 1}
        await client.close()


async def test_a_second_exchange_of_the_name_is_not_what_a_sender_was_attached_to() -> None:
    async with running() as broker:
        wire(broker, ExchangeType.FANOUT, a="")
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "ex")
        broker.addresses.declare_exchange("ex", ExchangeType.FANOUT)
        [outcome] = await client.send(sender, Message())
        assert outcome.condition == "amqp:resource-deleted"
        await client.close()
