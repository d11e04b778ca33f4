"""The broker under the shims: a running one, our pair, or a cluster of ``tests.brokers``.

A shim that accepts only one address gets the current primary's address, which haclient finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from broker_stub.amqp.node_names import BINDING_TYPE, EXCHANGE_TYPE, QUEUE_TYPE
from broker_stub.local_cluster.supervisor import LocalCluster
from broker_stub.management_client import AdminClient
from haclient import aio
from haclient.version import package_version
from tests.brokers import clusters
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind, Settings
from tests.brokers.products.broker_j import BrokerJ
from tests.brokers.topology import BrokerCluster, Fault, Launch

# Seconds to find the primary: Java brokers need several for a takeover.
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as the runner needs it.

    :param url: the URL for haclient, with every member.
    :param queue: returns the address of a queue by its name.
    :param fan_out: makes an address of this name that copies each message to all of these queues.
        ``None`` if the broker cannot; then the sender runs once for each receiver.
    :param kill: sends SIGKILL to the primary; ``None`` if it cannot be killed.
    :param keeps_all: whether non-durable messages survive the primary's death, too.
    :param whole: waits until another kill would lose nothing.
    """

    name: str
    version: str
    url: str
    queue: Callable[[str], str]
    fan_out: Callable[[str, Sequence[str]], Awaitable[None]] | None = None
    kill: Callable[[], Awaitable[object]] | None = None
    whole: Callable[[], Awaitable[None]] | None = None
    keeps_all: bool = False

    async def primary(self) -> str:
        """Return host and port of the current primary."""
        async with aio.connect(self.url, timeout=_PATIENCE) as connection:
            endpoint = connection.endpoint
            if endpoint is None:
                raise RuntimeError("a connection that is open has no endpoint")
            return endpoint.authority


@contextlib.asynccontextmanager
async def running(name: str) -> AsyncIterator[Broker]:
    """Run the broker of this name, or use the running one at this URL.

    :raises SystemExit: if the broker is unavailable, with the reason.
    """
    if "://" in name:
        yield Broker(name, "", name, queue=str)
    elif name == "pair":
        async with LocalCluster() as pair:

            async def fan_out(exchange: str, queues: Sequence[str]) -> None:
                await _fan_out(pair, exchange, queues)

            yield Broker(
                name,
                package_version(),
                pair.url,
                str,
                fan_out,
                kill=pair.kill_primary,
                whole=pair.wait_ready,
                keeps_all=True,
            )
    else:
        async with _cluster(name) as broker:
            yield broker


async def _fan_out(pair: LocalCluster, exchange: str, queues: Sequence[str]) -> None:
    primary = pair.primary
    if primary is None:
        raise RuntimeError("there is no primary to declare an exchange at")
    async with await AdminClient.connect(primary.address, pair.credentials, timeout=_PATIENCE) as admin:
        await admin.create(EXCHANGE_TYPE, exchange, type="fanout")
        for queue in queues:
            await admin.create(QUEUE_TYPE, queue)
            await admin.create(BINDING_TYPE, f"{exchange}/{queue}/", exchange=exchange, queue=queue, key="")


@contextlib.asynccontextmanager
async def _cluster(name: str) -> AsyncIterator[Broker]:
    """Run a cluster that admits anonymous clients: the foreign shims have no passwords."""
    if missing := clusters.missing(name):
        raise SystemExit(f"{name}: {missing}")
    with tempfile.TemporaryDirectory() as folder:
        cluster = _launch(name, Launch(Path(folder)))
        try:
            await cluster.start()

            async def kill() -> None:
                await cluster.inject(Fault.KILL)
                await cluster.serving()

            yield Broker(name, cluster.version, cluster.url, cluster.queue, kill=kill, whole=cluster.whole)
        finally:
            await cluster.stop()


def _launch(name: str, how: Launch) -> BrokerCluster:
    if name == "broker-j":
        return BrokerJ(how, guests=True)
    product, _, kind = name.partition("-")
    if product == "artemis":
        return Artemis(Kind(kind), how, Settings(guests=True))
    return clusters.launch(name, how)


class Killer:
    """Kills the primary repeatedly, as long as it may.

        async with Killer(broker) as killer:
            async with killer.spared():
                ...  # a client that does not survive a failover

    :ivar kills: the number of kills so far.
    """

    def __init__(self, broker: Broker, pause: float) -> None:
        self._broker, self._pause = broker, pause
        self._may = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.kills = 0

    @contextlib.asynccontextmanager
    async def spared(self) -> AsyncIterator[None]:
        """Prevent kills in this block. The cluster is whole when it begins."""
        async with self._may:
            yield

    async def once(self) -> None:
        """Kill the primary once. The cluster is whole before and after."""
        if self._broker.kill is None or self._broker.whole is None:
            raise SystemExit(
                f"{self._broker.name} runs outside of this program: its primary cannot be killed"
            )
        await self._broker.whole()
        await self._broker.kill()
        self.kills += 1
        await self._broker.primary()
        await self._broker.whole()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            async with self._may:
                await self.once()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        task = self._task
        if task is None:
            return
        if task.done():
            task.result()
        async with self._may:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
