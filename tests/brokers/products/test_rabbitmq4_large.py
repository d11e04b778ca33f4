"""RabbitMQ 4 announces 16 MiB as the largest message in its Attach. Only a larger message fails, at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from haclient import aio
from haclient.errors import MessageTooLarge
from haclient.events import Disconnected
from tests.brokers.products import installed, rabbitmq4
from tests.interop.rabbitmq import RabbitMQ
from tests.peers.watch import Watch

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(rabbitmq4.missing()), reason=rabbitmq4.missing() or "it is there"),
]
_LIMIT = 16 * 1024 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    with RabbitMQ(1, root=installed.DEBIAN_13) as broker:
        yield broker


async def test_a_message_above_16_mib_fails_alone_and_the_largest_below_arrives(broker: RabbitMQ) -> None:
    watch = Watch()
    async with await aio.connect(broker.url, on_event=watch) as connection:
        # An exchange without a bound queue: it releases each message and stores nothing.
        sender = await connection.create_sender("/exchanges/amq.direct/large")
        before = await sender.submit(b"before")
        with pytest.raises(MessageTooLarge) as caught:
            await sender.send(bytes(_LIMIT), timeout=10)
        assert (caught.value.limit, caught.value.delivered) == (_LIMIT, False)
        largest = await sender.submit(bytes(2 * _LIMIT - caught.value.size))
        for future in (before, largest):
            with pytest.raises(Exception, match="released"):
                await future
    assert watch.of(Disconnected) == []
