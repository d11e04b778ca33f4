"""A peer that offers PLAIN and ANONYMOUS, records the client's answer, and closes the socket."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from haclient.testing.peers.listening import Peer, listening

_SASL_HEADER = b"AMQP\x03\x01\x00\x00"
# AMQP 1.0 part 5, section 5.3.3.1: the performative with an array of two symbols.
_MECHANISMS = b"\x00\x53\x40\xc0\x15\x01\xe0\x12\x02\xa3\x05PLAIN\x09ANONYMOUS"
_FRAME_HEADER = b"\x02\x01\x00\x00"


@dataclass(slots=True)
class Asking(Peer):
    """The connections of a peer, with the clients' bytes.

    :ivar said: the bytes of each connection, up to the answer to the offer.
    """

    said: list[bytes] = field(default_factory=list)


class _Offer(asyncio.Protocol):
    def __init__(self, peer: Asking) -> None:
        self._peer = peer
        self._said = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        size = 4 + len(_FRAME_HEADER) + len(_MECHANISMS)
        transport.write(_SASL_HEADER + size.to_bytes(4) + _FRAME_HEADER + _MECHANISMS)

    def data_received(self, data: bytes) -> None:
        self._said += data
        if len(self._said) > len(_SASL_HEADER):
            self._peer.said.append(self._said)
            self._transport.abort()


def asking() -> AbstractAsyncContextManager[Asking]:
    """Start such a peer."""
    return listening(_Offer, Asking)
