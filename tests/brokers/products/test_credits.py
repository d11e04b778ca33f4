"""Each message is delivered once at any credit, on the brokers that count credit differently."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from haclient import Message, aio
from haclient.testing.threads import in_thread
from tests.brokers import clusters
from tests.brokers.application import running
from tests.brokers.products import rabbitmq4
from tests.brokers.products.activemq import ActiveMQ
from tests.brokers.products.one_node import one_node
from tests.brokers.topology import Launch

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(600)]
MESSAGES = 100


@pytest.fixture(scope="module", params=["rabbitmq4 quorum", "rabbitmq4 classic", "activemq"])
def queue(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The URL of a broker, and the address of an empty queue."""
    product, _, kind = request.param.partition(" ")
    if product == "activemq":
        if reason := clusters.missing("activemq"):
            pytest.skip(reason)
        cluster = ActiveMQ(Launch(tmp_path_factory.mktemp("activemq")))
        with in_thread(running("activemq", cluster)):
            yield cluster.url, "credits"
    else:
        if reason := rabbitmq4.missing():
            pytest.skip(reason)
        with one_node() as broker:
            yield broker.url, rabbitmq4.address(broker.declare(kind))


async def fill(url: str, address: str) -> None:
    async with await aio.connect(url) as connection, await connection.create_sender(address) as sender:
        await sender.send_many([Message(body=number) for number in range(MESSAGES)])


async def test_each_message_comes_once_with_each_credit_up_to_a_hundred(queue: tuple[str, str]) -> None:
    url, address = queue
    for credit in range(1, 101):
        await fill(url, address)
        async with await aio.connect(url) as connection:
            receiver = await connection.create_receiver(address, credit=credit)
            got = []
            for _ in range(MESSAGES):
                delivery = await receiver.receive(timeout=20)
                got.append(delivery.body)
                await delivery.accept()
        assert sorted(got) == list(range(MESSAGES)), credit


async def test_a_hundred_commands_that_receive_one_get_each_message_once(queue: tuple[str, str]) -> None:
    url, address = queue
    await fill(url, address)
    command = [sys.executable, "-m", "haclient", "receive", url, address, "--count", "1", "--json"]
    got = []
    for _ in range(MESSAGES):
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, check=True
        )
        got.append(json.loads(done.stdout)["body"])
    assert sorted(got) == list(range(MESSAGES))
