"""The routes are really cut: with proxies, in network namespaces, and to a ZooKeeper."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker_stub.local_cluster.supervisor import MemberState
from haclient import Message, aio
from haclient.errors import SendTimeout
from haclient.testing.network import CLIENTS, Cut
from tests.faults.cluster import Cluster, ClusterOptions, cluster
from tests.faults.namespaces import unavailable
from tests.faults.network import ARBITER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PROXIES = ClusterOptions(network="proxy")
NAMESPACES = pytest.param(
    ClusterOptions(network="namespace"), marks=pytest.mark.skipif(bool(unavailable()), reason=unavailable())
)


async def send(members: Cluster, body: str) -> None:
    async with aio.connect(members.url) as connection:
        sender = await connection.create_sender("q")
        await sender.send(Message(body=body), timeout=30)


@pytest.mark.parametrize("options", [PROXIES, NAMESPACES], ids=["proxies", "namespaces"])
async def test_clients_and_primary_part_and_meet_again(options: ClusterOptions, tmp_path: Path) -> None:
    async with cluster(tmp_path, options) as members:
        primary = members.primary
        async with aio.connect(members.url) as connection:
            sender = await connection.create_sender("q")
            await sender.send(Message(body="before"), timeout=30)
            members.cut(CLIENTS, primary.name, Cut.HOLD)
            with pytest.raises(SendTimeout):
                await sender.send(Message(body="during"), timeout=0.3)
            # The manager and the backup still reach it.
            await members.whole()
            assert members.primary is primary
            members.heal()
            await sender.send(Message(body="after"), timeout=30)


@pytest.mark.parametrize("options", [PROXIES, NAMESPACES], ids=["proxies", "namespaces"])
async def test_a_backup_that_is_cut_off_is_dropped_and_rejoins(
    options: ClusterOptions, tmp_path: Path
) -> None:
    async with cluster(tmp_path, options) as members:
        [backup] = members.backups
        generation = members.primary.generation
        members.cut(members.primary.name, backup.name, Cut.HOLD)
        # Settled only when the primary has gone on alone.
        await send(members, "alone")
        assert (await members.status(members.primary)).generation == generation + 1
        assert "generation" in await members.promote(backup)
        members.heal()
        await members.whole()


async def test_a_primary_that_is_cut_off_from_zookeeper_settles_nothing_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path, ClusterOptions(arbiter="zookeeper")) as members:
        primary, [backup] = members.primary, members.backups
        members.cut(primary.name, ARBITER, Cut.HOLD)
        await members.kill(backup)
        await members.until(primary, MemberState.CONNECTING)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await send(members, "nobody settles this")
        members.heal()
        members.start(backup)
        await members.whole()
        await send(members, "after")
