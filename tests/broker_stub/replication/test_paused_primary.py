"""A primary that is paused while another takes over, and resumes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from tests.broker_stub.clients import Client
from tests.broker_stub.replication.cluster import Cluster, bodies, depth, send, stop_equal


def send_unsettled(link: Any, count: int) -> None:
    """Send messages that stay unsettled for now: they leave at the end of the loop iteration."""
    for number in range(count):
        link.send(bytes(Message(body=f"tail {number}").encode()), None)


async def test_a_primary_that_wakes_after_its_successor_took_over_settles_nothing_and_follows(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "orders")
        assert [outcome.accepted for outcome in await client.send(link, Message(body="before"))] == [True]
        a.pause()
        send_unsettled(link, 50)
        assert (await b.promote()).generation == 2
        await send(b, "orders", "after 1", "after 2")
        a.resume()
        reason = await client.end()
        assert reason.condition.name in ("amqp:connection:forced", "amqp:connection:redirect")
        assert client.outcomes.empty()
        status = await a.until("ready")
        assert status.generation == 2
        content = await stop_equal(b, a)
        assert not [data for _, data, _ in content["orders"] if b"tail" in data]
        assert len(content["orders"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_primary_that_wakes_keeps_the_backup_that_had_answered_it_meanwhile(
    tmp_path: Path, loop: str
) -> None:
    """Answers that it awaited longer than its time-out are in its sockets, still unread."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    async with Cluster(tmp_path, backup_timeout=3.0, arguments=("--loop", loop)) as cluster:
        a, b = await cluster.pair()
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "orders")
        b.pause()
        send_unsettled(link, 50)
        await a.until(lambda status: depth(status, "orders") == 50)
        a.pause()
        b.resume()
        await asyncio.sleep(4.0)  # longer than the time-out, which is the case under test
        a.resume()
        async with asyncio.timeout(30):
            assert all([(await client.outcomes.get()).accepted for _ in range(50)])
        status = await a.status()
        assert (status.role, status.generation) == ("primary", 1)
        assert "dropped" not in a.log


async def test_what_it_took_unsettled_is_discarded_from_a_store_that_has_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "before")
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "orders")
        b.pause()
        send_unsettled(link, 50)
        await a.until(lambda status: depth(status, "orders") == 51)
        a.pause()
        await b.kill()
        await b.start()
        assert (await b.promote()).generation == 2
        await send(b, "orders", "after")
        a.resume()
        await a.until("ready")
        assert client.outcomes.empty()
        await b.demote()
        assert (await a.promote()).generation == 3
        await b.until("ready")
        assert await bodies(a, "orders") == ["before", "after"]


@pytest.mark.slow
async def test_a_sleeper_whose_successor_is_dead_again_settles_only_what_that_one_had_acknowledged(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.pair()
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "orders")
        await client.send(link, Message(body="before"))
        b.pause()
        send_unsettled(link, 10)
        await a.until(lambda status: depth(status, "orders") == 11)
        a.pause()
        b.resume()
        await b.promote()
        await b.kill()
        a.resume()
        await client.end()
        settled = client.outcomes.qsize()
        await a.until("connecting")
        await b.start()
        await b.promote()
        await a.until("ready")
        content = await stop_equal(b, a)
        bodies = [b"before", *(b"tail %d" % number for number in range(settled))]
        found = [data for _, data, _ in content["orders"]][: len(bodies)]
        assert all(body in data for body, data in zip(bodies, found, strict=True))
