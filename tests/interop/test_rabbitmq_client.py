"""rabbitmq-amqp-python-client with our broker: its publisher, through a failover, and its consumer."""

from __future__ import annotations

import sys
from pathlib import Path

import haclient
from broker_stub.local_cluster.supervisor import LocalCluster
from haclient import aio
from tests.examples.program import Program
from tests.interop.installed import PYTHON_PACKAGES, needs_rabbitmq_client
from tests.interop.numbers import everything_in
from tests.members import Member

pytestmark = needs_rabbitmq_client

_PROGRAM = Path(__file__).with_name("rabbitmq_client.py")
QUEUE = "/queues/orders"
SOME = 200


def client(role: str, urls: str, *arguments: object) -> Program:
    return Program.of(sys.executable, _PROGRAM, role, urls, *map(str, arguments), PYTHONPATH=PYTHON_PACKAGES)


def urls(pair: LocalCluster) -> str:
    """The primary's URL first: this client's connection follows no redirect."""
    ordered = sorted(pair.members, key=lambda member: member is not pair.primary)
    return ",".join(f"amqp://anonymous:@{member.address.authority}" for member in ordered)


async def test_it_sees_that_this_is_no_rabbitmq(broker: Member) -> None:
    async with client("check", broker.url) as program:
        assert (await program.end()).startswith('refused: "Connection to non-RabbitMQ server')


async def test_a_publisher_that_dials_again_after_a_failover_loses_nothing(pair: LocalCluster) -> None:
    async with client("publish", urls(pair), QUEUE, SOME) as publisher:
        await publisher.line(f"^settled {SOME}")
        await pair.kill_primary()
        sent = int((await publisher.line(r"^sent (\d+)"))[1])
    bodies = {bytes(body) for body in await everything_in(pair.url, QUEUE, sent)}
    assert bodies == {b"%d" % number for number in range(sent)}


async def test_a_consumer_takes_what_it_acknowledges(broker: Member) -> None:
    async with aio.connect(broker.url) as connection:
        sender = await connection.create_sender(QUEUE)
        for number in range(20):
            # The client's consumer requires annotations; RabbitMQ 4 adds some to every message.
            message = haclient.Message(body=b"%d" % number, annotations={"x-opt-number": number})
            await sender.submit(message)
        await sender.flush(timeout=30)
    async with client("consume", broker.url, QUEUE, 20) as consumer:
        printed = await consumer.end()
    assert printed.splitlines() == [f"message {number}" for number in range(20)]
    assert broker.depth(QUEUE) == 0
