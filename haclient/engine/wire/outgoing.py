"""The bytes that proton has for a peer, on their way to the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cproton_ffi import ffi, lib

from haclient.engine.wire.incoming import IncomingBytes

WRITE_HIGH_WATER = 256 * 1024
"""Enough for the small messages of one turn of the loop; proton refills it as often as needed."""


class OutgoingBytes:
    """Takes bytes out of a transport.

    :param transport: proton's, by pointer.
    :param incoming: of the same connection; SASL comes before proton's bytes.
    :ivar taken: the number of bytes taken so far.
    """

    __slots__ = ("_incoming", "_pt", "taken")

    def __init__(self, transport: Any, incoming: IncomingBytes) -> None:
        self._pt = transport
        self._incoming = incoming
        self.taken = 0

    def take(self, more: Callable[[], object] = bool) -> bytes | bytearray:
        """Return the next bytes.

        :param more: called at ``WRITE_HIGH_WATER``, where ``take`` stops: proton may have more.
        """
        pending, peek, pop = lib.pn_transport_pending, lib.pn_transport_peek, lib.pn_transport_pop
        pt = self._pt
        output = bytearray()
        if self._incoming.is_in_sasl:
            return output
        while (size := pending(pt)) > 0:
            chunk = bytearray(size)
            peek(pt, ffi.from_buffer(chunk), size)
            pop(pt, size)
            if not output:
                output = chunk
            else:
                output += chunk
            if len(output) >= WRITE_HIGH_WATER:
                more()
                break
        self.taken += len(output)
        return output

    def write(self, socket: asyncio.Transport, more: Callable[[], object] = bool) -> bool:
        """Write the next bytes; return whether the socket accepts any.

        :param more: as for ``take``.
        """
        if socket.is_closing():
            return False
        return self._put(socket, self.take(more))

    def write_all(self, socket: asyncio.Transport) -> None:
        """Write everything, even if the socket's buffer is full."""
        while not socket.is_closing() and (output := self.take()):
            self._put(socket, output)

    def give(self, socket: asyncio.Transport | None, link: Any, data: bytes, size: int) -> None:
        """Give proton a large message in pieces, and write the frames of each piece to the socket.

        Copying the whole message, and then all its frames, would take so long that peers end the connection.
        """
        start = ffi.from_buffer(data)
        for position in range(0, size, WRITE_HIGH_WATER):
            if position and socket is not None:  # a large buffer that is half read costs proton seconds
                self.write_all(socket)
            lib.pn_link_send(link, start + position, min(WRITE_HIGH_WATER, size - position))

    @staticmethod
    def _put(socket: asyncio.Transport, output: bytes | bytearray) -> bool:
        if output:
            try:
                socket.write(output)
            except RuntimeError:
                # uvloop closes the socket of a cancelled ``create_connection`` without any call.
                return False
        return True

    def change(
        self, socket: asyncio.Transport, call: Callable[[], None], change: Callable[[bytes], bytes]
    ) -> None:
        """Make a call, and change the frames that proton produces for the peer in it.

        Earlier bytes are written first, so ``change`` gets bytes that start with a whole frame.
        """
        self.write_all(socket)
        call()
        output = change(b"".join(iter(self.take, b"")))
        if not socket.is_closing():
            self._put(socket, output)
