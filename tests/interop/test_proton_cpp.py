"""The example programs of proton C++, as Debian ships them, with our broker."""

from __future__ import annotations

import signal

from broker_stub.local_cluster.supervisor import LocalCluster
from haclient import Message, aio
from tests.examples.program import Program
from tests.interop.installed import CPP_PROGRAMS, needs_cpp
from tests.members import Member

pytestmark = needs_cpp


def cpp(name: str, *arguments: object) -> Program:
    return Program.of(CPP_PROGRAMS / name, *map(str, arguments))


async def test_a_sender_a_browser_and_a_receiver(broker: Member) -> None:
    where = f"{broker.address}/examples"
    async with cpp("simple_send", "-a", where, "-m", 500) as sender:
        assert await sender.end() == "all messages confirmed\n"
    async with cpp("queue_browser", broker.url, "examples") as browser:
        await browser.line('"sequence"=500}')
    async with cpp("simple_recv", "-a", where, "-m", 500) as receiver:
        received = (await receiver.end()).splitlines()
    assert received == [f'{{"sequence"={number}}}' for number in range(1, 501)]


async def test_requests_and_responses(broker: Member) -> None:
    async with cpp("server", broker.url, "service") as server:
        await server.line("connected")
        async with cpp("client", "-a", f"{broker.address}/service") as client:
            answers = await client.end()
        await server.line("Received")
    assert "TWAS BRILLIG" in answers


async def test_a_selector(broker: Member) -> None:
    async with cpp("selected_recv", broker.url, "examples") as program:
        async with aio.connect(broker.url) as connection:
            sender = await connection.create_sender("examples")
            for colour in ("red", "green"):
                await sender.send(Message(body=f"a {colour} one", properties={"colour": colour}))
        assert "red" not in (await program.line("a .* one")).string


async def test_its_reconnect_finds_the_new_primary(pair: LocalCluster) -> None:
    """A passive member's redirect would end the client, so it is stopped until the backup is primary."""
    primary, backup = sorted(pair.members, key=lambda member: member is not pair.primary)
    urls = [f"amqp://{member.address.authority}" for member in (primary, backup)]
    async with cpp("reconnect_client", urls[0], "examples", 1000, urls[1]) as client:
        await client.line('"sequence"=200}')
        client.signal(signal.SIGSTOP)
        await pair.kill_primary()
        await pair.wait_until(lambda pair: pair.primary is backup)
        client.signal(signal.SIGCONT)
        printed = await client.end()
    # The client counts redelivered messages, so it may end before the last one.
    assert '"sequence"=999}' in printed
