"""A site without room for another site's events: its link waits or ends, and no event is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_stub.broker import Broker
from broker_stub.connections.incoming_links import CREDIT
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.queueing.queue_limits import QueueLimits, StoreLimits
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SiteMode
from broker_stub.sites.at_limit import AtLimit
from haclient.outcome import ACCEPTED
from haclient.telemetry import TelemetrySettings
from tests.broker_stub.clients import Client, running, until

SIZE = 1000


@asynccontextmanager
async def followed(target: Broker, *queues: str) -> AsyncIterator[Client]:
    """Make a source of the target's link, with these queues; return a client that sends to it."""
    async with running() as source:
        for name in queues:
            source.addresses.declare(name, site=SiteMode.ALL)
        target.addresses.declare_exchange(
            "link", ExchangeType.REPLICATION, options={"from": f"amqp://{source.address.authority}"}
        )
        client = await Client().connect(source.address)
        yield client
        await client.close()


def link(broker: Broker) -> dict[str, Any]:
    [facts] = broker.site.status()["links"]
    return dict(facts)


def depth(broker: Broker, queue: str) -> Callable[[], int]:
    return lambda: found.depth if (found := broker.addresses.find_queue(queue)) else 0


async def fill(client: Client, queue: str, count: int) -> None:
    sender = await client.attach("sender", f"to {queue}", queue)
    await client.send(sender, *[Message(id=number, body=b"x" * SIZE) for number in range(count)])


def reported(telemetry: Path) -> str:
    return "".join(path.read_text() for path in telemetry.rglob("*.jsonl"))


async def test_a_link_waits_at_the_limit_of_bytes_and_goes_on_where_it_was(tmp_path: Path) -> None:
    options = {"store_limits": StoreLimits(size=20 * SIZE), "telemetry": TelemetrySettings(tmp_path)}
    async with running(**options) as target, followed(target, "q") as client:
        await fill(client, "q", 60)
        await until(lambda: target.addresses.total.excessive)
        before = depth(target, "q")()
        assert before < 30
        await until(lambda: '"limit"' in reported(tmp_path))
        assert (link(target)["state"], depth(target, "q")()) == ("connected", before)
        consumer = await Client().connect(target.address)
        receiver = await consumer.attach("receiver", "r", "q")
        receiver.grant(60)
        assert [(await consumer.receive()).id for _ in range(60)] == list(range(60))
        await consumer.close()


async def test_a_link_ends_at_the_limit_of_bytes_where_it_is_told_to(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "store_limits": StoreLimits(size=20 * SIZE),
        "site_at_limit": AtLimit.STOP,
        "telemetry": TelemetrySettings(tmp_path),
    }
    async with running(**options) as target, followed(target, "q") as client:
        await fill(client, "q", 60)
        await until(lambda: link(target)["state"] == "stopped")
        assert link(target)["error"] == "the queues of this site are above --max-bytes"
        await until(lambda: '"limit"' in reported(tmp_path))
        assert 20 <= depth(target, "q")() < 30


async def test_events_that_empty_a_queue_are_applied_at_the_limit() -> None:
    """The source is at its own limit, which is the same."""
    async with running(store_limits=StoreLimits(size=20 * SIZE)) as target, followed(target, "q") as client:
        await fill(client, "q", 20)
        await until(lambda: depth(target, "q")() == 20)
        assert target.addresses.total.full
        receiver = await client.attach("receiver", "r", "q")
        receiver.grant(20)
        for _ in range(20):
            await client.receive()
        await until(lambda: depth(target, "q")() == 0)


async def test_events_of_one_queue_too_many_are_kept_until_it_is_declared() -> None:
    async with (
        running(store_limits=StoreLimits(queues=2)) as target,
        followed(target, "a", "b", "c") as client,
    ):
        for name in "abc":
            await fill(client, name, 3)
        await until(lambda: depth(target, "link.parked")() == 3)
        assert (depth(target, "a")(), depth(target, "b")()) == (3, 3)
        removed = target.addresses.find_queue("a")
        assert removed is not None
        target.addresses.delete(removed)
        target.addresses.delete(target.addresses.queue("b"))
        target.addresses.declare("c")
        await until(lambda: depth(target, "c")() == 3)
        assert depth(target, "link.parked")() == 0


@pytest.mark.parametrize("at_limit", AtLimit)
async def test_a_link_that_is_at_its_limit_can_be_stopped(at_limit: AtLimit) -> None:
    limits = StoreLimits(size=5 * SIZE)
    async with (
        running(store_limits=limits, site_at_limit=at_limit) as target,
        followed(target, "q") as client,
    ):
        await fill(client, "q", 20)
        await until(lambda: target.addresses.total.excessive)
        async with asyncio.timeout(10):
            await target.site.close()


LIMIT = 50


async def send_all(client: Client, sender: Any, count: int) -> int:
    """Send messages while there is credit, and wait for their outcomes; return their number."""
    sent = 0
    while sent < count and sender.credit > 0:
        sender.send(bytes(Message(body=b"x").encode()), None)
        sent += 1
    for _ in range(sent):
        assert await client.outcomes.get() is ACCEPTED
    return sent


@asynccontextmanager
async def draining(broker: Broker, queue: str) -> AsyncIterator[None]:
    """Run a consumer that accepts everything."""
    client = await Client().connect(broker.address)
    receiver = await client.attach("receiver", "r", queue)
    receiver.grant(100_000)

    async def take() -> None:
        while True:
            await client.receive()

    taking = asyncio.create_task(take())
    yield
    taking.cancel()
    await client.close()


async def test_producers_wait_while_the_events_for_another_site_are_as_many_as_a_queue_may_have() -> None:
    """Their own queue is always empty, because a consumer accepts their messages."""
    async with running(limits=QueueLimits(messages=LIMIT)) as broker:
        queue = broker.addresses.declare("q", site=SiteMode.ENQUEUES)
        log = broker.addresses.queue(REPLICATION_QUEUE)
        async with draining(broker, "q"):
            client = await Client().connect(broker.address)
            sender = await client.attach("sender", "s", "q")
            sent = 0
            while more := await send_all(client, sender, 5000 - sent):
                sent += more
            assert LIMIT <= log.depth == sent <= LIMIT + CREDIT
            await until(lambda: queue.depth == 0)
            assert queue.full

            reader = await Client().connect(broker.address)
            (await reader.attach("receiver", "events", REPLICATION_QUEUE)).grant(sent)
            for _ in range(sent):
                await reader.receive()
            await until(lambda: sender.credit > 0)
            assert not queue.full
            await reader.close()
            await client.close()


async def test_producers_go_on_when_their_queue_has_no_events_any_more() -> None:
    async with running(limits=QueueLimits(messages=LIMIT)) as broker:
        queue = broker.addresses.declare("q", site=SiteMode.ALL)
        other = broker.addresses.declare("other")
        async with draining(broker, "q"):
            client = await Client().connect(broker.address)
            sender = await client.attach("sender", "s", "q")
            while await send_all(client, sender, 5000):
                pass
            assert queue.full
            assert not other.full
            assert await send_all(client, await client.attach("sender", "t", "other"), 1) == 1
            broker.addresses.set_site(queue, SiteMode.NONE)
            await until(lambda: sender.credit > 0)
            await client.close()


async def test_a_queue_that_is_deleted_waits_for_no_room_for_events() -> None:
    async with running(limits=QueueLimits(messages=LIMIT)) as broker:
        queue = broker.addresses.declare("q", site=SiteMode.ENQUEUES)
        client = await Client().connect(broker.address)
        sender = await client.attach("sender", "s", "q")
        while await send_all(client, sender, 5000):
            pass
        log = broker.addresses.queue(REPLICATION_QUEUE)
        assert queue.full
        assert log._watermarks.waiting
        broker.addresses.delete(queue)
        assert not log._watermarks.waiting
        await client.close()
