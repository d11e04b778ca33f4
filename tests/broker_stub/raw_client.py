"""A client of bytes: every frame is hand-written, so it may do things that no library allows.

Source: AMQP 1.0 part 2, section 2.7 (performatives), and section 2.3.1 (frames).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from proton import Data, Described, symbol, uint, ulong, ushort

from haclient.cluster_url.endpoint import Endpoint

OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DISPOSITION, DETACH, END, CLOSE = 0x15, 0x16, 0x17, 0x18
_INIT, _SOURCE, _TARGET = 0x41, 0x28, 0x29
_HEADER = 8
_SASL, _AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
# Handles, windows and ids have one encoded size, whatever their value.
WINDOW = uint(2**31 - 1)


def frame(
    code: int, fields: Sequence[Any], payload: bytes = b"", *, channel: int = 0, kind: int = 0
) -> bytes:
    """Encode one frame with a performative."""
    data = Data()
    data.put_object(Described(ulong(code), list(fields)))
    body = data.encode() + payload
    return (len(body) + 8).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + body


def with_wide_descriptor(frame: bytes) -> bytes:
    """The frame with its descriptor in the encoding of eight bytes."""
    body = b"\x00\x80" + frame[_HEADER + 2 : _HEADER + 3].rjust(8, b"\0") + frame[_HEADER + 3 :]
    return (len(body) + _HEADER).to_bytes(4) + frame[4:_HEADER] + body


def begin(*, channel: int = 0, window: int = WINDOW) -> bytes:
    return frame(BEGIN, [None, uint(0), uint(window), WINDOW, uint(2**16)], channel=channel)


def end(*, channel: int = 0) -> bytes:
    return frame(END, [], channel=channel)


def attach_sender(name: str, handle: int, address: str | None, *, channel: int = 0) -> bytes:
    ends = [Described(ulong(_SOURCE), []), Described(ulong(_TARGET), [address])]
    return frame(ATTACH, [name, uint(handle), False, None, None, *ends, None, None, uint(0)], channel=channel)


def attach_receiver(
    name: str, handle: int, address: str | None, *, channel: int = 0, dynamic: bool = False, size: int = 0
) -> bytes:
    source = [address, None, None, None, True] if dynamic else [address]
    ends = [Described(ulong(_SOURCE), source), Described(ulong(_TARGET), [])]
    limit = ulong(size) if size else None
    return frame(
        ATTACH, [name, uint(handle), True, None, None, *ends, None, None, None, limit], channel=channel
    )


def detach(handle: int, *, channel: int = 0, closed: bool = True) -> bytes:
    return frame(DETACH, [uint(handle), closed], channel=channel)


def credit(handle: int, count: int, *, received: int = 0, channel: int = 0, window: int = WINDOW) -> bytes:
    fields = [uint(0), uint(window), uint(0), WINDOW, uint(handle), uint(received), uint(count)]
    return frame(FLOW, fields, channel=channel)


def transfer(
    handle: int, number: int, payload: bytes, *, more: bool = False, settled: bool = False, channel: int = 0
) -> bytes:
    fields = [uint(handle), uint(number), number.to_bytes(4, "big"), uint(0), settled, more]
    return frame(TRANSFER, fields, payload, channel=channel)


def message(size: int) -> bytes:
    """Encode a message whose body is one data section of that many bytes."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)


@dataclass(frozen=True, slots=True)
class Performative:
    """A performative of the peer; ``code`` is 0 for an empty frame."""

    code: int
    fields: Sequence[Any]
    payload: bytes
    channel: int

    @property
    def condition(self) -> str | None:
        """Return the condition of a Close, an End or a Detach."""
        found = [each for each in self.fields if isinstance(each, Described)]
        return str(found[0].value[0]) if found else None

    @property
    def description(self) -> str:
        found = [each for each in self.fields if isinstance(each, Described)]
        return str(found[0].value[1])


class RawClient:
    """A connection of bytes, after SASL; call ``open`` or ``write`` next."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def write(self, *parts: bytes) -> None:
        """Send all of them in one segment, if they fit."""
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    def reading(self, *, on: bool) -> None:
        """Start or stop reading from the socket."""
        transport: Any = self.writer.transport
        (transport.resume_reading if on else transport.pause_reading)()

    async def open(self, *parts: bytes, idle_ms: int | None = None, container: str = "raw") -> Performative:
        """Send Open and further frames; return the peer's Open."""
        idle = None if idle_ms is None else uint(idle_ms)
        await self.write(frame(OPEN, [container, None, None, ushort(0xFFFF), idle]), *parts)
        return await self.next(OPEN)

    async def read_frame(self) -> bytes:
        """Read the next frame that is not empty, without its size."""
        while True:
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            rest = await self.reader.readexactly(size - 4)
            if size > _HEADER:
                return rest

    async def read(self) -> Performative:
        """Read the next performative."""
        rest = await self.read_frame()
        data = Data()
        used = data.decode(rest[4:])
        data.rewind()
        data.next()
        found = data.get_object()
        channel = int.from_bytes(rest[2:4], "big")
        return Performative(int(found.descriptor), found.value, rest[4 + used :], channel)

    async def skip(self, code: int, count: int) -> None:
        """Read ``count`` frames without decoding them."""
        async with asyncio.timeout(60):
            while count:
                count -= (await self.read_frame())[6] == code

    async def next(self, *codes: int) -> Performative:
        """Return the next performative with one of these codes; drop the others."""
        async with asyncio.timeout(20):
            while (found := await self.read()).code not in codes:
                pass
        return found

    async def ended(self) -> None:
        """Read until the peer closes the socket."""
        async with asyncio.timeout(20):
            while await self.reader.read(65536):
                pass


@asynccontextmanager
async def raw_client(address: Endpoint) -> AsyncIterator[RawClient]:
    """Connect, authenticate as anonymous, and exchange headers."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(_SASL + frame(_INIT, [symbol("ANONYMOUS")], kind=1) + _AMQP)
        client = RawClient(reader, writer)
        async with asyncio.timeout(20):
            await reader.readexactly(8)
            for _ in range(2):  # the mechanisms and the outcome
                await client.read()
            await reader.readexactly(8)
        yield client
    finally:
        writer.transport.abort()
