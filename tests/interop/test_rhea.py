"""rhea, a Node.js client, with our broker: its own reconnect follows a failover."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from proton import symbol

import haclient
from broker_stub.local_cluster.supervisor import LocalCluster
from haclient import aio
from tests.examples.program import Program
from tests.interop.installed import NODE_MODULES, needs_rhea
from tests.interop.numbers import everything_in
from tests.members import Member

pytestmark = needs_rhea

_PROGRAM = Path(__file__).with_name("rhea_client.js")
# Messages that are settled, or received, before and after a failover.
SOME = 500


def rhea(role: str, members: str, *arguments: object) -> Program:
    return Program.of("node", _PROGRAM, role, members, *map(str, arguments), NODE_PATH=NODE_MODULES)


def members(pair: LocalCluster) -> str:
    return pair.url.removeprefix("amqp://")


async def test_a_sender_goes_on_after_a_failover_and_loses_nothing(restarted: LocalCluster) -> None:
    async with rhea("send", members(restarted), "orders", SOME) as sender:
        await sender.line(f"^settled {SOME}")
        await restarted.kill_primary()
        sent = int((await sender.line(r"^sent (\d+)"))[1])
        await sender.end()
    assert set(await everything_in(restarted.url, "orders", sent)) == set(range(sent))


async def test_a_receiver_goes_on_after_a_failover_and_misses_nothing(restarted: LocalCluster) -> None:
    async with aio.connect(restarted.url) as connection:
        sender = await connection.create_sender("orders")
        for number in range(SOME):
            await sender.submit(haclient.Message(body=number))
        await sender.flush(timeout=30)
    async with rhea("receive", members(restarted), "orders", SOME) as receiver:
        await receiver.line("^half")
        await restarted.kill_primary()
        await receiver.line("^all")
        await receiver.end()


async def test_a_message_is_the_same_after_a_round_trip_through_rhea(broker: Member) -> None:
    body = {
        "text": "Grüße",
        "number": 2**40,
        "negative": -1,
        "fraction": 0.5,
        "truth": True,
        "bytes": b"\x00\xff",
        "list": [1, "two", None],
        "nothing": None,
    }
    request = haclient.Message(
        body=body, subject="all kinds", correlation_id="c-1", properties={"colour": "green", "n": 7}
    )
    async with rhea("echo", broker.address, "service") as program, aio.connect(broker.url) as connection:
        await program.line("^listening")
        replies = await connection.create_receiver(None, dynamic=True)
        request.reply_to, request.id = replies.address, uuid.uuid4()
        await (await connection.create_sender("service")).send(request, timeout=30)
        reply = (await replies.receive(timeout=30)).message
    assert reply.body == body
    assert (reply.subject, reply.correlation_id) == ("all kinds", "c-1")
    assert {name: reply.properties[name] for name in ("colour", "n")} == {"colour": "green", "n": 7}


async def test_a_selector(broker: Member) -> None:
    async with aio.connect(broker.url) as connection:
        sender = await connection.create_sender("orders")
        for number in range(4):
            properties = {"colour": "green" if number % 2 else "red"}
            await sender.send(haclient.Message(body=number, properties=properties))
    async with rhea("select", broker.address, "orders", 2) as program:
        assert await program.end() == "message 1\nmessage 3\n"
    assert broker.depth("orders") == 2


async def test_annotations_of_modified_come_with_the_next_delivery(broker: Member) -> None:
    async with aio.connect(broker.url) as connection:
        sender = await connection.create_sender("orders")
        await sender.send(haclient.Message(body="x", annotations={symbol("x-mine"): 1}))
    async with rhea("modify", broker.address, "orders", 2) as program:
        lines = (await program.end()).splitlines()
    assert [json.loads(line.removeprefix("message ")) for line in lines] == [
        {"x-mine": 1},
        {"x-mine": 1, "x-attempt": 1, "x-of-1": "rhea"},
        {"x-mine": 1, "x-attempt": 2, "x-of-1": "rhea", "x-of-2": "rhea"},
    ]
    assert broker.depth("orders") == 0


async def test_a_browser_leaves_the_messages(broker: Member) -> None:
    async with aio.connect(broker.url) as connection:
        sender = await connection.create_sender("orders")
        for number in range(3):
            await sender.send(haclient.Message(body=number))
    async with rhea("browse", broker.address, "orders", 3) as program:
        assert await program.end() == "message 0\nmessage 1\nmessage 2\n"
    assert broker.depth("orders") == 3
