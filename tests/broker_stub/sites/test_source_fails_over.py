"""Events in a cluster: none is lost, none is repeated, and they agree with the queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.queueing.site_state import REPLICATION_QUEUE, SITE_PROPERTY
from broker_stub.sites.event import Event
from haclient import Credentials, aio
from haclient.errors import ReceiveTimeout, StaleDelivery
from tests import stores
from tests.broker_stub.replication.cluster import USER, Cluster, Member, send
from tests.broker_stub.replication.load import load
from tests.broker_stub.sites.watching import PATIENCE, check_sequence, read_events, replay

_LINK = Credentials(user=USER[0], password=USER[1])
_FOLLOWED = ("--link-user", USER[0])


async def read(url: str, count: int, *, accept: bool = False) -> list[Event]:
    """Read the first events as a link does."""
    return await read_events(url, count, accept=accept, credentials=_LINK)


async def declare(member: Member, mode: str) -> None:
    await member.call("CREATE", kind=QUEUE_TYPE, name="orders", **{SITE_PROPERTY: mode})


@asynccontextmanager
async def consuming(url: str) -> AsyncIterator[None]:
    """Run a consumer that accepts, rejects and releases messages."""

    async def run(connection: aio.Connection) -> None:
        receiver = await connection.create_receiver("orders", credit=20)
        for number in range(10**9):
            delivery = await receiver.receive()
            with suppress(StaleDelivery):
                if number % 10 == 0:
                    await delivery.reject()
                elif number % 10 == 1:
                    await delivery.release()
                else:
                    await delivery.accept()

    async with aio.connect(url) as connection:
        task = asyncio.create_task(run(connection))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def events_of(member: Member) -> list[Event]:
    count = await member.depth(REPLICATION_QUEUE)
    return await read(member.url, count or 0)


async def positions(member: Member) -> list[int]:
    """Return the positions in the queue, from the store of a stopped member."""
    return [number for number, *_ in (await stores.contents(member.store))["orders"]]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["enqueues", "all"])
async def test_after_each_failover_the_events_say_what_the_queue_has(tmp_path: Path, mode: str) -> None:
    async with Cluster(tmp_path, backup_timeout=5.0, arguments=_FOLLOWED) as cluster:
        a, b = await cluster.pair()
        await declare(a, mode)
        async with load(cluster.url) as made, consuming(cluster.url):
            for primary, successor in ((a, b), (b, a)):
                await made.goes_on()
                await primary.kill()
                await successor.promote()
                await made.goes_on(50)
                await primary.start()
                await primary.until("ready")
        events = await events_of(a)
        check_sequence(events)
        await a.stop()
        left, reported = await positions(a), replay(events)["orders"]
        if mode == "all":
            assert reported == left
        else:
            assert set(left) <= set(reported)


@pytest.mark.slow
async def test_sequences_go_on_after_a_restart_although_every_event_was_taken(tmp_path: Path) -> None:
    async with Cluster(tmp_path, arguments=_FOLLOWED) as cluster:
        a, b = await cluster.pair()
        await declare(a, "all")
        await send(a, "orders", *range(5))
        check_sequence(await read(a.url, 5, accept=True))
        await a.until(lambda status: status.facts["site"]["source"]["lag_events"] == 0)
        await b.kill()
        await a.until(lambda status: not status.facts["replication"]["replicas"])
        await a.kill()
        await a.start()
        await a.promote()
        await send(a, "orders", 5)
        check_sequence(await read(a.url, 1, accept=True), first=6)
        await b.start()
        await b.until("ready")
        await a.kill()
        await b.promote()
        await send(b, "orders", 6)
        check_sequence(await read(b.url, 1), first=7)


async def test_a_replica_that_joins_late_has_the_progress_from_before(tmp_path: Path) -> None:
    async with Cluster(tmp_path, arguments=_FOLLOWED) as cluster:
        a, b = cluster.members
        await a.start()
        await a.promote()
        await declare(a, "enqueues")
        await send(a, "orders", *range(5))
        await read(a.url, 5, accept=True)
        await a.until(lambda status: status.facts["site"]["source"]["lag_events"] == 0)
        await b.start()
        await b.until("ready")
        await a.kill()
        await b.promote()
        assert await b.depth("orders") == 5
        assert await b.depth(REPLICATION_QUEUE) == 0
        await send(b, "orders", 5)
        check_sequence(await read(b.url, 1), first=6)


async def test_an_event_is_not_handed_out_before_the_backup_has_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path, backup_timeout=PATIENCE, arguments=_FOLLOWED) as cluster:
        a, b = await cluster.pair()
        await declare(a, "all")
        await send(a, "orders", 0)
        await read(a.url, 1, accept=True)
        b.pause()
        async with aio.connect(a.url, credentials=_LINK) as connection:
            sender = await connection.create_sender("orders")
            unsettled = asyncio.create_task(send(a, "orders", 1))
            await a.until(lambda status: status.facts["site"]["source"]["last_sequence"] == 2)
            receiver = await connection.create_receiver(REPLICATION_QUEUE)
            consumer = await connection.create_receiver("orders", credit=1)
            await (await consumer.receive(timeout=PATIENCE)).accept()
            await a.until(lambda status: status.facts["site"]["source"]["last_sequence"] == 3)
            with pytest.raises(ReceiveTimeout):
                await receiver.receive(timeout=0.2)
            b.resume()
            assert [(await receiver.receive(timeout=PATIENCE)).settled for _ in range(2)] == [False, False]
            await unsettled
            await sender.close()
