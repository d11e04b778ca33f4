"""Watches values that must only grow: the arbiter's number, and the serving member of each generation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker_stub.election.arbiter import ArbiterUnavailableError, open_arbiter
from tests.faults.cluster import Cluster
from tests.faults.history import History

# Several times during the shortest promotion and going alone.
_INTERVAL = 0.02


@asynccontextmanager
async def watching(
    cluster: Cluster, history: History, *, interval: float = _INTERVAL, outages: bool = False
) -> AsyncIterator[None]:
    """Record the values until the body ends.

    :param interval: seconds between two observations.
    :param outages: True if the arbiter may be unreachable.
    """
    work = _watch(cluster, history, interval, outages=outages)
    task = asyncio.create_task(work, name="watch the generations")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def _watch(cluster: Cluster, history: History, interval: float, *, outages: bool) -> None:
    arbiter = open_arbiter(cluster.arbiter.url)
    generation, claims = 0, dict[int, str]()
    try:
        while True:
            began = time.monotonic()
            try:
                record = await arbiter.read()
            except ArbiterUnavailableError as error:
                if not outages:
                    history.disputes.append(f"the arbiter: {error}")
            else:
                history.generations[record.generation] = began
                if record.generation < generation:
                    history.disputes.append(f"the arbiter went from {generation} back to {record.generation}")
                if claims.setdefault(record.generation, record.claim) != record.claim:
                    history.disputes.append(f"the claim of generation {record.generation} changed")
                generation = max(generation, record.generation)
            _look(cluster, history)
            await asyncio.sleep(interval)
    finally:
        await arbiter.close()


def _look(cluster: Cluster, history: History) -> None:
    for member in cluster.members:
        status = member.status
        if status is not None and status.role in {"primary", "recovering"}:
            history.serves(status.generation, member.name)
