"""A peer that ends each connection during its handshake: by the SASL outcome, or at the Open.

It writes its frames itself (AMQP 1.0 part 2, section 2.7, and part 5, section 5.3.3), and checks no
password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import proton
from proton import Data, Described, symbol, ubyte, ulong

from haclient.core.failures import ESTABLISHMENT_FAILED
from haclient.testing.peers.listening import Peer, listening

_OPEN, _CLOSE, _ERROR, _MECHANISMS, _OUTCOME = 0x10, 0x18, 0x1D, 0x40, 0x44
_SASL_HEADER, _AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
_OK, _AUTH = ubyte(0), ubyte(1)


def _frame(code: int, fields: Sequence[Any], *, kind: int = 0) -> bytes:
    data = Data()
    data.put_object(Described(ulong(code), list(fields)))
    body = data.encode()
    return (len(body) + 8).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body


class _Greeting(asyncio.Protocol):
    """Answers the client's protocol header, its SASL frame, and its AMQP header."""

    def __init__(
        self, mechanisms: Sequence[str], refusal: proton.Condition | None, *, resets: bool = False
    ) -> None:
        offered = proton.Array(proton.UNDESCRIBED, Data.SYMBOL, *map(symbol, mechanisms))
        self._offer = _SASL_HEADER + _frame(_MECHANISMS, [offered], kind=1)
        self._refusal = refusal
        self._resets = resets
        self._input = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._input += data
        if self._take(_SASL_HEADER):
            self._transport.write(self._offer)
        if self._has_frame():
            accepted = self._refusal is not None or self._resets
            self._transport.write(_frame(_OUTCOME, [_OK if accepted else _AUTH], kind=1))
            if not accepted:
                self._transport.close()
        if self._resets and self._take(_AMQP_HEADER):
            self._transport.abort()
        elif self._refusal is not None and self._take(_AMQP_HEADER):
            self._transport.write(_AMQP_HEADER + self._farewell(self._refusal))

    def _take(self, header: bytes) -> bool:
        found = self._input.startswith(header)
        if found:
            del self._input[: len(header)]
        return found

    def _has_frame(self) -> bool:
        size = int.from_bytes(self._input[:4], "big")
        if self._input.startswith(b"AMQP") or len(self._input) < max(size, 8):
            return False
        del self._input[:size]
        return True

    @staticmethod
    def _farewell(refusal: proton.Condition) -> bytes:
        properties = {symbol(ESTABLISHMENT_FAILED): True}
        error = Described(ulong(_ERROR), [symbol(refusal.name), refusal.description])
        return _frame(_OPEN, ["the peer", *[None] * 8, properties]) + _frame(_CLOSE, [error])


def refusing_passwords(*mechanisms: str) -> AbstractAsyncContextManager[Peer]:
    """Return a peer that offers these mechanisms and always answers with the SASL outcome auth."""
    return listening(lambda _: _Greeting(mechanisms, None))


def refusing_opens(condition: proton.Condition, *mechanisms: str) -> AbstractAsyncContextManager[Peer]:
    """Return a peer that accepts every SASL exchange, and closes with this condition."""
    return listening(lambda _: _Greeting(mechanisms, condition))


def resetting_at_opens(*mechanisms: str) -> AbstractAsyncContextManager[Peer]:
    """Return a peer that accepts every SASL exchange, and then resets the connection."""
    return listening(lambda _: _Greeting(mechanisms, None, resets=True))
