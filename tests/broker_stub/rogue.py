"""A stranger that listens at a member's address, and keeps every received byte."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from haclient.cluster_url.endpoint import Endpoint

_SASL_HEADER, _AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
_PIECE = 4


@dataclass
class Rogue:
    """The record of a rogue listener.

    :ivar heard: the bytes of each connection, decrypted.
    """

    mechanisms: tuple[str, ...]
    address: Endpoint = field(default_factory=lambda: Endpoint("127.0.0.1", 0))
    heard: list[bytearray] = field(default_factory=list)
    ended: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_ended(self, connections: int) -> None:
        """Wait until ``count`` connections have ended."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: self.ended >= connections)

    def knows_of(self, password: str) -> bool:
        """Return whether any piece of the password was sent, in clear or in base64."""
        forms = [password.encode(), *(base64.b64encode(b"." * n + password.encode()) for n in range(3))]
        # Base64 depends on the preceding bytes; its edges depend on them and are left out.
        sent = b"\n".join(self.heard)
        inner = [forms[0], *(form[4:-4] for form in forms[1:])]
        return any(form[i : i + _PIECE] in sent for form in inner for i in range(len(form) - _PIECE + 1))

    @property
    def was_sent_amqp(self) -> bool:
        """Return whether a client took it for a member: this header precedes AMQP frames."""
        return any(_AMQP_HEADER in heard for heard in self.heard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        self.heard.append(heard)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await self._talk(reader, writer, heard)
        writer.transport.abort()
        self.ended += 1
        async with self._changed:
            self._changed.notify_all()

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray
    ) -> None:
        """Play through SASL, claim success, read once more, and close."""

        async def take(size: int) -> bytes:
            data = await reader.readexactly(size)
            heard.extend(data)
            return data

        async def frame() -> bytes:
            return await take(int.from_bytes(await take(4)) - 4)

        await take(8)
        writer.write(_SASL_HEADER + _sasl(0x40, _symbols(self.mechanisms)))
        started = await frame()
        if b"SCRAM-" in started:
            [nonce] = re.findall(rb",r=([!-+\--~]+)", started)  # the host's name may follow
            salt = base64.b64encode(b"salt of a liar")
            challenge = b"r=%sliar,s=%s,i=4096" % (nonce, salt)
            writer.write(_sasl(0x42, _binary(challenge)))
            await frame()
        signature = _binary(b"v=" + base64.b64encode(b"\0" * 32))
        writer.write(_sasl(0x44, b"\x50\x00", signature))
        writer.write(_AMQP_HEADER)
        # Reads the bytes after SASL, and answers nothing.
        heard.extend(await reader.read(65536))


@asynccontextmanager
async def rogue(*mechanisms: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Rogue]:
    """Listen on loopback; with a context inside TLS."""
    made = Rogue(mechanisms)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.address = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], tls=context is not None)
    async with server:
        yield made


def _sasl(code: int, *fields: bytes) -> bytes:
    inside = b"".join(fields)
    body = b"\x00\x53" + bytes((code,)) + b"\xc0" + bytes((len(inside) + 1, len(fields))) + inside
    return (8 + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


def _symbols(names: tuple[str, ...]) -> bytes:
    inside = b"\xa3" + b"".join(bytes((len(name),)) + name.encode() for name in names)
    return b"\xe0" + bytes((len(inside) + 1, len(names))) + inside


def _binary(value: bytes) -> bytes:
    return b"\xa0" + bytes((len(value),)) + value
