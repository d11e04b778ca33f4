"""ActiveMQ Classic closes the sockets of clients above its limit of connections, and sends no reason."""

from __future__ import annotations

import pytest

from haclient import aio
from haclient.errors import DeadlineExceeded
from tests.brokers.products.activemq import FEW

_IN_TIME = 60.0


async def check_that_it_is_named(url: str) -> None:
    """Use all connections that a port allows: another one fails with the reason, until one is closed.

    :param url: of the port ``ActiveMQ.few`` of the primary.
    """
    async with aio.ConnectionFactory(url, startup_deadline=2.0) as factory:
        connections = [await factory.connect(timeout=_IN_TIME) for _ in range(FEW)]
        with pytest.raises(DeadlineExceeded, match=r"limit of connections \(ActiveMQ: maximumConnections\)"):
            await factory.connect()
        await connections.pop().close()
        connections.append(await factory.connect(timeout=_IN_TIME))
        for connection in connections:
            await connection.close()
