"""A repeated message is recognised by its duplicate-detection id, if its first copy still exists."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proton import Message

from haclient import aio
from tests.broker_stub.clients import Client
from tests.broker_stub.replication.cluster import Cluster, Member, bodies, depth, send
from tests.broker_stub.replication.test_replicate_modes import in_target

DUPLICATE = {"properties": {"_AMQ_DUPL_ID": "x1"}}


async def only_here(primary: Member, backup: Member) -> None:
    """Send one message to both, then a second, unsettled, that a silent backup does not get."""
    await send(primary, "orders", "before")
    backup.pause()
    client = await Client().connect(primary.address)
    link = await client.attach("sender", "s", "orders")
    link.send(bytes(Message(body="X", **DUPLICATE).encode()), None)
    await primary.until(lambda status: depth(status, "orders") == 2)


async def test_the_id_of_a_message_that_was_discarded_is_forgotten(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await only_here(a, b)
        a.pause()
        await b.kill()
        await b.start()
        await b.promote()
        a.resume()
        await a.until("ready")
        await b.kill()
        await a.promote()
        await send(a, "orders", "X", **DUPLICATE)
        assert await bodies(a, "orders") == ["before", "X"]


@pytest.mark.slow
async def test_so_is_the_id_in_the_store(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await only_here(a, b)
        await a.kill()
        await b.kill()
        await b.start()
        await b.promote()
        await a.start()
        await a.until("ready")
        await b.kill()
        await a.promote()
        await send(a, "orders", "X", **DUPLICATE)
        assert await bodies(a, "orders") == ["before", "X"]


async def test_a_second_copy_in_a_second_generation_does_not_wait_for_the_first(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await only_here(a, b)
        await a.demote()
        await a.promote()
        async with asyncio.timeout(30):
            await send(a, "orders", "X", **DUPLICATE)
        assert await bodies(a, "orders") == ["before", "X"]


@pytest.mark.slow
@pytest.mark.parametrize("live", [True, False], ids=["live", "by catching up"])
@pytest.mark.parametrize("mode", ["all", "configuration", "none"])
async def test_an_id_is_known_where_its_message_is(tmp_path: Path, mode: str, *, live: bool) -> None:
    """The Open of a member says so: a failover that loses messages of a queue loses their ids too."""
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        if not live:
            await b.stop()
        async with aio.connect(a.url) as connection:
            sender = await connection.create_sender("q", durable=False, configure=in_target(mode))
            await sender.send(Message(body="X"), duplicate_id="x1")
        if not live:
            await b.start()
        await b.until("ready")
        await a.kill()
        await b.promote()
        async with aio.connect(b.url) as connection:
            sender = await connection.create_sender("q", durable=False, configure=in_target(mode))
            await sender.send(Message(body="X"), duplicate_id="x1")
        assert await bodies(b, "q") == ["X"]


@pytest.mark.slow
async def test_so_it_is_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await b.kill()
        for _ in range(2):
            async with aio.connect(a.url) as connection:
                sender = await connection.create_sender("q", durable=False)
                await sender.send(Message(body="X"), duplicate_id="x1")
            await a.kill()
            await a.start()
            await a.promote()
        assert await bodies(a, "q") == ["X"]
