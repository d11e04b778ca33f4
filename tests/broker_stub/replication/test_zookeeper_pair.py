"""A pair whose arbiter is ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message

from tests.broker_stub.clients import Client
from tests.broker_stub.replication.cluster import Cluster, bodies, send, stop_equal
from tests.zookeeper import ZooKeeper


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.mark.slow
async def test_it_fails_over_and_the_one_left_behind_is_refused(tmp_path: Path, server: ZooKeeper) -> None:
    async with Cluster(tmp_path, arbiter=server.url("/failover")) as cluster:
        a, b = await cluster.pair()
        await send(a, "orders", "one")
        await a.kill()
        assert (await b.promote()).generation == 2
        await send(b, "orders", "two")
        await b.kill()
        await a.start()
        await a.refused("the arbiter is at generation 2 and this member has generation 1")
        await b.start()
        assert (await b.promote()).generation == 3
        await a.until("ready")
        assert len((await stop_equal(b, a))["orders"]) == 2


@pytest.mark.slow
async def test_a_primary_that_needs_zookeeper_and_loses_it_settles_nothing_and_steps_down(
    tmp_path: Path, server: ZooKeeper
) -> None:
    async with Cluster(tmp_path, arbiter=server.url("/lost")) as cluster:
        a, b = await cluster.pair()
        client = await Client().connect(a.address)
        link = await client.attach("sender", "s", "orders")
        await client.send(link, Message(body="settled by both"))
        server.pause()
        try:
            # The primary needs no arbiter while its replica is there.
            await client.send(link, Message(body="settled by both, without ZooKeeper"))
            await b.kill()
            link.send(bytes(Message(body="by nobody").encode()), None)
            await a.until("connecting")
            assert client.outcomes.empty()
        finally:
            server.resume()
        await b.start()
        await b.promote()
        await a.until("ready")
        assert await bodies(b, "orders") == ["settled by both", "settled by both, without ZooKeeper"]
