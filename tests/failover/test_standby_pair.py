"""Parking and warm standby against a real pair: the primary is killed and the backup promoted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import proton
import pytest

from haclient import aio
from haclient.events import Parked, Reconnected
from tests.broker_stub.replication.cluster import PATIENCE, Cluster, Member
from tests.failover.waiting import next_of

QUICK = "backoff_base=0.02&backoff_max=0.2"


async def until_parked(member: Member, count: int = 1) -> None:
    """Wait until ``count`` clients are parked there."""
    await member.until(lambda status: status.facts["entrance"]["parked_now"] == count)


async def test_a_warm_client_goes_on_over_its_parked_connection(tmp_path: Path) -> None:
    """The member answers the parked Begin, and the waiting message settles, with the generation."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.pair()
        async with (
            asyncio.timeout(PATIENCE),
            aio.connect(f"{cluster.url}?standby=warm&{QUICK}") as connection,
        ):
            events = connection.events()
            sender = await connection.create_sender("orders")
            await sender.send(proton.Message(body="before"))
            assert connection.generation == 1
            await until_parked(second)
            await first.kill()
            sending = asyncio.create_task(sender.send(proton.Message(body="after")))
            await second.promote()
            back = await next_of(events, Reconnected)
            await sending
            assert back.endpoint.port == second.address.port
            assert connection.generation == 2
            assert await second.depth("orders") == 2


@pytest.mark.parametrize("standby", ["outage", "none"])
async def test_a_client_reconnects_with_and_without_parking(tmp_path: Path, standby: str) -> None:
    """The member parks it during the outage if it asks for that; it reconnects either way."""
    async with Cluster(tmp_path) as cluster:
        first, second = await cluster.pair()
        url = f"{cluster.url}?standby={standby}&{QUICK}"
        async with asyncio.timeout(PATIENCE), aio.connect(url) as connection:
            events = connection.events()
            sender = await connection.create_sender("orders")
            await sender.send(proton.Message(body="before"))
            await first.kill()
            if standby == "outage":
                parked = await next_of(events, Parked)
                assert parked.endpoint.port == second.address.port
            await second.promote()
            await next_of(events, Reconnected)
            await sender.send(proton.Message(body="after"))
            assert connection.generation == 2
            assert await second.depth("orders") == 2
