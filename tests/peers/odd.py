"""A member that follows the protocol, except that a performative's field may have any type.

Proton cannot encode such performatives, so this peer writes its frames itself (AMQP 1.0 part 2, section
2.7).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import proton
from proton import Data, Described, symbol, ubyte, uint, ulong, ushort

from haclient.testing.peers.listening import Peer, listening
from tests.peers.frames import HEADER_SIZE, is_protocol_header, whole_frames

OPEN, BEGIN, ATTACH, FLOW, DETACH, END, CLOSE = 0x10, 0x11, 0x12, 0x13, 0x16, 0x17, 0x18
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_SOURCE, _TARGET, _ERROR = 0x28, 0x29, 0x1D
_AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_SENDER_ROLE = False
_INTERNAL_ERROR = symbol("amqp:internal-error")

# Placeholders of the same length for values that Python and proton cannot hold.
_LIST_KEY, NOT_UTF8, NOT_ASCII = "KEY7", "UTF8", "ASC7"
_UNENCODABLE = {
    b"\xa1\x04KEY7": b"\xc0\x04\x03\x41\x41\x41",
    b"\xa1\x04UTF8": b"\xa1\x04\xff\xfe\xff\xfe",
    b"\xa3\x04ASC7": b"\xa3\x04\xff\xfe\xff\xfe",
}

Fields = Mapping[int, Any]


def error(condition: Any = _INTERNAL_ERROR, description: Any = None, info: Any = None) -> Described:
    """Return an error as in Close, End and Detach (section 2.8.14)."""
    return Described(ulong(_ERROR), [condition, description, info])


def frame(code: int, fields: Sequence[Any], *, kind: int = 0) -> bytes:
    """Return a frame with a performative, with the placeholders replaced by the invalid values."""
    data = Data()
    data.put_object(Described(ulong(code), list(fields)))
    body = data.encode()
    for placeholder, encoded in _UNENCODABLE.items():
        body = body.replace(placeholder, encoded)
    return (len(body) + HEADER_SIZE).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body


def changed(fields: Sequence[Any], changes: Fields) -> list[Any]:
    """Return a performative's fields with some of them changed."""
    every = [*fields, *[None] * (max(changes, default=-1) + 1 - len(fields))]
    for index, value in changes.items():
        every[index] = value
    return every


class OddPeer(asyncio.Protocol):
    """The server side of one connection.

    :param odd: the fields to change, by performative and index. A Detach or an End among them follows
        the first Attach.
    :param closes_after: close the connection after answering this performative.
    """

    def __init__(self, odd: Mapping[int, Fields], closes_after: int | None) -> None:
        self._odd = odd
        self._closes_after = closes_after
        self._input = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._input += data
        for each in whole_frames(self._input):
            if is_protocol_header(each):
                self._on_header(each)
            elif len(each) > HEADER_SIZE:
                self._on_frame(each[HEADER_SIZE:])

    def _on_header(self, header: bytes) -> None:
        self._transport.write(header)
        if header == _SASL_HEADER:
            self._transport.write(frame(_MECHANISMS, [symbol("ANONYMOUS")], kind=1))
        else:
            self._send(OPEN, ["odd"])

    def _on_frame(self, body: bytes) -> None:
        data = Data()
        data.decode(body)
        data.rewind()
        data.next()
        try:
            performative = data.get_object()
        except ValueError:  # the client repeats a link name that is not UTF-8
            return
        code, fields = int(performative.descriptor), performative.value
        if code == _INIT:
            self._transport.write(frame(_OUTCOME, [ubyte(0)], kind=1))
        elif code == BEGIN:
            self._send(BEGIN, [ushort(0), uint(0), uint(2048), uint(2048)])
        elif code == ATTACH:
            self._attach(fields)
        elif code == CLOSE:
            self._transport.write(frame(CLOSE, []))

    def _attach(self, fields: Sequence[Any]) -> None:
        name, handle, role = fields[:3]
        node = [symbol("q") if value is None else value.value[0] for value in fields[5:7]]
        source, target = Described(ulong(_SOURCE), [node[0]]), Described(ulong(_TARGET), [node[1]])
        answer = [name, handle, not role, None, None, source, target, None, None]
        self._send(ATTACH, [*answer, uint(0) if role != _SENDER_ROLE else None])
        if DETACH in self._odd:
            self._send(DETACH, [handle, True])
        if END in self._odd:
            self._send(END, [])

    def _send(self, code: int, fields: Sequence[Any]) -> None:
        self._transport.write(frame(code, changed(fields, self._odd.get(code, {}))))
        if code == self._closes_after:
            self._transport.write(frame(CLOSE, changed([], self._odd.get(CLOSE, {}))))


@asynccontextmanager
async def odd_peer(odd: Mapping[int, Fields], *, closes_after: int | None = None) -> AsyncIterator[Peer]:
    """Listen as an ``OddPeer``. Only the first connection is served; others are dropped at once."""
    served: list[Peer] = []

    def serve(peer: Peer) -> asyncio.Protocol:
        served.append(peer)
        return OddPeer(odd, closes_after) if len(served) == 1 else _Dropping()

    async with listening(serve) as peer:
        yield peer


class _Dropping(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


VALUES: dict[str, Any] = {
    "bool": True,
    "long": -1,
    "string": "text",
    "list": ["a", 1],
    "map with a list as a key": {_LIST_KEY: 1},
    "not UTF-8": NOT_UTF8,
    "symbol beyond ASCII": symbol(NOT_ASCII),
    "array": proton.Array(proton.UNDESCRIBED, Data.SYMBOL, symbol("a"), symbol("b")),
    "described": Described(symbol("d"), "text"),
}
"""One value of every kind of type."""
