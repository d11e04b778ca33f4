"""A member without room for messages stops its producers, and later stores the messages they sent."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from proton import Message

from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.intake import Intake
from haclient import aio
from haclient.errors import LinkClosed
from tests.broker_stub import raw_client as raw
from tests.broker_stub.clients import Client, running, until


def waiting(intake: Intake) -> int:
    """How many wait for it."""
    return len(intake._waiting) + len(intake._at_restart)


def bodies(broker: Broker, queue: str) -> list[object]:
    found = broker.addresses.find_queue(queue)
    assert found is not None
    decoded = []
    for number in found.ids():
        stored = found.message(number)
        assert stored is not None
        message = Message()
        message.decode(stored.data)
        decoded.append(message.body)
    return decoded


@pytest.mark.parametrize("stopped", [False, True])
async def test_no_credit_is_given_until_there_is_room(*, stopped: bool) -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        broker.addresses.intake.set(full=True, stopped=stopped)
        sender = await connection.create_sender("orders")
        sending = [asyncio.ensure_future(sender.send(Message(body=n), timeout=30)) for n in range(3)]
        assert await connection.create_receiver("orders"), "consumers go on"
        assert not any(future.done() for future in sending)
        broker.addresses.intake.set(full=False, stopped=False)
        assert all(outcome.accepted for outcome in await asyncio.gather(*sending))


@pytest.mark.parametrize("address", ["orders", "fanout"])
async def test_what_arrives_on_old_credit_is_kept_in_order_and_unsettled(address: str) -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        queue = broker.addresses.declare("orders")
        if address == "fanout":
            exchange = broker.addresses.declare_exchange("fanout", ExchangeType.FANOUT)
            broker.addresses.bind(exchange, queue)
        sender = await connection.create_sender(address)
        assert (await sender.send(Message(body=-1), timeout=30)).accepted
        for round_ in range(2):
            broker.addresses.intake.set(full=True, stopped=True)
            futures = [await sender.submit(Message(body=3 * round_ + n)) for n in range(3)]
            probe = await connection.create_sender("orders")  # answered after the messages
            await probe.close()
            assert not any(future.done() for future in futures)
            assert len(bodies(broker, "orders")) == 1 + 3 * round_
            broker.addresses.intake.set(full=False, stopped=False)
            assert all(outcome.accepted for outcome in await asyncio.gather(*futures))
        assert bodies(broker, "orders") == list(range(-1, 6))


async def test_what_was_kept_for_a_link_that_is_gone_is_dropped() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        sender = await connection.create_sender("orders")
        assert (await sender.send(Message(body=1), timeout=30)).accepted
        broker.addresses.intake.set(full=True, stopped=True)
        future = await sender.submit(Message(body=2))
        await sender.close()
        await (await connection.create_sender("orders")).close()  # answered after both
        with pytest.raises(LinkClosed):
            await future
        broker.addresses.intake.set(full=False, stopped=False)
        assert bodies(broker, "orders") == [1]


async def test_temporary_queues_are_not_held_up() -> None:
    async with running() as broker, aio.connect(str(broker.address)) as connection:
        broker.addresses.intake.set(full=True, stopped=True)
        queue = broker.addresses.temporary(object())
        sender = await connection.create_sender(queue.name)
        assert (await sender.send(Message(body="answer"), timeout=30)).accepted


@pytest.mark.parametrize("address", ["orders", None], ids=["queue", "anonymous"])
@pytest.mark.parametrize("stopped", [False, True])
async def test_links_that_waited_for_room_are_forgotten(*, address: str | None, stopped: bool) -> None:
    async with running() as broker:
        intake = broker.addresses.intake
        broker.addresses.declare("orders")
        client = await Client().connect(broker.address)
        for _ in range(20):
            sender = await client.attach("sender", "s", address)
            intake.set(full=True, stopped=stopped)
            other = await client.attach("sender", "other", "orders")
            if stopped or address is None:
                data = bytes(Message(body="x", address="orders").encode())
                sender.send(data, None, settled=True)
            other.close()
            sender.close()
            for _ in range(2):
                await client.links.get()
            assert not waiting(intake)
            intake.set(full=False, stopped=False)
        assert len(bodies(broker, "orders")) == (0 if stopped or address else 20)
        await client.attach("sender", "s", address)
        intake.set(full=True, stopped=stopped)
        await client.attach("sender", "other", "orders")
        assert waiting(intake) == 1
        assert client.engine is not None
        client.engine.abort()
        await until(lambda: not waiting(intake))


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_client_that_sends_without_credit_loses_its_link_and_leaves_nothing(*, stopped: bool) -> None:
    async with running() as broker, raw.raw_client(broker.address) as client:
        broker.addresses.intake.set(full=True, stopped=stopped)
        transfers = [raw.transfer(0, number, raw.message(10)) for number in range(100)]
        await client.open(raw.begin(), raw.attach_sender("s", 0, "orders"))
        await client.next(raw.ATTACH)
        await client.write(*transfers)
        found = await client.next(raw.DETACH)
        assert found.condition == "amqp:link:transfer-limit-exceeded"
        assert not waiting(broker.addresses.intake), "although the client has not detached"
        broker.addresses.intake.set(full=False, stopped=False)
        queue = broker.addresses.find_queue("orders")
        assert queue is not None
        assert queue.depth <= (0 if stopped else 1)


@pytest.mark.parametrize("seed", range(6))
async def test_however_often_the_levels_change_everything_is_settled_in_order(seed: int) -> None:
    rng = random.Random(seed)
    async with running() as broker, aio.connect(str(broker.address), window=3000) as connection:
        intake = broker.addresses.intake
        exchange = broker.addresses.declare_exchange("fanout", ExchangeType.FANOUT)
        for name in ("a", "b"):
            queue = broker.addresses.declare(name)
            broker.addresses.bind(exchange, queue) if name == "b" else None
        senders = [await connection.create_sender(each) for each in ("a", "fanout", None)]
        numbers, futures = [itertools.count() for _ in range(4)], []
        for _ in range(60):
            level = rng.choice(("open", "full", "stopped"))
            intake.set(full=level != "open", stopped=level == "stopped")
            for _ in range(rng.randrange(60)):
                which = rng.randrange(4)
                body = f"{which} {next(numbers[which])}"
                address = (None, None, "a", "b")[which]
                futures.append(
                    asyncio.ensure_future(
                        senders[min(which, 2)].send(Message(body=body, address=address), timeout=60)
                    )
                )
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))
        intake.set(full=False, stopped=False)
        assert all(outcome.accepted for outcome in await asyncio.gather(*futures))
        assert not waiting(intake)
        got = [str(body).split() for name in ("a", "b") for body in bodies(broker, name)]
        for which, count in enumerate(numbers):
            numbered = [int(number) for sent, number in got if int(sent) == which]
            assert numbered == list(range(next(count)))
