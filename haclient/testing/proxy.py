"""A TCP proxy that cuts connections: now, after a number of bytes, or repeatedly at planned points.

    async with proxy(member, cuts=[100_000, 5_000]) as route:
        ...aio.connect(url(route))...
        route.cut()

The proxy is a ``Peer``, so ``url`` accepts it as a member.  Data that arrived before a cut is delivered: its
receiver gets an end of stream, the other side a reset.  This resembles a process that dies after the kernel
has taken its last bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from haclient.testing.peers.listening import Peer, bound

_CHUNK = 65536


@dataclass(slots=True)
class Proxy(Peer):
    """A route to another peer.

    :ivar target: the peer at the other end; a change applies to new connections.
    :ivar cuts: for each cut, the bytes in both directions since the one before.
    :ivar made: the number of cuts so far, including calls of ``cut``.
    :ivar passed: bytes since the last cut.
    :ivar delay: seconds by which each piece of data is delayed, as on a slow route.
    """

    target: Peer | None = None
    cuts: Iterator[int] = field(default_factory=lambda: iter(()))
    made: int = 0
    passed: int = 0
    delay: float = 0.0
    _limit: int | None = None
    _refuses: bool = False
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _flows: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self, flushed: asyncio.StreamWriter | None = None) -> None:
        """Cut every connection; ``flushed`` still gets its buffered bytes."""
        self.made += 1
        self.passed = 0
        self._limit = next(self.cuts, None)
        for writer in tuple(self._writers):
            if writer is flushed:
                writer.close()
            else:
                writer.transport.abort()

    def cut_after(self, count: int) -> None:
        """Cut after ``count`` more bytes, in both directions together."""
        self._limit = self.passed + count

    def hold(self) -> None:
        """Hold back all data, without closing connections."""
        self._flows.clear()

    def refuse(self) -> None:
        """Cut every connection, and each new one at once."""
        self._refuses = True
        self.cut()

    def release(self) -> None:
        """Pass data again, beginning with the data held back."""
        self._refuses = False
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(asyncio.get_running_loop().time())
        assert self.target is not None
        await self._flows.wait()
        if self._refuses:
            writer.transport.abort()
            return
        try:
            other_reader, other_writer = await asyncio.open_connection(self.target.host, self.target.port)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, other_writer)
        self._writers.update(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, other_writer, writer))
                group.create_task(self._pump(other_reader, writer, other_writer))
        finally:
            self._writers.difference_update(pair)
            for each in pair:
                each.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flows.wait()
                if self._limit is not None and self.passed + len(data) >= self._limit:
                    writer.write(data[: self._limit - self.passed])
                    self.cut(flushed=writer)
                    return
                self.passed += len(data)
                writer.write(data)
                await writer.drain()
            await self._flows.wait()
            writer.close()
            return
        # One side was reset, so reset both.
        await self._flows.wait()
        writer.transport.abort()
        back.transport.abort()

    @asynccontextmanager
    async def serving(self, server_socket: socket.socket) -> AsyncIterator[None]:
        """Accept connections while the body runs; all end with it."""
        self._limit = next(self.cuts, None)
        self.release()
        server = await asyncio.start_server(self._serve, sock=server_socket)
        try:
            yield
        finally:
            server.close()
            self.release()
            self._refuses = True
            for writer in tuple(self._writers):
                writer.transport.abort()
            while self._writers:  # noqa: ASYNC110 - each takes a few turns of the loop to end
                await asyncio.sleep(0)
            await server.wait_closed()


@asynccontextmanager
async def proxy(target: Peer, *, cuts: Iterable[int] = ()) -> AsyncIterator[Proxy]:
    """Start a proxy to a peer."""
    server_socket = bound()
    host, port = server_socket.getsockname()
    route = Proxy(host, port, target=target, cuts=iter(cuts))
    async with route.serving(server_socket):
        yield route
