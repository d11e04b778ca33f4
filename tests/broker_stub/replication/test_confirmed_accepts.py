"""In a pair, a message whose accept was confirmed is never redelivered, and never confirmed to another
consumer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from haclient import aio
from haclient.errors import ConfirmTimeout, StaleDelivery
from tests.broker_stub import raw_client as raw
from tests.broker_stub.connections.test_confirmations import ACCEPTED, RELEASED, Consumer, accepted, outcome
from tests.broker_stub.replication.cluster import Cluster, Member, depth, send

FAILOVERS = 6
OPTIONS: dict[str, Any] = {"backoff_base": 0.01, "backoff_max": 0.1, "heartbeat": 2.0}


@asynccontextmanager
async def consuming(member: Member) -> AsyncIterator[Consumer]:
    async with raw.raw_client(member.address) as client:
        yield Consumer(client)


async def confirmed(primary: Member, count: int) -> list[bytes]:
    """Send and accept ``count`` messages, and leave two; return the tags."""
    for number in range(count + 2):
        await send(primary, "orders", number)
    async with consuming(primary) as consumer:
        await consumer.attach()
        tags = await consumer.receive(count + 2)
        await consumer.client.write(outcome(ACCEPTED, 0, count - 1))
        assert await consumer.settled(count) == dict.fromkeys(range(count), ACCEPTED)
    return tags


async def asked(member: Member, tags: list[bytes]) -> dict[bytes, int]:
    async with consuming(member) as consumer:
        return await consumer.attach(accepted(tags), credit=0)


async def test_a_backup_that_is_promoted_knows_what_was_accepted(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        tags = await confirmed(a, 3)
        await a.kill()
        await b.promote()
        assert await asked(b, tags) == dict.fromkeys(tags[:3], ACCEPTED)
        await b.until(lambda status: depth(status, "orders") == 2)


async def test_so_does_one_that_has_caught_up_and_the_pair_after_a_restart_of_both(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await b.kill()
        tags = await confirmed(a, 3)
        await b.start()
        await b.until("ready")
        await a.kill()
        await b.promote()
        await a.start()
        await a.until("ready")
        assert await asked(b, tags) == dict.fromkeys(tags[:3], ACCEPTED)
        await a.kill()
        await b.kill()
        await b.start()
        await b.promote()
        assert await asked(b, tags) == dict.fromkeys(tags[:3], ACCEPTED)
        await a.start()
        await a.until("ready")
        await b.kill()
        await a.promote()
        assert await asked(a, tags) == dict.fromkeys(tags[:3], ACCEPTED)


async def test_nothing_is_confirmed_while_the_backup_is_silent_and_the_doubt_is_resolved(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, backup_timeout=60.0) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", 0, 1)
        async with consuming(a) as consumer:
            await consumer.attach()
            tags = (await consumer.receive(2))[:1]
            b.pause()
            await consumer.client.write(outcome(ACCEPTED, 0))
            await a.until(lambda status: depth(status, "orders") == 1)
            # A release waits for no replica: its answer is the next frame.
            await consumer.client.write(outcome(RELEASED, 1))
            assert await consumer.settled(1) == {1: RELEASED}
            # Only the old primary knew of the accept, and it is gone: the message is redelivered.
            await a.kill()
        b.resume()
        await b.promote()
        states = await asked(b, tags)
        # The backup had the event in its socket, or had not.
        assert states in ({}, {tags[0]: ACCEPTED})
        await b.until(lambda status: depth(status, "orders") == 1 + (not states))


async def test_a_primary_that_wakes_after_its_successor_has_begun_confirms_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", 0)
        async with consuming(a) as consumer:
            await consumer.attach()
            tags = await consumer.receive(1)
            a.pause()
            await consumer.client.write(outcome(ACCEPTED, 0))
            await b.promote()
            assert await asked(b, tags) == {}
            a.resume()
            codes = set()
            while raw.CLOSE not in codes:
                codes.add((await consumer.client.read()).code)
            assert raw.DISPOSITION not in codes
        await a.until("ready")


class Traffic:
    """A producer and two consumers that confirm, over every failover, with their records.

    :ivar again: bodies of deliveries that were confirmed before they arrived.
    :ivar stale: how many accepts were left without an answer.
    """

    def __init__(self, url: str, least: int) -> None:
        self.sent = self.stale = 0
        self.confirmed: list[int] = []
        self.again: list[int] = []
        self._url = url
        self._least = least
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(each) for each in (self._produce(), self._consume(), self._consume())
        ]

    async def finish(self) -> None:
        """Wait until everything is sent and consumed."""
        self._stopping.set()
        async with asyncio.timeout(120):
            await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def more(self, count: int) -> None:
        """Wait until ``count`` more are confirmed."""
        goal = len(self.confirmed) + count
        async with asyncio.timeout(60):
            while len(self.confirmed) < goal:  # noqa: ASYNC110 - while messages flow
                await asyncio.sleep(0.01)

    @property
    def _ended(self) -> bool:
        return self._stopping.is_set() and self._tasks[0].done()

    async def _produce(self) -> None:
        async with aio.connect(self._url, **OPTIONS) as connection:
            sender = await connection.create_sender("orders")
            while not self._stopping.is_set() or self.sent < self._least:
                await asyncio.gather(*[await sender.submit(self.sent + number) for number in range(10)])
                self.sent += 10

    async def _consume(self) -> None:
        async with aio.connect(self._url, **OPTIONS) as connection, asyncio.TaskGroup() as group:
            receiver = await connection.create_receiver("orders", credit=20, confirm=True)
            idle = 0
            while idle < 3:
                batch = await receiver.receive_many(20, timeout=0.5)
                idle = 0 if batch or not self._ended else idle + 1
                for delivery in batch:
                    group.create_task(self._accept(delivery))

    async def _accept(self, delivery: aio.Delivery) -> None:
        if delivery.body in self.confirmed:
            self.again.append(delivery.body)
        while True:
            try:
                await delivery.accept(confirm=True, timeout=1)
            except ConfirmTimeout:
                continue
            except StaleDelivery:
                self.stale += 1
            else:
                self.confirmed.append(delivery.body)
            return


@pytest.mark.slow
async def test_under_many_failovers_nothing_is_confirmed_twice_and_nothing_confirmed_comes_again(
    tmp_path: Path,
) -> None:
    """The primary is killed repeatedly, while two consumers confirm a producer's messages."""
    async with Cluster(tmp_path) as cluster:
        primary, backup = await cluster.pair()
        traffic = Traffic(f"amqp://{primary.address.authority},{backup.address.authority}", 300)
        traffic.start()
        try:
            for _ in range(FAILOVERS):
                await traffic.more(20)
                await primary.kill()
                await backup.promote()
                await primary.start()
                await primary.until("ready")
                primary, backup = backup, primary
            await traffic.finish()
        finally:
            await traffic.stop()
        counts = Counter(traffic.confirmed)
        assert [body for body, count in counts.items() if count > 1] == [], "confirmed twice"
        assert traffic.again == [], "confirmed, and came again"
        assert counts.keys() <= set(range(traffic.sent)), "never sent"
        await primary.until(lambda status: depth(status, "orders") == 0)
        # For each message that is neither confirmed nor present, the consumer got a stale accept.
        assert traffic.sent - len(counts) <= traffic.stale
