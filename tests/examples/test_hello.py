from __future__ import annotations

import pytest

from broker_stub.local_cluster.supervisor import LocalCluster
from tests.broker_stub.statuses import status_with_queues
from tests.examples.program import Program


@pytest.mark.parametrize("name", ["hello_blocking", "hello_asyncio"])
async def test_a_message_is_sent_received_and_accepted(name: str, pair: LocalCluster) -> None:
    async with Program(name, pair.url) as program:
        printed = await program.end()

    assert pair.primary is not None
    assert printed.splitlines() == [
        f"sent, and accepted by amqp://{pair.primary.address.authority}",
        "received 'hello, world'",
    ]
    assert pair.primary.admin is not None
    status = await status_with_queues(pair.primary.admin)
    assert [queue["depth"] for queue in status.facts["queues"] if queue["name"] == "hello"] == [0]
