"""A message above the maxFrameSize of ActiveMQ Classic fails alone; nothing in its Attach says that limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from haclient import aio
from haclient.errors import HaclientError, MessageTooLarge
from haclient.events import Disconnected
from haclient.testing.threads import in_thread
from tests.brokers import clusters
from tests.brokers.products.activemq import ActiveMQ
from tests.brokers.topology import Launch
from tests.peers.watch import Watch

_MISSING = clusters.missing("activemq")
pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING),
    pytest.mark.timeout(300),
]
_MAX_FRAME_SIZE = 1024 * 1024


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[ActiveMQ]:
    cluster = ActiveMQ(Launch(folder))
    for configuration in folder.glob("member-*/activemq.xml"):
        text = configuration.read_text()
        configuration.write_text(
            text.replace(
                "maximumConnections=", f"wireFormat.maxFrameSize={_MAX_FRAME_SIZE}&amp;maximumConnections="
            )
        )
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActiveMQ]:
    with in_thread(_running(tmp_path_factory.mktemp("activemq"))) as cluster:
        yield cluster


async def test_it_fails_alone_among_others_after_three_losses(broker: ActiveMQ) -> None:
    watch = Watch()
    async with await aio.connect(broker.url, on_event=watch) as connection:
        sender = await connection.create_sender("large")
        bodies = [bytes((number,)) * (3 * _MAX_FRAME_SIZE if number == 20 else 1000) for number in range(40)]
        futures = [await sender.submit(body) for body in bodies]
        async with asyncio.timeout(60):
            results = await asyncio.gather(*futures, return_exceptions=True)
    errors = {number: each for number, each in enumerate(results) if isinstance(each, HaclientError)}
    assert list(errors) == [20]
    assert isinstance(errors[20], MessageTooLarge)
    assert "amqp:decode-error" in str(errors[20])
    assert errors[20].delivered is None
    assert len(watch.of(Disconnected)) == 3
