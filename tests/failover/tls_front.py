"""A TLS listener in front of a member, which records the name that each client asked for."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.certificates import Certificate

_CHUNK = 16384


@dataclass(slots=True)
class TlsFront:
    """The address of the listener, and the names that clients asked for.

    :ivar names: the SNI of each handshake; ``None`` if the client sent none.
    """

    host: str
    port: int
    names: list[str | None] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@asynccontextmanager
async def tls_front(
    certificate: Certificate,
    target: str,
    *,
    onward: ssl.SSLContext | None = None,
    change: Callable[[bytes], bytes] = bytes,
) -> AsyncIterator[TlsFront]:
    """Listen on loopback, and forward decrypted bytes to ``target``, a ``host:port``.

    :param onward: encrypts the bytes again; ``None`` for a plain member.
    :param change: gets what the member sends, and returns what the client receives instead.
    """
    tasks: set[asyncio.Task[None]] = set()
    context = certificate.server_context()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        host, _, port = target.rpartition(":")
        onward_reader, onward_writer = await asyncio.open_connection(host, int(port), ssl=onward)
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.CancelledError):
            await asyncio.gather(_pump(reader, onward_writer), _pump(onward_reader, writer, change))
        for each in (writer, onward_writer):
            each.transport.abort()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    front = TlsFront(*server.sockets[0].getsockname())

    def note(_socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        front.names.append(name)

    context.sni_callback = note
    try:
        yield front
    finally:
        server.close()
        await server.wait_closed()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, change: Callable[[bytes], bytes] = bytes
) -> None:
    while data := await source.read(_CHUNK):
        sink.write(change(data))
        await sink.drain()
    sink.close()
