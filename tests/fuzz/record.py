"""Makes the seeds of the targets that are links, from valid traffic: ``python -m tests.fuzz.record``.

A client and a member talk over TCP through a recorder; what each side wrote becomes a script.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import proton

from broker_stub.broker import Broker, BrokerOptions
from broker_stub.election.roles import Membership, Role
from haclient import aio
from tests.fuzz import script
from tests.fuzz.target import CORPUS

_CHUNK = 65536


@dataclass(slots=True)
class Recorder:
    """Forwards connections to a port, and keeps what passes.

    :ivar sent: of each connection what the client and what the server wrote.
    """

    port: int
    sent: list[tuple[bytearray, bytearray]] = field(default_factory=list)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port)
        client, server = bytearray(), bytearray()
        self.sent.append((client, server))
        await asyncio.gather(_copy(reader, there_writer, client), _copy(there_reader, writer, server))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    try:
        while data := await reader.read(_CHUNK):
            kept += data
            writer.write(data)
        writer.close()
    except ConnectionError:
        writer.close()


@asynccontextmanager
async def recording(broker: Broker) -> AsyncIterator[tuple[Recorder, str]]:
    """A recorder before a member, and the URL of the recorder."""
    recorder = Recorder(broker.address.port)
    server = await asyncio.start_server(recorder.forward, "127.0.0.1", 0)
    async with server:
        yield recorder, f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def keep(target: str, name: str, data: bytes) -> None:
    """Write a seed."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


async def _send(connection: aio.Connection) -> None:
    sender = await connection.create_sender("orders")
    await sender.send(proton.Message(body="one", durable=True, subject="s"))
    await sender.send_many(
        [b"two", "three", proton.Message(body={"a": [1, 2]}, properties={"key": 1}, ttl=5)]
    )
    await sender.close()


async def _receive(connection: aio.Connection) -> None:
    await _send(connection)
    receiver = await connection.create_receiver("orders", credit=3)
    for settle in ("accept", "release", "reject"):
        delivery = await receiver.receive(timeout=5)
        await getattr(delivery, settle)()
    await receiver.drain()
    await receiver.close()


async def _large(connection: aio.Connection) -> None:
    sender = await connection.create_sender("large")
    await sender.send(b"x" * 3000)
    receiver = await connection.create_receiver("large", credit=1)
    await (await receiver.receive(timeout=5)).accept()


TALKS: dict[str, Callable[[aio.Connection], Awaitable[None]]] = {
    "send": _send,
    "receive": _receive,
    "large": _large,
}


async def _links() -> None:
    for name, talk in TALKS.items():
        membership = Membership(role=Role.PRIMARY, generation=1)
        async with (
            Broker(BrokerOptions(membership=membership, max_frame_size=1024)) as broker,
            recording(broker) as (recorder, url),
            aio.connect(f"{url}/?heartbeat=0") as connection,
        ):
            await talk(connection)
        client, server = recorder.sent[0]
        keep("server", name, script.encode(script.of_wire(bytes(client))))
        keep("client", name, script.encode(script.of_wire(bytes(server))))


if __name__ == "__main__":
    asyncio.run(_links())
