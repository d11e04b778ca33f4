"""A program that configured no logging gets warnings on standard error, and no other output."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

from tests.cli.command import environment
from tests.peers import BEHAVIOURS, Peer, primary, url

OPTIONS = {"client_id": "orders-service", "backoff_base": 0.01, "backoff_max": 0.02}
BLOCKING = """
import sys
import haclient
with haclient.connect(sys.argv[1]) as connection:
    sender, receiver = connection.create_sender("q"), connection.create_receiver("other")
    sender.send(haclient.Message(body="one"))
    print("ready", flush=True)
    sys.stdin.readline()
    sender.submit(haclient.Message(body="nobody looks at its future"))
    sender.send(haclient.Message(body="two"))
"""
ASYNCIO = """
import asyncio, sys
import haclient
async def main():
    async with haclient.aio.connect(sys.argv[1]) as connection:
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("other")
        await sender.send(haclient.Message(body="one"))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await sender.submit(haclient.Message(body="nobody looks at its future"))
        await sender.send(haclient.Message(body="two"))
asyncio.run(main())
"""
DROP_IN = """
import sys
from haclient.utils import BlockingConnection
from proton import Message
connection = BlockingConnection(sys.argv[1])
sender, receiver = connection.create_sender("q"), connection.create_receiver("other")
sender.send(Message(body="one"))
print("ready", flush=True)
sys.stdin.readline()
sender.send(Message(body="two"))
connection.close()
"""
GIVES_UP = """
import sys
import haclient
try:
    haclient.connect(sys.argv[1])
except haclient.errors.ConnectionGaveUp:
    pass
"""


async def started(program: str, link: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, link,
        stdin=pipe, stdout=pipe, stderr=pipe, env=environment(),
    )  # fmt: skip


async def errors(process: asyncio.subprocess.Process) -> list[str]:
    """Return the standard error of a program that ends without an error."""
    async with asyncio.timeout(30):
        _, written = await process.communicate()
    assert process.returncode == 0, written.decode()
    return written.decode().splitlines()


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO, DROP_IN], ids=["blocking", "asyncio", "drop-in"])
async def test_a_failover_is_two_lines(program: str) -> None:
    async with primary() as peer:
        process = await started(program, url(peer, **OPTIONS))
        assert process.stdout is not None
        assert process.stdin is not None
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
        peer.drop()
        await peer.until(lambda: len(peer.attaches) == 4)
        process.stdin.write(b"\n")
        lines = await errors(process)
        assert len(lines) == 2, lines
        lost, back = lines
    name = r"[-0-9a-f]+/1" if program == DROP_IN else "orders-service/1"  # proton makes up a container id
    assert re.match(rf"{name}: lost amqp://{peer.address} \(", lost), lost
    assert re.match(rf"{name}: reconnected to amqp://{peer.address} after ", back), back
    assert (peer.bodies[0], peer.bodies[-1]) == ("one", "two")


async def test_a_search_without_a_primary_is_a_warning_and_an_error() -> None:
    async with BEHAVIOURS["refused"](Peer("127.0.0.1", 1)) as peer:
        process = await started(GIVES_UP, url(peer, startup_deadline=0.3, **OPTIONS))
        warning, gave_up = await errors(process)
    answer = rf"orders-service/1: no primary in the first round: amqp://{peer.address}: connection refused; "
    assert re.match(answer, warning)
    assert gave_up.startswith("orders-service/1: gave up: ")
