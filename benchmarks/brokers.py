"""The brokers of bench_clients.py, each one process on loopback."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import ours
from measure import BrokerProcess

from broker_stub.admission.user_file import DEFAULT_ADMIN
from broker_stub.amqp.endpoints import parse_endpoint
from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.management_client import AdminClient
from haclient import Credentials
from tests.brokers.products import installed
from tests.brokers.products.artemis import Artemis
from tests.brokers.products.artemis_config import Kind, Settings
from tests.brokers.topology import Launch

_PASSWORD = "of-this-benchmark"  # noqa: S105 - of a member that lives for this benchmark


class Broker(Protocol):
    """A broker that accepts anonymous clients."""

    @property
    def address(self) -> str:
        """``host:port``."""

    def empty(self, count: int) -> None:
        """Remove the ``count`` messages of ``ours.ADDRESS``."""


@dataclass(frozen=True, slots=True)
class _OneMember:
    """A haclient member, in memory."""

    address: str

    def empty(self, count: int) -> None:
        """Delete the queue, which is faster than receiving the messages."""
        asyncio.run(self._delete())

    async def _delete(self) -> None:
        admin = await AdminClient.connect(
            parse_endpoint(self.address), Credentials(user=DEFAULT_ADMIN, password=_PASSWORD)
        )
        await admin.delete(QUEUE_TYPE, ours.ADDRESS)
        await admin.close()


@dataclass(frozen=True, slots=True)
class _OneArtemis:
    """One Artemis, with its journal on disk."""

    address: str

    def empty(self, count: int) -> None:
        """Receive the messages."""
        asyncio.run(ours.drain(f"amqp://{self.address}", count))


@contextmanager
def member() -> Iterator[Broker]:
    """Run one haclient member."""
    with tempfile.NamedTemporaryFile("w", suffix=".users") as file:
        file.write(f"{DEFAULT_ADMIN}:{_PASSWORD}\n")
        file.flush()
        broker = BrokerProcess("--users", file.name, "--anonymous")
        address = broker.address  # waits until the member has read the file
    with broker:
        yield _OneMember(address)


def artemis_missing() -> str:
    """Return the reason why Artemis is missing; empty if it is installed."""
    return installed.missing("Artemis", installed.ARTEMIS)


@contextmanager
def artemis() -> Iterator[Broker]:
    """Run one Apache ActiveMQ Artemis, which detects duplicates."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        cluster = Artemis(Kind.SINGLE, Launch(Path(folder)), Settings(guests=True))
        try:
            runner.run(cluster.start())
            yield _OneArtemis(cluster.group.addresses)
        finally:
            runner.run(cluster.stop())
