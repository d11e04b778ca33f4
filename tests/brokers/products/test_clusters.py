"""Each launcher: the primary dies, a member serves with the stored messages, and the cluster recovers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, cast

import pytest

from tests.brokers import bare, clusters
from tests.brokers.products.group import Group
from tests.brokers.topology import BrokerCluster, Fault, Launch

# JVMs on a busy machine with two cores. The waits inside have shorter bounds and better errors.
pytestmark = [pytest.mark.brokers, pytest.mark.timeout(900)]

_LAUNCHED = [name for name in clusters.NAMES if name != "pair"]
_BODIES = [f"message {number}" for number in range(20)]


class _Grouped(BrokerCluster, Protocol):
    group: Group


@asynccontextmanager
async def _running(name: str, launch: Launch) -> AsyncIterator[_Grouped]:
    if reason := clusters.missing(name):
        pytest.skip(reason)
    cluster = cast("_Grouped", clusters.launch(name, launch))
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


async def _fault_and_back(cluster: _Grouped, fault: Fault) -> None:
    queue = cluster.queue("kept")
    primary = await cluster.group.primary()
    await bare.send(primary.endpoint, cluster.group.account, queue, *_BODIES)
    began = await cluster.inject(fault)
    served = await cluster.serving()
    assert began < served.since < served.at
    await cluster.whole()
    assert [stored.body for stored in await cluster.drain("kept")] == _BODIES
    assert await cluster.drain("kept") == []


@pytest.mark.parametrize("name", _LAUNCHED)
async def test_a_primary_is_killed_twice_and_what_was_stored_is_there(name: str, tmp_path: Path) -> None:
    async with _running(name, Launch(tmp_path)) as cluster:
        await _fault_and_back(cluster, Fault.KILL)
        await _fault_and_back(cluster, Fault.KILL)
